"""Primitives that move elements without a look at them: views, and what puts arrays together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from abele.frontends.jaxpr.registry import PrimitiveCall, primitive
from abele.frontends.jaxpr.types import element_type, is_key
from abele.network import Value
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
        value = build.slice_(call.net, value, dim, begin, end, strides[dim] if strides is not None else 1)
    return value


@primitive("concatenate")
def concatenate(call: PrimitiveCall, *values: Value, dimension: int) -> Value:
    """The values after each other along a dimension."""
    return build.concat(call.net, values, dimension)


@primitive("split")
def split(call: PrimitiveCall, value: Value, *, sizes: Sequence[int], axis: int) -> tuple[Value, ...]:
    """Parts of the value along a dimension."""
    ends = np.cumsum(sizes).tolist()
    return tuple(build.slice_(call.net, value, axis, end - size, end) for end, size in zip(ends, sizes, strict=True))


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
