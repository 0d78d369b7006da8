"""Products of matrices against JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax

from frontends.jaxpr.jaxpr_kit import captured, check
from support.examples import examples

QUICK = settings(examples(5), suppress_health_check=list(HealthCheck), database=None)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("f4")


@st.composite
def products(draw):
    """Operand shapes and dimension numbers of a product."""
    batch, inner, left, right = ([draw(st.integers(1, 3)) for _ in range(draw(st.integers(0, 2)))] for _ in range(4))
    tagged = [
        [*((f"b{n}", e) for n, e in enumerate(batch)), *((f"i{n}", e) for n, e in enumerate(inner))]
        + [(f"f{n}", e) for n, e in enumerate(free)]
        for free in (left, right)
    ]
    mixed = [draw(st.permutations(dims)) for dims in tagged]

    def places(prefix, count):
        return tuple(tuple([t for t, _ in dims].index(f"{prefix}{n}") for n in range(count)) for dims in mixed)

    shapes = [tuple(e for _, e in dims) for dims in mixed]
    return shapes, (places("i", len(inner)), places("b", len(batch)))


@given(case=products())
@QUICK
def test_product_of_any_dimensions__and_its_gradients__are_those_of_jax(case):
    shapes, dims = case
    args = [numbers(*shape, seed=n) for n, shape in enumerate(shapes)]

    def fn(a, b):
        return lax.dot_general(a, b, dims)

    check(fn, *args, rtol=1e-5, atol=1e-5)
    check(jax.grad(lambda *a: jnp.sum(jnp.sin(fn(*a))), (0, 1)), *args, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "fn", [lambda x, w: x @ w, lambda x, w: jnp.einsum("bi,io->bo", x, w), lambda x, w: jax.vmap(lambda v: w.T @ v)(x)]
)
def test_product_with_weights__however_it_is_written__is_linear(fn):
    found = captured(lambda x, w: fn(jnp.sin(x), w), numbers(5, 4), numbers(4, 3))[0].network
    assert [op.kind for op in found.ops if op.kind in ("linear", "matmul")] == ["linear"]


def test_weights__of_a_linear_product__lie_as_it_wants_them():
    from abele.session import Session

    def cycles(fn, *args):
        report = Session.of(captured(fn, *args)[0].network).report.steps
        return sum(int(n) for n, k in zip(report["cycles"], report["kind"], strict=True) if k != "stream")

    x, w = numbers(64, 128), numbers(128, 256)
    assert cycles(lambda x, w: jnp.sin(x) @ w, x, w) <= 1.02 * cycles(lambda x, w: jnp.sin(x) @ w.T, x, w.T.copy())


@pytest.mark.parametrize(
    ("dtype", "preferred", "inner"),
    [
        ("i1", "i4", 3000),
        ("u4", "u4", 300),
        ("?", "?", 30),
        *(
            pytest.param(t, p, n, marks=pytest.mark.slow)
            for t, p, n in (("u1", "u4", 700), ("i2", "i2", 300), ("i4", "i4", 300))
        ),
    ],
)
def test_product_of_whole_numbers__wraps_round_as_in_jax(dtype, preferred, inner):
    rng, limits = np.random.default_rng(0), (0, 1) if dtype == "?" else np.iinfo(dtype)
    low, high = limits if dtype == "?" else (limits.min, limits.max)
    a, b = (rng.integers(low, high, shape, endpoint=True).astype(dtype) for shape in ((2, inner), (inner, 3)))
    wanted = jnp.dtype(preferred)
    check(lambda a, b: lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=wanted), a, b)


def test_product_of_whole_numbers__compiled__is_exact():
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-(2**31), 2**31, shape).astype("i4") for shape in ((4, 40), (40, 3)))
    check(lambda a, b: a @ b, a, b, native=True)


@pytest.mark.parametrize(("given_", "wanted"), [("float16", "float32"), ("bfloat16", "float32"), ("bfloat16", None)])
def test_product_of_narrow_floats__with_a_wider_result__is_that_of_jax(given_, wanted):
    a, b = (jnp.asarray(numbers(*shape), given_) for shape in ((3, 20), (20, 4)))
    exact = {"rtol": 1e-5, "atol": 1e-5} if wanted else {"rtol": 1e-2, "atol": 1e-2}
    check(lambda a, b: jnp.matmul(a, b, preferred_element_type=wanted), a, b, **exact)


@pytest.mark.parametrize("spec", ["bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "i,j->ij", "ii->i", "abc,cd,bd->a"])
def test_einsum__is_that_of_jax(spec):
    sizes = dict(zip("abcdhijkq", (2, 3, 4, 5, 2, 3, 3, 4, 2), strict=True))
    operands = [numbers(*(sizes[c] for c in part), seed=n) for n, part in enumerate(spec.split("->")[0].split(","))]
    check(lambda *args: jnp.einsum(spec, *args), *operands, rtol=1e-5, atol=1e-5)


def test_ragged_products__are_those_of_jax():
    sizes = np.array([1, 3, 2], "i4")
    check(lambda x, w: lax.ragged_dot(x, w, sizes), numbers(6, 4), numbers(3, 4, 2), rtol=1e-5, atol=1e-5)
    check(lambda x, w, g: lax.ragged_dot(x, w, g), numbers(6, 4), numbers(3, 4, 2), sizes, rtol=1e-5, atol=1e-5)
