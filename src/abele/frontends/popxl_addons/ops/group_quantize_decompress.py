"""Weights of 4 bits with a scale and a bias per group of neighbours, and back.

A group of g numbers w is kept as whole numbers q from 0 to 15, with w ≈ q · scale + bias. Four of them are in one
uint16, the first in the lowest bits. For example, [2, 8] in groups of 4 is uint16[2, 2, 1], with scales and biases
[2, 2, 1].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.arrays import Array
from abele.expr import Const, apply
from abele.expr.derivative import arg
from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError
from abele.frontends.popxl.ops.common import check_same_types, checked, emit
from abele.frontends.popxl.tensors import Tensor
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import f32, i32

x, y, z = arg(0), arg(1), arg(2)
_PER_WORD = 4
_LARGEST = 15


def group_quantize_compress(x: Any, group_size: int, dtype: Any = np.float16) -> tuple[Array, Array, Array]:
    """Weights of 4 bits of an array, and the scales and biases of their groups.

    Args:
        x: Numbers [..., columns].
        group_size: Neighbours of the last axis with one scale; a multiple of 4 that divides the columns.
        dtype: Type of scales and biases.

    Returns:
        uint16[..., columns / group_size, group_size / 4], and twice [..., columns / group_size, 1].

    Raises:
        GraphArgumentError: The columns make no such groups.
    """
    whole = np.asarray(x, np.float32)
    if group_size < _PER_WORD or group_size % _PER_WORD or not whole.ndim or whole.shape[-1] % group_size:
        raise GraphArgumentError(
            f"groups of {group_size} in {list(whole.shape)}: a multiple of {_PER_WORD} that divides the last axis"
        )
    groups = whole.reshape(*whole.shape[:-1], -1, group_size)
    bias = groups.min(-1, keepdims=True).astype(dtype)
    scale = ((groups.max(-1, keepdims=True) - bias.astype(np.float32)) / _LARGEST).astype(dtype)
    # A group of equal numbers has the scale 0, and all of its numbers are the bias.
    safe = np.where(scale == 0, 1, scale).astype(np.float32)
    numbers = np.clip(np.rint((groups - bias.astype(np.float32)) / safe), 0, _LARGEST).astype(np.uint16)
    words = numbers.reshape(*numbers.shape[:-1], group_size // _PER_WORD, _PER_WORD)
    packed = np.bitwise_or.reduce(words << _SHIFTS.astype(np.uint16), -1)
    return packed.astype(np.uint16), scale, bias


_SHIFTS = 4 * np.arange(_PER_WORD)


def group_quantize_decompress_numpy(t: Any, group_scale: Any, group_bias: Any) -> Array:
    """The numbers of :func:`group_quantize_compress` on the host, in the type of the scales."""
    words, scale, bias = np.asarray(t, np.uint16), np.asarray(group_scale), np.asarray(group_bias)
    numbers = (words[..., None] >> _SHIFTS.astype(np.uint16)) & np.uint16(_LARGEST)
    groups = numbers.reshape(*words.shape[:-1], -1).astype(np.float32)
    made = groups * scale.astype(np.float32) + bias.astype(np.float32)
    return made.reshape(*words.shape[:-2], -1).astype(scale.dtype)


def group_quantize_decompress(t: Tensor, group_scale: Tensor, group_bias: Tensor) -> Tensor:
    """The numbers of weights of 4 bits, in the type of their scales; see :func:`group_quantize_compress`.

    Args:
        t: uint16[..., groups, group size / 4].
        group_scale: [..., groups, 1].
        group_bias: [..., groups, 1].

    Returns:
        [..., groups · group size].

    Raises:
        GraphTypeError: ``t`` is not uint16.
        GraphArgumentError: The scales do not fit.
    """
    checked("group_quantize_decompress", t, group_scale, group_bias)
    check_same_types("group_quantize_decompress", (group_scale, group_bias))
    if t.dtype.name != "uint16":
        raise GraphTypeError(f"group_quantize_decompress takes uint16, {t.id!r} is {t.dtype.name}")
    if t.rank < 2 or group_scale.shape != (*t.shape[:-1], 1) or group_bias.shape != group_scale.shape:
        raise GraphArgumentError(
            "group_quantize_decompress takes a scale and a bias per group",
            at=f"t {list(t.shape)}, group_scale {list(group_scale.shape)}, group_bias {list(group_bias.shape)}",
            remedy=f"scales of {[*t.shape[:-1], 1]}",
        )
    shape = (*t.shape[:-2], t.shape[-2] * t.shape[-1] * _PER_WORD)

    def meaning(net: BlockBuilder, words: Value, scale: Value, bias: Value) -> Value:
        wide = build.reshape(net, build.cast(net, words, i32), (*words.shape, 1))
        shifts = net.constant(_SHIFTS, i32, "shifts")
        numbers = build.map_(net, apply("and", apply("shr", x, y), Const(_LARGEST, i32)), [wide, shifts], i32)
        groups = build.reshape(net, build.cast(net, numbers, f32), (*words.shape[:-1], words.shape[-1] * _PER_WORD))
        factors = [build.cast(net, v, f32) for v in (scale, bias)]
        return build.reshape(net, build.map_(net, x * y + z, [groups, *factors], scale.dtype), shape)

    return emit("group_quantize_decompress", meaning, t, group_scale, group_bias)


__all__ = ["group_quantize_compress", "group_quantize_decompress", "group_quantize_decompress_numpy"]
