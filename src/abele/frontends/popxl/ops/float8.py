"""Ops of 8-bit floats: casts by powers of two, products and convolutions that are multiplied by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from abele.frontends.popxl.dtypes import as_dtype, dtype, float8_143, float16
from abele.frontends.popxl.errors import GraphArgumentError
from abele.frontends.popxl.ops.common import checked, emit
from abele.frontends.popxl.ops.convolutions import conv_params, memory_hint, turned_params
from abele.frontends.popxl.tensors import Constant, Tensor
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops import float8 as scaled
from abele.numerics import i32


def _scale(kind: str, log2_scale: Any) -> tuple[list[Tensor], int]:
    """The scale as a tensor, or as a number that is known."""
    if isinstance(log2_scale, Constant) and log2_scale.nelms == 1:
        log2_scale = int(log2_scale.data.reshape(()))
    if isinstance(log2_scale, Tensor):
        if log2_scale.nelms != 1 or log2_scale.dtype.name != "int32":
            raise GraphArgumentError(f"{kind} takes one int32 as log2_scale, got {log2_scale!r}")
        return [log2_scale], 0
    if not -32 <= int(log2_scale) < 32:
        raise GraphArgumentError(f"{kind} has the log2_scale {log2_scale}, which is not in [-32, 32)")
    return [], int(log2_scale)


def _or(number: int, given: Sequence[Value], net: BlockBuilder) -> Value | int:
    return build.reshape(net, build.cast(net, given[0], i32), ()) if given else number


def _quarters(kind: str, *tensors: Tensor) -> None:
    checked(kind, *tensors)
    for tensor in tensors:
        if not tensor.dtype.is_float8:
            raise GraphArgumentError(
                f"{kind} takes 8-bit floats, {tensor.id!r} is {tensor.dtype.name}",
                remedy="ops.pow2scale_cast_to_fp8(t, log2_scale, popxl.float8_143)",
            )


def _cast_arguments(log2_scale: Any, data_type: Any) -> tuple[Any, dtype]:
    # Programs write both orders.
    pair = (data_type, log2_scale) if isinstance(log2_scale, dtype) else (log2_scale, data_type)
    return pair[0], as_dtype(pair[1])


def pow2scale_cast_to_fp8(t: Tensor, log2_scale: Any = 0, data_type: Any = float8_143) -> Tensor:
    """T · 2^log2_scale rounded to an 8-bit float; what is too large becomes NaN.

    Args:
        t: f16 or f32.
        log2_scale: A number in [-32, 32), or a tensor of one int32.
        data_type: ``float8_143`` or ``float8_152``.
    """
    name = "pow2scale_cast_to_fp8"
    checked(name, t)
    factor, kind = _cast_arguments(log2_scale, data_type)
    if not kind.is_float8 or not t.dtype.is_floating_point or t.dtype.is_float8:
        raise GraphArgumentError(f"{name} makes 8-bit floats of others, not {kind.name} of {t.dtype.name}")
    more, number = _scale(name, factor)

    def meaning(net: BlockBuilder, v: Value, *given: Value) -> Value:
        return scaled.pow2scale_cast_to_fp8(net, v, _or(number, given, net), kind.element)

    return emit(name, meaning, t, *more)


def pow2scale_cast_from_fp8(t: Tensor, log2_scale: Any = 0, data_type: Any = float16) -> Tensor:
    """The numbers of 8-bit floats times 2^log2_scale, as f16 or f32."""
    name = "pow2scale_cast_from_fp8"
    _quarters(name, t)
    factor, kind = _cast_arguments(log2_scale, data_type)
    if not kind.is_floating_point or kind.is_float8:
        raise GraphArgumentError(f"{name} makes float16 or float32, not {kind.name}")
    more, number = _scale(name, factor)

    def meaning(net: BlockBuilder, v: Value, *given: Value) -> Value:
        return scaled.pow2scale_cast_from_fp8(net, v, _or(number, given, net), kind.element)

    return emit(name, meaning, t, *more)


def matmul_pow2scaled(
    lhs: Tensor, rhs: Tensor, log2_scale: Any = 0, available_memory_proportion: float | None = None
) -> Tensor:
    """(lhs @ rhs) · 2^log2_scale in f16, of matrices of 8-bit floats or stacks of them."""
    name = "matmul_pow2scaled"
    _quarters(name, lhs, rhs)
    if lhs.rank < 2 or rhs.rank < 2 or lhs.shape[-1] != rhs.shape[-2]:
        raise GraphArgumentError(f"{name} of {list(lhs.shape)} and {list(rhs.shape)}: inner dimensions differ")
    more, number = _scale(name, log2_scale)

    def meaning(net: BlockBuilder, a: Value, b: Value, *given: Value) -> Value:
        with net.at(hint=memory_hint(available_memory_proportion)):
            return scaled.matmul_pow2scaled(net, a, b, _or(number, given, net), converts=True)

    return emit(name, meaning, lhs, rhs, *more)


def conv_pow2scaled(
    t: Tensor,
    weight: Tensor,
    log2_scale: Any = 0,
    stride: Any = (1, 1),
    padding: Any = (0, 0, 0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    pad_type: str = "not_set",
    available_memory_proportions: Any = None,
    enable_conv_dithering: Any = None,
) -> Tensor:
    """A convolution of 8-bit floats times 2^log2_scale, in f16."""
    name = "conv_pow2scaled"
    _quarters(name, t, weight)
    sizes = conv_params(name, t, weight, stride, padding, dilation=dilation, groups=groups, pad_type=pad_type)
    more, number = _scale(name, log2_scale)

    def meaning(net: BlockBuilder, v: Value, w: Value, *given: Value) -> Value:
        with net.at(hint=memory_hint(available_memory_proportions, dithering=enable_conv_dithering)):
            factor = _or(number, given, net)
            return scaled.conv_pow2scaled(net, v, w, factor, sizes, converts=True)

    return emit(name, meaning, t, weight, *more)


def conv_transpose_pow2scaled(
    t: Tensor,
    weight: Tensor,
    log2_scale: Any = 0,
    stride: Any = (1, 1),
    padding: Any = (0, 0, 0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    pad_type: str = "not_set",
    output_padding: Any = None,
    output_shape: Any = None,
    available_memory_proportions: Any = None,
    enable_conv_dithering: Any = None,
) -> Tensor:
    """The gradient of a convolution of 8-bit floats by its operand times 2^log2_scale, in f16."""
    name = "conv_transpose_pow2scaled"
    _quarters(name, t, weight)
    sizes = turned_params(
        name,
        t,
        weight,
        stride,
        padding,
        dilation=dilation,
        groups=groups,
        pad_type=pad_type,
        output_padding=output_padding,
        output_shape=output_shape,
    )
    more, number = _scale(name, log2_scale)

    def meaning(net: BlockBuilder, v: Value, w: Value, *given: Value) -> Value:
        with net.at(hint=memory_hint(available_memory_proportions, dithering=enable_conv_dithering)):
            factor, kind = _or(number, given, net), "conv_grad_data_pow2scaled"
            return scaled.conv_pow2scaled(net, v, w, factor, sizes, kind=kind, converts=True)

    return emit(name, meaning, t, weight, *more)


__all__ = [
    "conv_pow2scaled",
    "conv_transpose_pow2scaled",
    "matmul_pow2scaled",
    "pow2scale_cast_from_fp8",
    "pow2scale_cast_to_fp8",
]
