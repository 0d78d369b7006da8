"""Primitives that move elements without a look at them: views, and what puts arrays together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from abele.frontends.jaxpr.registry import PrimitiveCall, primitive
from abele.frontends.jaxpr.types import element_type, is_key
from abele.network import BlockBuilder, Value
from abele.network.ops import build


def _trailing(call: PrimitiveCall, value: Value) -> tuple[int, ...]:
    """Words of a key: they follow the dimensions that JAX knows of."""
    return value.shape[len(call.avals[0].shape) :] if is_key(call.avals[0].dtype) else ()


@primitive("broadcast_in_dim")
def broadcast_in_dim(
    call: PrimitiveCall, value: Value, *, shape: Sequence[int], broadcast_dimensions: Sequence[int]
) -> Value:
    """The value repeated to a shape, its dimensions at the given places."""
    words = _trailing(call, value)
    extents = [1] * len(shape)
    for own, place in enumerate(broadcast_dimensions):
        extents[place] = value.shape[own]
    return build.expand(call.net, build.reshape(call.net, value, (*extents, *words)), (*shape, *words))


@primitive("reshape")
def reshape(call: PrimitiveCall, value: Value, *, dimensions: Sequence[int] | None) -> Value:
    """The same elements in another shape, its dimensions brought into an order before."""
    if dimensions is not None:
        value = build.permute(call.net, value, (*dimensions, *range(len(dimensions), value.ndim)))
    return build.reshape(call.net, value, call.shape)


@primitive("squeeze", "expand_dims")
def squeeze(call: PrimitiveCall, value: Value) -> Value:
    """The same elements with more or fewer dimensions of one index."""
    return build.reshape(call.net, value, call.shape)


@primitive("transpose")
def transpose(call: PrimitiveCall, value: Value, *, permutation: Sequence[int]) -> Value:
    """The value with its dimensions in another order."""
    return build.permute(call.net, value, (*permutation, *range(len(permutation), value.ndim)))


@primitive("slice")
def slice_(
    call: PrimitiveCall,
    value: Value,
    *,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None,
) -> Value:
    """Some of the indices of each dimension."""
    for dim, (begin, end) in enumerate(zip(start_indices, limit_indices, strict=True)):
        step = strides[dim] if strides is not None else 1
        value = build.slice_(call.net, value, dim, begin, end, step)
    return value


@primitive("concatenate")
def concatenate(call: PrimitiveCall, *values: Value, dimension: int) -> Value:
    """The values after each other along a dimension."""
    filled = [v for v in values if v.shape[dimension]]
    return build.concat(call.net, filled or values[:1], dimension)


@primitive("stack")
def stack(call: PrimitiveCall, *values: Value, axis: int) -> Value:
    """The values side by side along a new dimension."""
    shape = (*values[0].shape[:axis], 1, *values[0].shape[axis:])
    return build.concat(call.net, [build.reshape(call.net, v, shape) for v in values], axis)


@primitive("unstack")
def unstack(call: PrimitiveCall, value: Value, *, axis: int) -> tuple[Value, ...]:
    """The value at each index of a dimension."""
    parts = [build.slice_(call.net, value, axis, i, i + 1) for i in range(value.shape[axis])]
    shape = (*value.shape[:axis], *value.shape[axis + 1 :])
    return tuple(build.reshape(call.net, part, shape) for part in parts)


@primitive("split")
def split(call: PrimitiveCall, value: Value, *, sizes: Sequence[int], axis: int) -> tuple[Value, ...]:
    """Parts of the value along a dimension."""
    ends = np.cumsum(sizes).tolist()
    return tuple(build.slice_(call.net, value, axis, end - size, end) for end, size in zip(ends, sizes, strict=True))


@primitive("tile")
def tile(call: PrimitiveCall, value: Value, *, reps: Sequence[int]) -> Value:
    """The value several times along each dimension."""
    words = _trailing(call, value)
    rank = value.ndim - len(words)
    known = value.shape[:rank]
    apart = [n for extent in known for n in (1, extent)]
    repeated = [n for times, extent in zip(reps, known, strict=True) for n in (times, extent)]
    spread = build.expand(call.net, build.reshape(call.net, value, (*apart, *words)), (*repeated, *words))
    return build.reshape(call.net, spread, call.shape)


@primitive("pad")
def pad(call: PrimitiveCall, value: Value, fill: Value, *, padding_config: Sequence[tuple[int, int, int]]) -> Value:
    """The value with others around it and between its elements; a negative number takes elements away."""
    for dim, (low, high, interior) in enumerate(padding_config):
        value = _padded(call.net, value, fill, dim, low=low, high=high, interior=interior)
    return value


def _padded(net: BlockBuilder, value: Value, fill: Value, dim: int, *, low: int, high: int, interior: int) -> Value:
    before, extent, after = value.shape[:dim], value.shape[dim], value.shape[dim + 1 :]
    if interior and extent > 1:
        apart = build.reshape(net, value, (*before, extent, 1, *after))
        between = _repeated(net, fill, (*before, extent, interior, *after))
        spread = build.reshape(net, build.concat(net, [apart, between], dim + 1), (*before, -1, *after))
        value = build.slice_(net, spread, dim, 0, (extent - 1) * (interior + 1) + 1)
    extent = value.shape[dim]
    begin, end = max(0, -low), min(extent, extent + high)
    if begin >= end:
        return _repeated(net, fill, (*before, low + extent + high, *after))
    around = [_repeated(net, fill, (*before, max(0, n), *after)) for n in (low, high)]
    parts = (around[0], build.slice_(net, value, dim, begin, end), around[1])
    return build.concat(net, [v for v in parts if v.shape[dim]], dim)


def _repeated(net: BlockBuilder, fill: Value, shape: Sequence[int]) -> Value:
    """A number, known or not, at every element."""
    known = net.contents(fill)
    if known is not None:
        return net.constant(np.broadcast_to(known.reshape(-1)[0], tuple(shape)), fill.dtype)
    return build.expand(net, fill, shape)


@primitive("rev")
def reverse(call: PrimitiveCall, value: Value, *, dimensions: Sequence[int]) -> Value:
    """The value with dimensions backwards."""
    return build.reverse(call.net, value, dimensions)


@primitive("iota")
def iota(call: PrimitiveCall, *sizes: Value, dtype: Any, shape: Sequence[int], dimension: int) -> Value:
    """The number of each index along a dimension."""
    extents = [n if d == dimension else 1 for d, n in enumerate(shape)]
    numbers = call.net.constant(np.arange(shape[dimension]).reshape(extents), element_type(dtype), "iota")
    return build.expand(call.net, numbers, shape)
