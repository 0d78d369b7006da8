"""Views by strides: diagonals, windows over a dimension, and any strides at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch.fx

from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.frontends.poptorch.capture.torch_export import fake
from abele.network import Value
from abele.network.ops import build
from abele.network.ops.along import take
from abele.numerics import i32


@aten("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(call: OperatorCall, value: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """A diagonal of the matrices along two dimensions, as the last dimension: every so many elements of their rows."""
    dim1, dim2 = dim1 % value.ndim, dim2 % value.ndim
    rows, columns = value.shape[dim1], value.shape[dim2]
    others = [d for d in range(value.ndim) if d not in (dim1, dim2)]
    turned = build.permute(call.net, value, (*others, dim1, dim2))
    outer = tuple(value.shape[d] for d in others)
    flat = build.reshape(call.net, turned, (*outer, rows * columns))
    begin = offset if offset >= 0 else -offset * columns
    count = call.shape[-1]
    step = columns + 1
    return build.slice_(call.net, flat, len(outer), begin, begin + (count - 1) * step + 1, step)


@aten("aten.trace")
def trace(call: OperatorCall, value: Value) -> Value:
    """The sum of the diagonal."""
    rows, columns = value.shape
    flat = build.reshape(call.net, value, (rows * columns,))
    last = (min(rows, columns) - 1) * (columns + 1)
    kept = build.slice_(call.net, flat, 0, 0, last + 1, columns + 1)
    return build.reduce(call.net, call.operand(kept, call.dtype), [0])


@aten("aten.unfold", "aten.unfold_copy")
def unfold(call: OperatorCall, value: Value, dim: int, size: int, step: int) -> Value:
    """Windows over a dimension; the place within a window is the last dimension."""
    if not value.ndim:
        return build.reshape(call.net, value, call.shape)
    net = call.net
    dim %= value.ndim
    count = call.shape[dim]
    if size <= count:
        shape = (*call.shape[:-1], 1)
        places = [build.slice_(net, value, dim, k, k + (count - 1) * step + 1, step) for k in range(size)]
        return build.concat(net, [build.reshape(net, place, shape) for place in places], len(shape) - 1)
    windows = [build.slice_(net, value, dim, n * step, n * step + size) for n in range(count)]
    last = [d for d in range(value.ndim) if d != dim]
    shape = (*value.shape[:dim], 1, *value.shape[dim + 1 :], size)
    turned = [build.reshape(net, build.permute(net, w, (*last, dim)), shape) for w in windows]
    return build.concat(net, turned, dim)


@aten("aten.as_strided", "aten.as_strided_copy")
def as_strided(
    call: OperatorCall, value: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Value:
    """Elements by their place in memory, as PyTorch lays the operand out."""
    operand = call.node.args[0]
    assert isinstance(operand, torch.fx.Node)
    tensor = fake(operand)
    places = _places(tensor.shape, tensor.stride(), tensor.storage_offset())
    number_at = np.zeros(places.max() + 1, np.int64)
    number_at[places.reshape(-1)] = np.arange(places.size)
    offset = tensor.storage_offset() if storage_offset is None else storage_offset
    chosen = _places(size, stride, offset)
    if chosen.max() >= number_at.size:
        raise call.refuse("of memory beyond the operand's own elements has no lowering", "view the whole tensor")
    numbers = call.net.constant(number_at[chosen].reshape(-1), i32)
    flat = build.reshape(call.net, value, (value.size,))
    return build.reshape(call.net, take(call.net, flat, numbers, 0), call.shape)


def _places(size: Sequence[int], stride: Sequence[int], offset: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """The place of every element in memory."""
    places = np.full((), offset, np.int64)
    for extent, step in zip(size, stride, strict=True):
        places = places[..., None] + np.arange(extent, dtype=np.int64) * step
    return places
