"""Convolutions of any layout against JAX, with their gradients; JAX's gradients are the ops of gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jax import lax

from abele.errors import UnsupportedOpError
from frontends.jaxpr.jaxpr_kit import captured, check
from support.examples import examples

QUICK = settings(examples(3), suppress_health_check=list(HealthCheck), database=None, phases=[Phase.generate])
NHWC = ("NHWC", "HWIO", "NHWC")


def gradients(fn):
    """Gradients by all operands of a sum that depends on every element."""
    return lambda *args: jax.grad(lambda *a: jnp.sum(jnp.sin(fn(*a))), tuple(range(len(args))))(*args)


def kinds(fn, *args):
    """Kinds of convolutions in a function's network, in order."""
    return [op.kind for op in captured(fn, *args)[0].network.ops if op.kind.startswith("convolution")]


def numbers(seed, *shapes, dtype="f4"):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


@st.composite
def convolutions(draw):
    """Operand shapes and parameters of a convolution whose result is not empty."""
    rank = draw(st.integers(1, 3))
    field = [draw(st.integers(3, 6)) for _ in range(rank)]
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    strides, gaps, apart = ([draw(st.integers(1, 3)) for _ in range(rank)] for _ in range(3))
    gaps = [1 if draw(st.booleans()) else n for n in gaps]
    padding = []
    for n, k, gap, by in zip(field, kernel, gaps, apart, strict=True):
        low, high = draw(st.integers(-1, 3)), draw(st.integers(-1, 3))
        short = (k - 1) * by + 1 - ((n - 1) * gap + 1 + low + high)
        padding.append((low, high + max(0, short)))
    groups, of_batch = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 2)]))
    batch, channels, made = 2 * draw(st.integers(1, 2)), draw(st.integers(1, 2)), 2 * draw(st.integers(1, 2))
    orders = [tuple(draw(st.permutations(range(rank + 2)))) for _ in range(3)]
    shapes = [(batch, channels * groups, *field), (made, channels, *kernel)]
    given_shapes = [
        tuple(shape[order.index(d)] for d in range(rank + 2)) for shape, order in zip(shapes, orders, strict=False)
    ]
    params = {
        "window_strides": tuple(strides),
        "padding": tuple(padding),
        "lhs_dilation": tuple(gaps),
        "rhs_dilation": tuple(apart),
        "dimension_numbers": lax.ConvDimensionNumbers(*orders),
        "feature_group_count": groups,
        "batch_group_count": of_batch,
    }
    return given_shapes, params


def check_case(case):
    shapes, params = case
    args = numbers(0, *shapes)

    def fn(x, kernel):
        return lax.conv_general_dilated(x, kernel, **params)

    check(fn, *args, rtol=2e-5, atol=2e-5)
    check(gradients(fn), *args, rtol=5e-5, atol=5e-5)


@given(case=convolutions())
@QUICK
def test_convolution_of_any_layout__and_its_gradients__are_those_of_jax(case):
    check_case(case)


@pytest.mark.slow
@given(case=convolutions())
@settings(QUICK, max_examples=120)
def test_many_convolutions_of_any_layout__and_their_gradients__are_those_of_jax(case):
    check_case(case)


@pytest.mark.parametrize(
    ("size", "stride", "padding"), [(3, 1, "SAME"), (3, 2, "SAME"), (2, 2, "VALID"), (1, 2, "VALID")]
)
def test_gradient_of_a_convolution__becomes_the_ops_of_gradients(size, stride, padding):
    def fn(x, kernel):
        return lax.conv_general_dilated(x, kernel, (stride, stride), padding, dimension_numbers=NHWC)

    args = numbers(0, (2, 8, 8, 3), (size, size, 3, 4))
    assert kinds(gradients(fn), *args) == ["convolution", "convolution_grad_weight", "convolution_grad_data"]


