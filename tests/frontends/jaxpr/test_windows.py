"""Reductions over windows, and gradients of the elements that windows chose, against JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jax import lax
from jax._src.lax import windowed_reductions

from frontends.jaxpr.jaxpr_kit import captured, check, mostly_slow
from support.examples import examples

# Cases are not shrunk: XLA ends the process for some that are near to wrong ones.
QUICK = settings(examples(4), suppress_health_check=list(HealthCheck), database=None, phases=[Phase.generate])
OPERATIONS = {
    "add": (lax.add, 0.0),
    "max": (lax.max, -np.inf),
    "min": (lax.min, np.inf),
    "mul": (lax.mul, 1.0),
}


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("f4")


def gradient(fn):
    return jax.grad(lambda x: jnp.sum(jnp.sin(fn(x))))


def kinds(fn, *args):
    return [op.kind for op in captured(fn, *args)[0].network.ops if op.kind in ("pool", "pool_grad")]


@st.composite
def windows(draw):
    """Shape and parameters of a reduction whose result is not empty."""
    rank = draw(st.integers(1, 4))
    shape = [draw(st.integers(3, 7)) for _ in range(rank)]
    size, strides = ([draw(st.integers(1, 3)) for _ in range(rank)] for _ in range(2))
    dilated = draw(st.booleans())
    base, apart = ([draw(st.integers(1, 2)) if dilated else 1 for _ in range(rank)] for _ in range(2))
    padding = []
    for n, k, gap, by in zip(shape, size, base, apart, strict=True):
        low, high = draw(st.integers(-1, 2)), draw(st.integers(-1, 2))
        short = (k - 1) * by + 1 - ((n - 1) * gap + 1 + low + high)
        padding.append((low, high + max(0, short)))
    params = {
        "window_dimensions": tuple(size),
        "window_strides": tuple(strides),
        "padding": tuple(padding),
        "base_dilation": tuple(base),
        "window_dilation": tuple(apart),
    }
    # JAX has no gradient of maxima where windows are dilated or leave something out.
    chooses = not dilated and min(map(min, padding)) >= 0
    return draw(st.sampled_from(sorted(OPERATIONS))), tuple(shape), params, chooses


def check_case(case):
    name, shape, params, chooses = case
    operation, start = OPERATIONS[name]

    def fn(x):
        return lax.reduce_window(x, start, operation, **params)

    check(fn, numbers(*shape), atol=1e-5, rtol=1e-5)
    if name == "add" or (name in ("max", "min") and chooses):
        check(gradient(fn), numbers(*shape), atol=1e-5, rtol=1e-5)


@given(case=windows())
@QUICK
def test_windows_of_any_kind__and_their_gradients__are_those_of_jax(case):
    check_case(case)


@pytest.mark.slow
@given(case=windows())
@settings(QUICK, max_examples=150)
def test_many_windows_of_any_kind__and_their_gradients__are_those_of_jax(case):
    check_case(case)


@pytest.mark.parametrize("name", ["add", "max", "min"])
@pytest.mark.parametrize(("size", "padding"), [(2, "VALID"), (3, "SAME")])
def test_pool_and_its_gradient__channels_last__are_the_library_s(name, size, padding):
    operation, start = OPERATIONS[name]

    def fn(x):
        return lax.reduce_window(x, start, operation, (1, size, size, 1), (1, 2, 2, 1), padding)

    assert kinds(fn, numbers(2, 8, 7, 3)) == ["pool"]
    found = kinds(gradient(fn), numbers(2, 8, 7, 3))
    assert found.count("pool_grad") == 1


def test_pool__compiled_with_its_gradient__is_that_of_jax():
    def fn(x):
        best = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        return lax.reduce_window(best, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    check(gradient(fn), numbers(2, 8, 8, 3), atol=1e-5, native=True)


def test_equal_elements__of_a_window__give_their_gradient_to_the_first():
    x = np.round(numbers(2, 6, 6, 2) * 2)
    check(gradient(lambda v: lax.reduce_window(v, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")), x)


def test_long_windows__are_reduced_in_steps_that_double():
    def fn(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 37), (1, 1), "VALID", window_dilation=(1, 2))

    found = captured(fn, numbers(2, 90))[0].network
    assert sum(op.kind == "map" for op in found.ops) <= 8
    check(fn, numbers(2, 90))


@pytest.mark.parametrize("dtype", mostly_slow(["int32", "uint8", "bool", "bfloat16"], "bool", "bfloat16"))
def test_windows_of_other_types__are_those_of_jax(dtype):
    x = jnp.asarray(np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 6, (7, 9)), dtype)
    start = np.zeros((), jnp.dtype(dtype))
    operation = lax.bitwise_or if dtype == "bool" else lax.add
    check(lambda v: lax.reduce_window(v, start, operation, (2, 3), (2, 1), "SAME"), x)
    if dtype != "bool":
        check(lambda v: lax.reduce_window(v, start, lax.max, (2, 11), (2, 1), "SAME"), x)


def test_function_of_the_user__with_padding__sees_the_elements_alone():
    check(lambda x: lax.reduce_window(x, 0.5, jnp.logaddexp, (2, 3), (2, 2), "SAME"), numbers(6, 5), rtol=1e-5)


def test_several_operands__reduced_together__are_those_of_jax():
    def fn(x, y):
        return lax.reduce_window(
            (x, y), (0.0, -jnp.inf), lambda a, b: (a[0] + b[0], jnp.maximum(a[1], b[1])), (2, 3), (2, 2), "SAME"
        )

    check(fn, numbers(6, 5), numbers(6, 5, seed=1))


@pytest.mark.parametrize("dilated", [False, True])
def test_derivative_of_a_maximum__along_a_tangent__is_that_of_jax(dilated):
    dilation = {"base_dilation": (2, 1), "window_dilation": (1, 2)} if dilated else {}

    def fn(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (2, 3), (2, 2), "SAME", **dilation)

    check(lambda x: jax.jvp(fn, (x,), (jnp.cos(x),)), numbers(6, 7))


@pytest.mark.parametrize("dtype", ["f4", "i4"])
@pytest.mark.parametrize("select", [lax.ge_p, pytest.param(lax.le_p, marks=pytest.mark.slow)])
def test_sources__added_to_chosen_elements__are_those_of_jax(select, dtype):
    rng = np.random.default_rng(0)
    x, source = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((6, 6), (3, 3)))

    def fn(x, source):
        return windowed_reductions._select_and_scatter_add(source, x, select, (2, 3), (2, 2), ((0, 0), (0, 1)))

    check(fn, x, source)


def test_sources__joined_by_a_function__are_those_of_jax():
    x, source = np.round(numbers(6, 6) * 3), numbers(3, 3, seed=1)

    def fn(x, source):
        return windowed_reductions._select_and_scatter(
            x, lax.ge, (2, 3), (2, 2), ((0, 0), (0, 1)), source, np.float32(0.0), lax.max
        )

    check(fn, x, source)
