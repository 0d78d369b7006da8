"""Groupings: elements of a view that lie together in memory and on a tile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.errors import TensorError
from abele.graph import Graph, Tensor


def detect_innermost_grouping(graph: Graph, tensor: Tensor) -> int:
    """Elements of the last dimension that follow each other in memory and on one tile, everywhere in the tensor.

    Raises:
        TensorError: A scalar or an empty tensor.
    """
    if tensor.ndim == 0 or tensor.size == 0:
        raise TensorError(f"{tensor!r} has no innermost dimension to look at")
    return _grouping(graph, tensor, tensor.ndim - 1)


def detect_dim_groupings(graph: Graph, tensor: Tensor) -> list[tuple[int, int]]:
    """Dimensions whose elements lie together, innermost in memory first, each with how many of them.

    Dimensions of which no two elements lie together are left out.
    """
    found: list[tuple[int, int]] = []
    unit = 1
    while tensor.size > 1:
        size, dim = max((_grouping(graph, tensor, d, unit), d) for d in range(tensor.ndim))
        if size == 1:
            break
        found.append((dim, size))
        tensor = tensor.sub_sample(size, dim)
        unit *= size
    return found


def _grouping(graph: Graph, tensor: Tensor, dim: int, unit: int = 1) -> int:
    """Elements of ``dim`` that are ``unit`` apart in memory and on one tile, everywhere."""
    extent = tensor.shape[dim]
    if extent == 1:
        return 1
    last = tensor.moveaxis(dim, tensor.ndim - 1).reshape((tensor.size // extent, extent))
    addresses = last.addresses().reshape(-1, extent)
    tiles = graph.mapping_of(last.flatten()).tiles_of(np.arange(tensor.size)).reshape(-1, extent)
    goes_on = ((np.diff(addresses, axis=1) == unit) & (np.diff(tiles, axis=1) == 0)).all(axis=0)
    breaks = np.flatnonzero(~goes_on) + 1
    return int(np.gcd.reduce(np.append(breaks, extent)))


def factor_dims(tensor: Tensor, factors: Sequence[int], start: int = 0) -> Tensor:
    """``tensor`` with dimension ``start`` + i split by ``factors[i]``, the factors moved behind all split dimensions.

    Dimensions [a·f, b·g] with factors (f, g) become [a, b, f, g].

    Raises:
        TensorError: A factor does not divide its dimension, or there are more factors than dimensions.
    """
    count = len(factors)
    if start + count > tensor.ndim:
        raise TensorError(f"{count} factors from dimension {start} of {tensor!r}, which has {tensor.ndim}")
    for dim, factor in enumerate(factors, start):
        if factor < 1 or tensor.shape[dim] % factor:
            raise TensorError(f"the factor {factor} does not divide {tensor!r}, {tensor.shape[dim]} along {dim}")
    inner = tensor.shape[start : start + count]
    split = [n for extent, f in zip(inner, factors, strict=True) for n in (extent // f, f)]
    shape = (*tensor.shape[:start], *split, *tensor.shape[start + count :])
    pairs = range(start, start + 2 * count)
    order = (*range(start), *pairs[::2], *pairs[1::2], *range(start + 2 * count, len(shape)))
    return tensor.reshape(shape).transpose(order)


def unfactor_dims(tensor: Tensor, count: int, start: int = 0) -> Tensor:
    """The inverse of :func:`factor_dims` for ``count`` factors.

    Raises:
        TensorError: Fewer than twice as many dimensions.
    """
    if start + 2 * count > tensor.ndim:
        raise TensorError(f"{count} factored dimensions from {start} on of {tensor!r}, which has {tensor.ndim}")
    pairs = [d for i in range(count) for d in (start + i, start + count + i)]
    order = (*range(start), *pairs, *range(start + 2 * count, tensor.ndim))
    shape = tensor.shape
    joined = [shape[start + i] * shape[start + count + i] for i in range(count)]
    return tensor.transpose(order).reshape((*shape[:start], *joined, *shape[start + 2 * count :]))
