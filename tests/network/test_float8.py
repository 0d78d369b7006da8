"""8-bit floats in networks: casts and products as PopART has them, against gfloat's numbers and NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from abele.errors import ApplicationRuntimeError, NetworkError, TypeMismatchError
from abele.network import NetworkBuilder, Value, evaluate, parse, verify
from abele.network.ops import float8, views
from abele.numerics import f8_143, f8_152, f16, f32, to_device, to_host
from abele.numerics.narrow import round_to_nearest
from abele.poplibs.poplin import ConvParams
from abele.session import Schedule, Session, Settings

Array = np.ndarray[Any, Any]
Make = Callable[..., Sequence[Value]]


def computed(make: Make, *arrays: Array, system: str = "c600") -> list[Array]:
    """Results of a program for arrays, held to the meaning of the network."""
    net = NetworkBuilder()
    inputs = [net.input(a.shape, str(a.dtype), f"x{n}") for n, a in enumerate(arrays)]
    net.outputs += make(net, *inputs)
    made = net.finish()
    verify(made)
    assert parse(str(made)) == made
    got = [np.asarray(v) for v in Session.of(made, Schedule(), settings=Settings(system=system))(*arrays)]
    values = evaluate(made, dict(zip(inputs, arrays, strict=True)))
    for value, array in zip(net.outputs, got, strict=True):
        np.testing.assert_allclose(array, values[value], rtol=2e-3, atol=2e-3)
    return got


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("format", [f8_143, f8_152], ids=str)
@pytest.mark.parametrize("scale", [0, 5, -3])
@pytest.mark.parametrize("in_tensor", [False, True])
def test_casts__there_and_back__multiply_by_the_power_and_round(format: Any, scale: int, in_tensor: bool) -> None:
    x = numbers(7, 9)

    def make(net: NetworkBuilder, x: Value, s: Value, back: Value) -> list[Value]:
        q = float8.pow2scale_cast_to_fp8(net, x, s if in_tensor else scale, format)
        return [float8.pow2scale_cast_from_fp8(net, q, back if in_tensor else -scale, f32)]

    (got,) = computed(make, x, np.int32(scale), np.int32(-scale))
    wanted = to_host(round_to_nearest(x * 2.0**scale, format), format) * 2.0**-scale
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("shapes", [((6, 40), (40, 8)), ((3, 4, 33), (3, 33, 5)), ((2, 3, 4, 16), (16, 8))])
@pytest.mark.parametrize("formats", [(f8_143, f8_143), (f8_143, f8_152)], ids=str)
@pytest.mark.parametrize("in_tensor", [False, True])
def test_matmul__of_matrices_and_stacks__is_the_product_of_their_numbers(
    shapes: Any, formats: Any, in_tensor: bool
) -> None:
    a, b = (numbers(*shape, seed=n) for n, shape in enumerate(shapes))

    def make(net: NetworkBuilder, a: Value, b: Value, s: Value) -> list[Value]:
        left, right = (float8.pow2scale_cast_to_fp8(net, v, 2, t) for v, t in zip((a, b), formats, strict=True))
        return [float8.matmul_pow2scaled(net, left, right, s if in_tensor else -4)]

    (got,) = computed(make, a, b, np.int32(-4))
    left, right = (to_host(to_device(v * 4, t), t) / 4 for v, t in zip((a, b), formats, strict=True))
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, left @ right, rtol=2e-3, atol=4e-3)


def test_matmul__of_a_view_turned_round__reads_it_so() -> None:
    a, b = numbers(8, 24), numbers(16, 24, seed=1)

    def make(net: NetworkBuilder, a: Value, b: Value) -> list[Value]:
        left, right = (float8.pow2scale_cast_to_fp8(net, v, 0) for v in (a, b))
        return [float8.matmul_pow2scaled(net, left, views.transpose(net, right), 0)]

    computed(make, a, b)


@pytest.mark.parametrize("in_tensor", [False, True])
def test_convolutions__forward_and_both_gradients__are_those_of_the_numbers(in_tensor: bool) -> None:
    params = ConvParams(batch=2, in_channels=8, out_channels=4, field=(7, 7), kernel=(3, 3), stride=(2, 2))
    x, w, dy = (
        numbers(*shape, seed=n)
        for n, shape in enumerate((params.input_shape, params.weights_shape, params.output_shape))
    )

    def make(net: NetworkBuilder, x: Value, w: Value, dy: Value, s: Value) -> list[Value]:
        x8, w8 = (float8.pow2scale_cast_to_fp8(net, v, 1) for v in (x, w))
        dy8 = float8.pow2scale_cast_to_fp8(net, dy, 1, f8_152)
        scale: Any = s if in_tensor else -2
        return [
            float8.conv_pow2scaled(net, x8, w8, scale, params),
            float8.conv_pow2scaled(net, dy8, w8, scale, params, kind="conv_grad_data_pow2scaled"),
            float8.conv_pow2scaled(net, dy8, x8, scale, params, kind="conv_grad_weight_pow2scaled"),
        ]

    for array in computed(make, x, w, dy, np.int32(-2)):
        assert array.dtype == np.float16


def test_matmul__on_a_chip_without_8_bit_floats__is_refused_unless_it_may_convert() -> None:
    a, b = numbers(4, 16), numbers(16, 4)

    def make(net: NetworkBuilder, a: Value, b: Value, converts: bool) -> list[Value]:
        left, right = (float8.pow2scale_cast_to_fp8(net, v, 0) for v in (a, b))
        return [float8.matmul_pow2scaled(net, left, right, 0, converts=converts)]

    with pytest.raises(TypeMismatchError, match="Bow does not multiply 8-bit floats") as raised:
        computed(lambda *v: make(*v, False), a, b, system="bow")
    assert "convertQuarterToHalf" in str(raised.value)
    computed(lambda *v: make(*v, True), a, b, system="bow")


def test_scale__in_a_tensor_and_out_of_range__stops_the_program_unless_it_may_not() -> None:
    x = np.float32([1.0, 3.0])

    def make(net: NetworkBuilder, x: Value, s: Value, throws: bool) -> list[Value]:
        q = float8.pow2scale_cast_to_fp8(net, x, s, throws=throws, saturate=True)
        return [float8.pow2scale_cast_from_fp8(net, q, 0, f32)]

    with pytest.raises(ApplicationRuntimeError, match="not from -32 to 31"):
        computed(lambda *v: make(*v, True), x, np.int32(40))
    (got,) = computed(lambda *v: make(*v, False), x, np.int32(40))
    np.testing.assert_array_equal(got, [240.0, 240.0])


WRONG: dict[str, tuple[Callable[[NetworkBuilder, Value, Value, Value], Value], str]] = {
    "mixed": (lambda net, x, q, s: float8.matmul_pow2scaled(net, q, x, 0), "is no 8-bit float: cast it first"),
    "twice": (lambda net, x, q, s: float8.pow2scale_cast_to_fp8(net, q, 0), "is no float of 16 or 32 bits"),
    "large": (lambda net, x, q, s: float8.pow2scale_cast_to_fp8(net, x, 32), r"the scale is 2\^32"),
    "float scale": (lambda net, x, q, s: float8.pow2scale_cast_to_fp8(net, x, x), "not one i32"),
    "back": (lambda net, x, q, s: float8.pow2scale_cast_from_fp8(net, x, s), "is no 8-bit float"),
    "to f16": (
        lambda net, x, q, s: float8.pow2scale_cast_to_fp8(net, x, 0, f16),
        "is no 8-bit float without a scale",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_ops__with_wrong_operands__are_refused_by_the_verifier(case: str) -> None:
    make, message = WRONG[case]
    net = NetworkBuilder()
    x, s = net.input((4, 4), "f32", "x"), net.input((), "i32", "s")
    net.outputs += [make(net, x, float8.pow2scale_cast_to_fp8(net, x, 0), s)]
    with pytest.raises(NetworkError, match=message):
        verify(net.finish())


def test_scales__that_are_constants__are_attributes_unless_out_of_range() -> None:
    net = NetworkBuilder()
    x = net.input((4, 8), f16, "x")
    for scale in (5, 40):
        net.outputs.append(float8.pow2scale_cast_to_fp8(net, x, net.constant(np.int32(scale), "i32")))
    folded, kept = (op for op in net.finish().ops if op.kind == "pow2scale_cast_to_fp8")
    assert (folded.attrs["log2_scale"], len(folded.inputs)) == (5, 1)
    assert (kept.attrs["log2_scale"], len(kept.inputs)) == (0, 2)
