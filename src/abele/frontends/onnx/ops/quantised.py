"""Integers that stand for floats: quantised, dequantised, and products of such.

Products and convolutions of integers are made of floats: sums of products of 8-bit integers are exact in f32 as long as
they stay below 2²⁴, which is 2⁸ products of the largest, and beyond it are off by at most one in 2²⁴.
"""

from __future__ import annotations

import numpy as np

from abele.expr import apply
from abele.expr.derivative import arg
from abele.frontends.onnx.ops.convolutions import conv
from abele.frontends.onnx.ops.products import product
from abele.frontends.onnx.registry import NodeCall, op
from abele.frontends.onnx.types import element_type
from abele.network import Value
from abele.network.ops import build
from abele.numerics import ElementType, f32, i32, u8

x, y, z = arg(0), arg(1), arg(2)


def beside(call: NodeCall, value: Value, parameter: Value, axis: int, block: int = 0) -> Value:
    """A scale or a zero point in the shape in which it broadcasts: one, one along an axis, or one for each block."""
    net = call.net
    if parameter.size == 1 and not block:
        return build.reshape(net, parameter, ())
    dim = call.axis(axis, value.ndim)
    if not block:
        return build.reshape(net, parameter, [parameter.size if d == dim else 1 for d in range(value.ndim)])
    apart = build.reshape(net, parameter, (*parameter.shape[: dim + 1], 1, *parameter.shape[dim + 1 :]))
    wide = build.expand(net, apart, (*parameter.shape[: dim + 1], block, *parameter.shape[dim + 1 :]))
    shape = (*parameter.shape[:dim], parameter.shape[dim] * block, *parameter.shape[dim + 1 :])
    return build.slice_(net, build.reshape(net, wide, shape), dim, 0, value.shape[dim])


@op("DequantizeLinear")
def dequantize(
    call: NodeCall,
    value: Value,
    scale: Value,
    zero_point: Value | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Value:
    """(x - zero) · scale."""
    kind = element_type(output_dtype) if output_dtype else scale.dtype
    factor = beside(call, value, scale, axis, block_size)
    if zero_point is None:
        return call.map(x * y, value, factor, common=f32, dtype=kind)
    zero = beside(call, value, zero_point, axis, block_size)
    return call.map((x - z) * y, value, factor, zero, common=f32, dtype=kind)


@op("QuantizeLinear")
def quantize(
    call: NodeCall,
    value: Value,
    scale: Value,
    zero_point: Value | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Value:
    """x / scale + zero, to the nearest integer (halves to the even one), within what the type holds."""
    kind = zero_point.dtype if zero_point is not None else element_type(output_dtype) if output_dtype else u8
    factor = beside(call, value, scale, axis, block_size)
    zero = None if zero_point is None else beside(call, value, zero_point, axis, block_size)
    return quantised(call, value, factor, zero, kind)


def quantised(call: NodeCall, value: Value, scale: Value, zero: Value | None, kind: ElementType) -> Value:
    """A value as integers of a kind, by a scale and a zero point that broadcast."""
    if kind.is_float:
        return build.cast(call.net, call.map(x / y, value, scale, common=f32), kind)
    limits = np.iinfo(kind.np)
    whole = apply("round", x / y) if zero is None else apply("round", x / y) + z
    held = apply("max", apply("min", whole, float(limits.max)), float(limits.min))
    operands = [value, scale] if zero is None else [value, scale, zero]
    return build.cast(call.net, call.map(held, *operands, common=f32), kind)


@op("DynamicQuantizeLinear")
def dynamic_quantize(call: NodeCall, value: Value) -> tuple[Value, Value, Value]:
    """A value as u8, with the scale and zero point that cover it and zero."""
    net, dims = call.net, range(value.ndim)
    low = call.map(apply("min", x, 0.0), build.reduce(net, value, dims, "min"))
    high = call.map(apply("max", x, 0.0), build.reduce(net, value, dims, "max"))
    scale = call.map((y - x) * (1 / 255), low, high)
    zero = call.map(apply("max", apply("min", apply("round", -x / y), 255.0), 0.0), low, scale)
    return quantised(call, value, scale, zero, u8), scale, build.cast(net, zero, u8)


def _centred(call: NodeCall, value: Value, zero: Value | None, axis: int) -> Value:
    """Integers less their zero point, as floats."""
    if zero is None:
        return build.cast(call.net, value, f32)
    if zero.ndim > 1:
        return call.map(x - y, value, zero, common=f32)
    return call.map(x - y, value, beside(call, value, zero, axis), common=f32)


@op("MatMulInteger")
def matmul_integer(
    call: NodeCall, a: Value, b: Value, a_zero_point: Value | None = None, b_zero_point: Value | None = None
) -> Value:
    """The product of integers less their zero points, as i32."""
    made = product(call, _centred(call, a, a_zero_point, -2), _centred(call, b, b_zero_point, -1))
    return build.cast(call.net, made, i32)


@op("QLinearMatMul")
def qlinear_matmul(
    call: NodeCall,
    a: Value,
    a_scale: Value,
    a_zero_point: Value,
    b: Value,
    b_scale: Value,
    b_zero_point: Value,
    y_scale: Value,
    y_zero_point: Value,
) -> Value:
    """The product of quantised matrices, quantised."""
    left = _scaled(call, _centred(call, a, a_zero_point, -2), a_scale, -2)
    right = _scaled(call, _centred(call, b, b_zero_point, -1), b_scale, -1)
    made = product(call, left, right)
    scale, zero = (beside(call, made, v, -2) for v in (y_scale, y_zero_point))
    return quantised(call, made, scale, zero, y_zero_point.dtype)


def _scaled(call: NodeCall, value: Value, scale: Value, axis: int) -> Value:
    return call.map(x * y, value, scale if scale.ndim > 1 else beside(call, value, scale, axis), common=f32)


@op("ConvInteger")
def conv_integer(
    call: NodeCall,
    value: Value,
    weight: Value,
    x_zero_point: Value | None = None,
    w_zero_point: Value | None = None,
    **settings: object,
) -> Value:
    """The convolution of integers less their zero points, as i32."""
    made = conv(call, _centred(call, value, x_zero_point, 1), _centred(call, weight, w_zero_point, 0), None, **settings)
    return build.cast(call.net, made, i32)


@op("QLinearConv")
def qlinear_conv(
    call: NodeCall,
    value: Value,
    x_scale: Value,
    x_zero_point: Value,
    weight: Value,
    w_scale: Value,
    w_zero_point: Value,
    y_scale: Value,
    y_zero_point: Value,
    bias: Value | None = None,
    **settings: object,
) -> Value:
    """The convolution of quantised values, quantised; its bias is in units of both scales."""
    net = call.net
    made = conv(call, _centred(call, value, x_zero_point, 1), _centred(call, weight, w_zero_point, 0), None, **settings)
    if bias is not None:
        channel = build.reshape(net, bias, (bias.size, *(1,) * (made.ndim - 2)))
        made = call.map(x + y, made, channel, common=f32)
    of_weights = beside(call, made, w_scale, 1)
    real = call.map(x * y * z, made, build.reshape(net, x_scale, ()), of_weights, common=f32)
    scale, zero = (build.reshape(net, v, ()) for v in (y_scale, y_zero_point))
    return quantised(call, real, scale, zero, y_zero_point.dtype)
