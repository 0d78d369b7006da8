"""Many blocks, as arrays: views pieced together from hundreds of parts stay quick to slice, turn and join."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from abele.arrays import Int64
from abele.graph import block as algebra
from abele.graph.block import Factor, NotStridedError, StridedBlock
from abele.graph.block_list import BlockList, in_order
from abele.graph.content import Content
from abele.graph.intervals import expand
from abele.graph.variable import Variable
from abele.layout import matching_groups, row_major

FEW = 12
"""Blocks up to which a tuple is quicker than arrays."""

Columns = tuple[Int64, ...]


class BlockTable(Content):
    """k blocks of a view with d dimensions.

    Args:
        pool: The variables that occur.
        owner: Variable of each block in ``pool``, int64[k].
        offset: Element of the variable at its first index, int64[k].
        origin: For each dimension, its first index in the view, int64[k].
        extent: For each dimension, extents of its factors, int64[k, f]; 1 where a block has fewer.
        step: For each dimension, their steps in the view, int64[k, f]; 1 where there is none.
        stride: For each dimension, their strides in the variable, int64[k, f]; 0 where there is none.
        is_cut: True if they are what a reshape or a step left of larger ones.
    """

    __slots__ = ("_is_cut", "extent", "offset", "origin", "owner", "pool", "step", "stride")

    def __init__(
        self,
        pool: tuple[Variable, ...],
        owner: Int64,
        offset: Int64,
        origin: Columns,
        extent: Columns,
        step: Columns,
        stride: Columns,
        is_cut: bool = False,
    ) -> None:
        self.pool, self.owner, self.offset, self.origin = pool, owner, offset, origin
        self.extent, self.step, self.stride, self._is_cut = extent, step, stride, is_cut

    @staticmethod
    def of(blocks: Sequence[StridedBlock], is_cut: bool = False) -> BlockTable:
        """The table of blocks one by one."""
        pool = tuple(dict.fromkeys([b.variable for b in blocks]))
        number = {variable: i for i, variable in enumerate(pool)}
        owner = np.array([number[b.variable] for b in blocks], dtype=np.int64)
        offset = np.array([b.offset for b in blocks], dtype=np.int64)
        corners = np.array([b.origin for b in blocks], dtype=np.int64)
        origin = tuple(np.ascontiguousarray(column) for column in corners.T)
        columns: tuple[list[Int64], ...] = ([], [], [])
        for d in range(len(blocks[0].origin)):
            width = max(1, max(len(b.factors[d]) for b in blocks))
            missing: list[tuple[Factor, ...]] = [((1, 1, 0),) * n for n in range(width + 1)]
            table = np.array([missing[width - len(b.factors[d])] + b.factors[d] for b in blocks], dtype=np.int64)
            for i, column in enumerate(columns):
                column.append(np.ascontiguousarray(table[:, :, i]))
        extent, step, stride = columns
        return BlockTable(
            pool=pool,
            owner=owner,
            offset=offset,
            origin=origin,
            extent=tuple(extent),
            step=tuple(step),
            stride=tuple(stride),
            is_cut=is_cut,
        )

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def blocks(self) -> tuple[StridedBlock, ...]:
        """See :class:`Content`."""
        factors = []
        for n, v, s in zip(self.extent, self.step, self.stride, strict=True):
            rows = np.stack([n, v, s], axis=2).tolist()
            factors.append([tuple([(a, b, c) for a, b, c in row if a != 1]) for row in rows])
        origins = [o.tolist() for o in self.origin]
        places = zip(self.owner.tolist(), self.offset.tolist(), zip(*origins, strict=True), strict=True)
        return tuple(
            StridedBlock(self.pool[owner], offset, at, f)
            for (owner, offset, at), f in zip(places, zip(*factors, strict=True), strict=True)
        )

    @property
    def is_cut(self) -> bool:
        """See :class:`Content`."""
        return self._is_cut

    def _few(self) -> BlockList:
        return BlockList(self.blocks, self._is_cut)

    def take(self, rows: Int64) -> BlockTable:
        """Some of the blocks."""
        extent, step, stride = (tuple(c[rows] for c in columns) for columns in (self.extent, self.step, self.stride))
        origin = tuple(o[rows] for o in self.origin)
        return BlockTable(
            pool=self.pool,
            owner=self.owner[rows],
            offset=self.offset[rows],
            origin=origin,
            extent=extent,
            step=step,
            stride=stride,
            is_cut=self._is_cut,
        )

    def _changed(self, dim: int, offset: Int64, origin: Int64, extent: Int64, step: Int64, stride: Int64) -> BlockTable:
        """The table with one dimension replaced, and offsets."""
        return BlockTable(
            pool=self.pool,
            owner=self.owner,
            offset=offset,
            origin=algebra.put(self.origin, dim, origin),
            extent=algebra.put(self.extent, dim, extent),
            step=algebra.put(self.step, dim, step),
            stride=algebra.put(self.stride, dim, stride),
            is_cut=self._is_cut,
        )

    def changed(self, dim: int, extent: Int64, step: Int64, stride: Int64) -> BlockTable:
        """The table with another factor, one per block, along ``dim``; arrays int64[k]."""
        factor = (extent[:, None], step[:, None], stride[:, None])
        return self._changed(dim, self.offset, self.origin[dim], *factor)

    def spans(self, dim: int) -> Int64:
        """Indices from the first to the last of each block along ``dim``, int64[k]."""
        n, v = self.extent[dim], self.step[dim]
        if n.shape[1] == 1:
            return (n[:, 0] - 1) * v[:, 0] + 1
        return np.asarray(((n - 1) * v).sum(axis=1) + 1, dtype=np.int64)

    def sliced(self, dim: int, begin: int, end: int) -> Content:
        """See :class:`Content`."""
        at, n, v, s = self.origin[dim], self.extent[dim], self.step[dim], self.stride[dim]
        if n.shape[1] > 1:
            return self._sliced_deep(dim, begin, end)
        low, high = begin - at, end - at
        # First and last index of each block inside [begin, end), all blocks at once.
        first = np.maximum(-(-low // v[:, 0]), 0)
        last = np.minimum((high - 1) // v[:, 0] + 1, n[:, 0])
        count = last - first
        offset, place = self.offset + first * s[:, 0], at + first * v[:, 0] - begin
        single = count[:, None] == 1
        if single.any():
            v, s = np.where(single, 1, v), np.where(single, 0, s)
        moved = self._changed(dim, offset, place, count[:, None], v, s)
        return compact(moved if count.min() > 0 else moved.take(np.flatnonzero(count > 0)))

    def _sliced_deep(self, dim: int, begin: int, end: int) -> Content:
        low, high, span = begin - self.origin[dim], end - self.origin[dim], self.spans(dim)
        # Blocks of several factors: those wholly inside or outside are handled as arrays, only those on the border one
        # by one.
        inside = (low <= 0) & (high >= span)
        border = ~inside & (low < span) & (high > 0)
        kept = self.take(np.flatnonzero(inside)).shifted(dim, -begin)
        if not border.any():
            return compact(kept)
        pieces = self.take(np.flatnonzero(border))._few().sliced(dim, begin, end)
        return packed((*kept.blocks, *(pieces.blocks or ())), self._is_cut)

    def reversed(self, dim: int, extent: int) -> Content:
        """See :class:`Content`."""
        n, s = self.extent[dim], self.stride[dim]
        place = extent - self.origin[dim] - self.spans(dim)
        return self._changed(dim, self.offset + ((n - 1) * s).sum(axis=1), place, n, self.step[dim], -s)

    def sampled(self, dim: int, every: int) -> Content:
        """See :class:`Content`."""
        result = self._few().sampled(dim, every)
        return packed(result.blocks or (), result.is_cut)

    def _dims(self, order: Sequence[int]) -> BlockTable:
        origin, extent, step, stride = (
            tuple([columns[d] for d in order]) for columns in (self.origin, self.extent, self.step, self.stride)
        )
        return BlockTable(
            pool=self.pool,
            owner=self.owner,
            offset=self.offset,
            origin=origin,
            extent=extent,
            step=step,
            stride=stride,
            is_cut=self._is_cut,
        )

    def permuted(self, order: Sequence[int]) -> Content:
        """See :class:`Content`."""
        return self._dims(order)

    def expanded(self, dim: int, extent: int = 1) -> Content:
        """See :class:`Content`."""
        k = len(self)
        zero, one = np.zeros((k, 1), np.int64), np.ones((k, 1), np.int64)

        def insert(columns: Columns, new: Int64) -> Columns:
            return (*columns[:dim], new, *columns[dim:])

        return BlockTable(
            pool=self.pool,
            owner=self.owner,
            offset=self.offset,
            origin=insert(self.origin, zero[:, 0]),
            extent=insert(self.extent, one * extent),
            step=insert(self.step, one),
            stride=insert(self.stride, zero),
            is_cut=self._is_cut,
        )

    def dropped(self, dim: int) -> Content:
        """See :class:`Content`."""
        if len(self.origin) == 1:
            return BlockList((StridedBlock(self.pool[int(self.owner[0])], int(self.offset[0]), (), ()),))
        return self._dims([d for d in range(len(self.origin)) if d != dim])

    def shifted(self, dim: int, by: int) -> BlockTable:
        """See :class:`Content`."""
        at = self.origin[dim] + by
        return self._changed(dim, self.offset, at, self.extent[dim], self.step[dim], self.stride[dim])

    def reshaped(self, old: Sequence[int], new: Sequence[int], most: int) -> Content:
        """See :class:`Content`."""
        groups = list(matching_groups(old, new))
        if any(len(after) != 1 or not before for before, after in groups):
            if len(self) > most:
                raise NotStridedError
            result = self._few().reshaped(old, new, most)
            return packed(result.blocks or (), result.is_cut)
        return self._flattened(old, groups)

    def _flattened(self, old: Sequence[int], groups: Sequence[tuple[range, range]]) -> BlockTable:
        """The table with groups of dimensions each joined into one."""
        origin, extent, step, stride = [], [], [], []
        for before, _ in groups:
            inner = row_major([old[d] for d in before])
            origin.append(sum((self.origin[d] * i for d, i in zip(before, inner, strict=True)), np.int64(0)))
            used = [(d, i) for d, i in zip(before, inner, strict=True) if (self.extent[d] != 1).any()]
            used = used or [(before[0], 1)]
            extent.append(np.concatenate([self.extent[d] for d, _ in used], axis=1))
            step.append(np.concatenate([np.where(self.extent[d] == 1, 1, self.step[d] * i) for d, i in used], axis=1))
            stride.append(np.concatenate([self.stride[d] for d, _ in used], axis=1))
        columns = (np.asarray(o, dtype=np.int64) for o in origin)
        return BlockTable(
            pool=self.pool,
            owner=self.owner,
            offset=self.offset,
            origin=tuple(columns),
            extent=tuple(extent),
            step=tuple(step),
            stride=tuple(stride),
            is_cut=True,
        )

    def form(self, number: Callable[[Variable], int]) -> Hashable:
        """See :class:`Content`."""
        columns = (self.owner, self.offset, *self.origin, *self.extent, *self.step, *self.stride)
        pool = tuple(map(number, self.pool))
        return self._is_cut, len(self.origin), pool, tuple((c.shape, c.tobytes()) for c in columns)

    def with_variables(self, other: Callable[[Variable], Variable], moved: Callable[[Int64], Int64]) -> Content:
        """See :class:`Content`."""
        pool, places = tuple(map(other, self.pool)), (self.owner, self.offset, self.origin)
        return BlockTable(pool, *places, self.extent, self.step, self.stride, self._is_cut)

    def addresses(self, shape: Sequence[int]) -> Int64:
        """See :class:`Content`."""
        return expand(*self.runs(shape)).reshape(tuple(shape))

    def runs(self, shape: Sequence[int]) -> tuple[Int64, Int64]:
        """See :class:`Content`."""
        strides = row_major(shape)
        position = np.asarray(sum(o * s for o, s in zip(self.origin, strides, strict=True)), dtype=np.int64)
        reach, size, straight = np.ones_like(position), np.ones_like(position), np.ones(len(self), dtype=bool)
        for n, v, s, unit in zip(self.extent, self.step, self.stride, strides, strict=True):
            reach += ((n - 1) * v * unit).sum(axis=1)
            size *= n.prod(axis=1)
            # A block whose elements lie in memory as they do in the view, without gaps, is one run.
            straight &= ((n == 1) | (s == v * unit)).all(axis=1)
        straight &= reach == size
        begin = self._bases() + self.offset
        parts = [(begin[straight], size[straight], position[straight])]
        parts += [algebra.runs(b, shape) for b in self.take(np.flatnonzero(~straight)).blocks]
        return in_order(parts)

    def _bases(self) -> Int64:
        return np.array([v.base for v in self.pool], dtype=np.int64)[self.owner]

    def footprint(self) -> tuple[Int64, Int64, bool]:
        """See :class:`Content`."""
        return self._few().footprint()

    @property
    def variables(self) -> tuple[Variable, ...]:
        """See :class:`Content`."""
        found, first = np.unique(self.owner, return_index=True)
        return tuple(self.pool[i] for i in found[np.argsort(first)].tolist())

    @property
    def bounds(self) -> tuple[int, int]:
        """See :class:`Content`."""
        low = high = self._bases() + self.offset
        for n, s in zip(self.extent, self.stride, strict=True):
            reach = (n - 1) * s
            low, high = low + np.minimum(reach, 0).sum(axis=1), high + np.maximum(reach, 0).sum(axis=1)
        return int(low.min()), int(high.max()) + 1


def packed(blocks: tuple[StridedBlock, ...], is_cut: bool) -> Content:
    """Blocks as a tuple or as a table, whichever is quicker."""
    return BlockList(blocks, is_cut) if len(blocks) <= FEW or not blocks[0].origin else BlockTable.of(blocks, is_cut)


def compact(table: BlockTable) -> Content:
    """A table that may have become small."""
    return table if len(table) > FEW // 2 else BlockList(table.blocks, table.is_cut)