def test_gradients_of_a_convolution__have_its_parameters():
    def fn(x, kernel):
        return lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=NHWC)

    network = captured(gradients(fn), *numbers(0, (2, 7, 8, 3), (3, 3, 3, 4)))[0].network
    params = [op.attrs["params"] for op in network.ops if op.kind.startswith("convolution")]
    assert len({p.input_shape for p in params}) == len({p.weights_shape for p in params}) == 1
    assert params[0].output_shape == params[1].output_shape == params[2].output_shape


def test_transposed_convolution__is_a_gradient_by_the_input__and_its_gradient_a_convolution():
    args = numbers(0, (2, 5, 5, 4), (3, 3, 3, 4))

    def fn(x, kernel):
        return lax.conv_transpose(x, kernel, (2, 2), "SAME", transpose_kernel=True)

    assert kinds(fn, *args) == ["convolution_grad_data"]
    assert sorted(kinds(gradients(fn), *args)) == ["convolution", "convolution_grad_data", "convolution_grad_weight"]
    check(fn, *args, rtol=1e-5, atol=1e-5, native=True)


def test_convolution__compiled_with_gradients_in_nhwc__is_that_of_jax():
    def fn(x, kernel):
        return lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=NHWC, feature_group_count=2)

    check(gradients(fn), *numbers(0, (2, 7, 7, 4), (3, 3, 2, 6)), rtol=2e-5, atol=2e-5, native=True)


def test_kernel_in_hwio__lies_as_the_convolution_wants_it():
    # Its permutation is a view that waits for the convolution: nothing moves kernels before it.
    from abele.session import Session

    def fn(x, kernel):
        return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=NHWC)

    def steps(network):
        report = Session.of(network).report.steps
        return sum(int(n) for n, k in zip(report["cycles"], report["kind"], strict=True) if k != "stream")

    args = numbers(0, (2, 8, 8, 16), (3, 3, 16, 16))
    channels_first = lax.conv_dimension_numbers((2, 16, 8, 8), (16, 16, 3, 3), ("NCHW", "OIHW", "NCHW"))

    def plain(x, kernel):
        return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=channels_first)

    ours = steps(captured(fn, *args)[0].network)
    theirs = steps(captured(plain, args[0].transpose(0, 3, 1, 2), args[1].transpose(3, 2, 0, 1))[0].network)
    assert ours <= 1.02 * theirs


def test_convolution_of_integers__is_exact__where_f32_is_not():
    rng = np.random.default_rng(0)
    x, kernel = (rng.integers(-128, 128, shape).astype("i1") for shape in ((2, 200, 4, 4), (3, 200, 3, 3)))
    check(lambda a, b: lax.conv_general_dilated(a, b, (1, 1), "SAME", preferred_element_type=jnp.int32), x, kernel)
    wide = [rng.integers(-(2**31), 2**31, shape).astype("i4") for shape in ((1, 3, 4, 4), (2, 3, 2, 2))]
    check(lambda a, b: lax.conv_general_dilated(a, b, (1, 1), "SAME"), *wide)


def test_convolution_of_integers__of_large_groups__is_refused_with_the_bound():
    args = [np.ones((1, 2400, 4), "i4"), np.ones((2, 1200, 1), "i4")]
    with pytest.raises(UnsupportedOpError, match="sums up 1200 products") as caught:
        captured(lambda a, b: lax.conv_general_dilated(a, b, (1,), "SAME", feature_group_count=2), *args)
    assert "float32" in str(caught.value)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_convolution_of_narrow_floats__is_near_jax(dtype):
    args = [jnp.asarray(a, dtype) for a in numbers(0, (1, 3, 5, 5), (2, 3, 2, 2))]
    check(lambda a, b: lax.conv_general_dilated(a, b, (1, 1), "SAME"), *args, rtol=2e-2, atol=2e-2)


def test_convolution__without_a_field_or_without_elements__is_that_of_jax():
    numbers_ = lax.ConvDimensionNumbers((0, 1), (1, 0), (0, 1))
    x, kernel = numbers(0, (3, 4), (4, 5))
    check(lambda a, b: lax.conv_general_dilated(a, b, (), (), dimension_numbers=numbers_), x, kernel, atol=1e-5)
