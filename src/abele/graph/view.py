"""The algebra of views: boxes of a tensor, each a strided block of one variable.

A view is an ordered set of blocks. A block fills a box of the view's index space; within the box, every dimension is
a list of *factors* ``(extent, stride)``, outermost first, so that a dimension may run over several dimensions of the
variable (the channels of a ``[C1, B, H, W, C0]`` variable, say). All operations here work on blocks alone and move no
data; an operation that would need unbounded blocks raises :class:`NotStridedError` and the caller falls back on
explicit addresses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from abele.graph.intervals import Int64
from abele.graph.variable import Variable

Factor = tuple[int, int]
Factors = tuple[Factor, ...]
T = TypeVar("T")


class NotStridedError(Exception):
    """The result is no small set of strided blocks."""


@dataclass(frozen=True, slots=True)
class Block:
    """A box of a view that one strided block of a variable fills.

    Attributes:
        variable: The storage.
        offset: Element of the variable at the box's first corner.
        origin: The box's first corner in the view, one number a dimension.
        factors: Per dimension, extents and strides in elements of the variable, outermost first.
    """

    variable: Variable
    offset: int
    origin: tuple[int, ...]
    factors: tuple[Factors, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """Size of the box along each dimension."""
        return tuple(extent_of(f) for f in self.factors)

    @property
    def size(self) -> int:
        """Elements in the box."""
        return math.prod(self.extents)


def extent_of(factors: Factors) -> int:
    """Indices that a dimension with these factors has."""
    return math.prod(extent for extent, _ in factors)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides of a shape, in elements."""
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * shape[d + 1]
    return tuple(strides)


def whole(variable: Variable) -> Block:
    """The block that is all of a variable."""
    factors = tuple(((n, s),) for n, s in zip(variable.shape, row_major(variable.shape), strict=True))
    return Block(variable, 0, (0,) * len(variable.shape), factors)


def simplified(factors: Factors) -> Factors:
    """The same index map with unit factors dropped and mergeable neighbours merged."""
    result: list[Factor] = []
    for extent, stride in factors:
        if extent == 1:
            continue
        if result and result[-1][1] == extent * stride:
            result[-1] = (result[-1][0] * extent, stride)
        else:
            result.append((extent, stride))
    return tuple(result) or ((1, 0),)


def lookup(factors: Factors) -> Int64:
    """Offset of every index along a dimension, int64[extent]."""
    table = np.zeros(1, dtype=np.int64)
    for extent, stride in factors:
        table = (table[:, None] + np.arange(extent, dtype=np.int64) * stride).reshape(-1)
    return table


def cut(factors: Factors, begin: int, end: int) -> Iterator[tuple[int, Factors, int]]:
    """Pieces of ``[begin, end)`` along a dimension: length, factors and offset of each, in order."""
    if end <= begin:
        return
    stride, rest = factors[0][1], factors[1:]
    if not rest:
        yield end - begin, ((end - begin, stride),), begin * stride
        return
    inner = extent_of(rest)
    first, last = begin // inner, (end - 1) // inner
    if first == last:
        for length, piece, offset in cut(rest, begin - first * inner, end - first * inner):
            yield length, piece, offset + first * stride
        return
    if begin % inner:
        yield from cut(factors, begin, (first + 1) * inner)
        first += 1
    whole_end = end // inner
    if whole_end > first:
        count = whole_end - first
        yield count * inner, ((count, stride), *rest), first * stride
    if end % inner:
        yield from cut(factors, whole_end * inner, end)


def sliced(blocks: Sequence[Block], dim: int, begin: int, end: int) -> tuple[Block, ...]:
    """The blocks of ``view[..., begin:end, ...]`` along ``dim``."""
    result: list[Block] = []
    for block in blocks:
        at = block.origin[dim]
        low, high = max(begin - at, 0), min(end - at, extent_of(block.factors[dim]))
        position = at + low - begin
        for length, factors, offset in cut(block.factors[dim], low, high):
            result.append(
                replace(
                    block,
                    offset=block.offset + offset,
                    origin=_put(block.origin, dim, position),
                    factors=_put(block.factors, dim, simplified(factors)),
                )
            )
            position += length
    return tuple(result)


def reversed_along(blocks: Sequence[Block], dim: int, extent: int) -> tuple[Block, ...]:
    """The blocks of the view with ``dim`` (of ``extent`` indices) reversed."""
    result = []
    for block in blocks:
        factors = block.factors[dim]
        shift = sum((n - 1) * s for n, s in factors)
        origin = extent - block.origin[dim] - extent_of(factors)
        result.append(
            replace(
                block,
                offset=block.offset + shift,
                origin=_put(block.origin, dim, origin),
                factors=_put(block.factors, dim, tuple((n, -s) for n, s in factors)),
            )
        )
    return tuple(result)


def strided(blocks: Sequence[Block], dim: int, step: int) -> tuple[Block, ...]:
    """The blocks of ``view[..., ::step, ...]`` for a positive step."""
    result = []
    for block in blocks:
        if len(block.factors[dim]) != 1:
            raise NotStridedError
        ((extent, stride),) = block.factors[dim]
        skip = -block.origin[dim] % step
        if skip >= extent:
            continue
        count = (extent - skip + step - 1) // step
        result.append(
            replace(
                block,
                offset=block.offset + skip * stride,
                origin=_put(block.origin, dim, (block.origin[dim] + skip) // step),
                factors=_put(block.factors, dim, ((count, stride * step),)),
            )
        )
    return tuple(result)


def permuted(blocks: Sequence[Block], order: Sequence[int]) -> tuple[Block, ...]:
    """The blocks with dimensions reordered: new dimension i is old dimension ``order[i]``."""
    return tuple(
        replace(b, origin=tuple(b.origin[d] for d in order), factors=tuple(b.factors[d] for d in order)) for b in blocks
    )


def expanded(blocks: Sequence[Block], dim: int, extent: int = 1) -> tuple[Block, ...]:
    """The blocks with a new dimension before ``dim``, broadcast to ``extent`` indices."""
    return tuple(
        replace(
            b,
            origin=(*b.origin[:dim], 0, *b.origin[dim:]),
            factors=(*b.factors[:dim], ((extent, 0),), *b.factors[dim:]),
        )
        for b in blocks
    )


def dropped(blocks: Sequence[Block], dim: int) -> tuple[Block, ...]:
    """The blocks without a dimension of one index."""
    return tuple(
        replace(b, origin=b.origin[:dim] + b.origin[dim + 1 :], factors=b.factors[:dim] + b.factors[dim + 1 :])
        for b in blocks
    )


def shifted(blocks: Sequence[Block], dim: int, by: int) -> tuple[Block, ...]:
    """The blocks moved along a dimension of the view, as concatenation needs."""
    return tuple(replace(b, origin=_put(b.origin, dim, b.origin[dim] + by)) for b in blocks)


def reshaped(blocks: Sequence[Block], old: Sequence[int], new: Sequence[int]) -> tuple[Block, ...]:
    """The blocks of the view reshaped from ``old`` to ``new``.

    Raises:
        NotStridedError: A block would fall apart.
    """
    groups = list(_matching_groups(old, new))
    return tuple(_reshaped_block(block, old, new, groups) for block in blocks)


def _matching_groups(old: Sequence[int], new: Sequence[int]) -> Iterator[tuple[range, range]]:
    """Smallest runs of old and new dimensions that hold the same number of indices."""
    i = j = 0
    while i < len(old) or j < len(new):
        i0, j0 = i, j
        left = right = 1
        if i < len(old):
            left, i = old[i], i + 1
        if j < len(new):
            right, j = new[j], j + 1
        while left != right:
            if left < right:
                left, i = left * old[i], i + 1
            else:
                right, j = right * new[j], j + 1
        while i < len(old) and old[i] == 1 and j == len(new):
            i += 1
        while j < len(new) and new[j] == 1 and i == len(old):
            j += 1
        yield range(i0, i), range(j0, j)


def _reshaped_block(
    block: Block, old: Sequence[int], new: Sequence[int], groups: Sequence[tuple[range, range]]
) -> Block:
    origin: list[int] = []
    factors: list[Factors] = []
    for before, after in groups:
        extents = [extent_of(block.factors[d]) for d in before]
        start, count = _flat_range([old[d] for d in before], [block.origin[d] for d in before], extents)
        fine = tuple(f for d in before for f in block.factors[d])
        shape = [new[d] for d in after]
        corner, local = _box_of_range(start, count, shape)
        origin.extend(corner)
        factors.extend(_regrouped(fine, local))
    return replace(block, origin=tuple(origin), factors=tuple(factors))


def _flat_range(shape: Sequence[int], origin: Sequence[int], extents: Sequence[int]) -> tuple[int, int]:
    """First index and count of a box in the flattened index space, if the box is one range there."""
    strides = row_major(shape)
    start = sum(o * s for o, s in zip(origin, strides, strict=True))
    count = math.prod(extents)
    partial = next((d for d, e in enumerate(extents) if e != 1), len(extents))
    if any(extents[d] != shape[d] for d in range(partial + 1, len(extents))):
        raise NotStridedError
    return start, count


def _box_of_range(start: int, count: int, shape: Sequence[int]) -> tuple[list[int], list[int]]:
    """Corner and extents of a flat range in ``shape``, if the range is a box there."""
    corner: list[int] = []
    local: list[int] = []
    for extent, stride in zip(shape, row_major(shape), strict=True):
        corner.append(start // stride)
        start %= stride
        if count >= stride:
            if count % stride or start:
                raise NotStridedError
            local.append(count // stride)
            count = stride
        else:
            local.append(1)
        if corner[-1] + local[-1] > extent:
            raise NotStridedError
    return corner, local


def _regrouped(fine: Factors, shape: Sequence[int]) -> list[Factors]:
    """Factors of each dimension of ``shape`` when ``fine`` factors run through it in row-major order."""
    stack = [f for f in fine if f[0] != 1]
    result: list[Factors] = []
    for extent in reversed(shape):
        taken: list[Factor] = []
        left = extent
        while left > 1:
            n, stride = stack.pop()
            if left % n == 0:
                taken.append((n, stride))
                left //= n
            elif n % left == 0:
                taken.append((left, stride))
                stack.append((n // left, stride * left))
                left = 1
            else:
                raise NotStridedError
        result.append(simplified(tuple(reversed(taken))) if taken else ((1, 0),))
    return result[::-1]


def addresses(blocks: Sequence[Block], shape: Sequence[int]) -> Int64:
    """Global address of every element of the view, int64[shape]."""
    result = np.empty(tuple(shape), dtype=np.int64)
    for block in blocks:
        box = tuple(slice(o, o + e) for o, e in zip(block.origin, block.extents, strict=True))
        grid = np.array(block.variable.base + block.offset, dtype=np.int64)
        for d, factors in enumerate(block.factors):
            table = lookup(factors)
            grid = grid + table.reshape((-1,) + (1,) * (len(shape) - d - 1))
        result[box] = grid
    return result


def flat_runs(blocks: Sequence[Block], shape: Sequence[int]) -> tuple[Int64, Int64]:
    """Begins and lengths of the view's contiguous runs, in the view's row-major order (neighbours not yet joined)."""
    begins, lengths, positions = [], [], []
    for block in blocks:
        begin, length, position = _block_runs(block, shape)
        begins.append(begin)
        lengths.append(np.full(len(begin), length, dtype=np.int64))
        positions.append(position)
    if not begins:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty
    begin, lengths_all = np.concatenate(begins), np.concatenate(lengths)
    if len(blocks) > 1:
        order = np.argsort(np.concatenate(positions), kind="stable")
        begin, lengths_all = begin[order], lengths_all[order]
    return begin, lengths_all


def _block_runs(block: Block, shape: Sequence[int]) -> tuple[Int64, int, Int64]:
    """Begins, common length and view positions of one block's runs."""
    view_strides = row_major(shape)
    fine: list[tuple[int, int, int]] = []
    for d, factors in enumerate(block.factors):
        inner = extent_of(factors)
        for extent, stride in factors:
            inner //= extent
            if extent != 1:
                fine.append((extent, stride, inner * view_strides[d]))
    merged: list[tuple[int, int, int]] = []
    for extent, stride, step in fine:
        if merged and merged[-1][1] == extent * stride and merged[-1][2] == extent * step:
            merged[-1] = (merged[-1][0] * extent, stride, step)
        else:
            merged.append((extent, stride, step))
    length = 1
    if merged and merged[-1][1] == 1 and merged[-1][2] == 1:
        length = merged.pop()[0]
    begin = np.array([block.variable.base + block.offset], dtype=np.int64)
    position = np.array([sum(o * s for o, s in zip(block.origin, view_strides, strict=True))], dtype=np.int64)
    for extent, stride, step in merged:
        index = np.arange(extent, dtype=np.int64)
        begin = (begin[:, None] + index * stride).reshape(-1)
        position = (position[:, None] + index * step).reshape(-1)
    if block.size == 0:
        begin, position = begin[:0], position[:0]
    return begin, length, position


def _put(items: tuple[T, ...], at: int, item: T) -> tuple[T, ...]:
    return (*items[:at], item, *items[at + 1 :])
