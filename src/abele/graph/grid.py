"""Many pieces of one variable in rows and columns: the form of a matrix after much slicing and joining.

The address of an element is a sum of one term per dimension, and each term is a piecewise linear function of the index.
So p pieces along one dimension and q along another take p + q numbers, not p x q blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from abele.arrays import Int64
from abele.graph import block as algebra
from abele.graph.block import Factors, NotStridedError, StridedBlock
from abele.graph.block_list import BlockList
from abele.graph.content import Content
from abele.graph.variable import Variable
from abele.layout import matching_groups

MOST_BLOCKS = 4096
"""Blocks up to which a grid is listed block by block."""


class Line(NamedTuple):
    """Address offsets of the indices of one dimension.

    Attributes:
        start: First index of each piece, int64[p], ascending from 0.
        offset: Address offset of the first index of each piece, int64[p].
        stride: Address step of each further index, int64[p].
        extent: Number of indices.
    """

    start: Int64
    offset: Int64
    stride: Int64
    extent: int

    @property
    def length(self) -> Int64:
        """Indices of each piece, int64[p]."""
        return np.append(self.start[1:], self.extent) - self.start

    @property
    def low(self) -> Int64:
        """Least that each piece adds, int64[p]."""
        return np.asarray(self.offset + np.minimum(0, (self.length - 1) * self.stride), dtype=np.int64)

    @property
    def high(self) -> Int64:
        """Most that each piece adds, int64[p]."""
        return np.asarray(self.offset + np.maximum(0, (self.length - 1) * self.stride), dtype=np.int64)

    def table(self) -> Int64:
        """Address offset of each index, int64[extent]."""
        length = self.length
        within = np.arange(self.extent, dtype=np.int64) - np.repeat(self.start, length)
        return np.repeat(self.offset, length) + within * np.repeat(self.stride, length)

    def sliced(self, begin: int, end: int) -> Line:
        """Indices ``[begin, end)``, at least one."""
        first = int(np.searchsorted(self.start, begin, side="right")) - 1
        last = int(np.searchsorted(self.start, end, side="left"))
        start, offset, stride = self.start[first:last] - begin, self.offset[first:last].copy(), self.stride[first:last]
        offset[0] -= start[0] * stride[0]
        start[0] = 0
        return Line(start, offset, stride, end - begin)

    def reversed(self) -> Line:
        """The indices backwards."""
        start = self.extent - self.start - self.length
        return Line(start[::-1], (self.offset + (self.length - 1) * self.stride)[::-1], -self.stride[::-1], self.extent)

    def sampled(self, every: int) -> Line:
        """Every ``every``-th index."""
        skip = -self.start % every
        keep = skip < self.length
        start, skip = self.start[keep], skip[keep]
        stride = self.stride[keep]
        extent = -(-self.extent // every)
        return Line((start + skip) // every, self.offset[keep] + skip * stride, stride * every, extent)

    def same_as(self, other: Line) -> bool:
        """True if both add the same."""
        return self is other or (
            self.extent == other.extent and all(np.array_equal(a, b) for a, b in zip(self[:3], other[:3], strict=True))
        )


class PieceGrid(Content):
    """Pieces of one variable in rows and columns.

    Args:
        variable: The storage.
        offset: Element of the variable to which the lines add.
        lines: One per dimension.
        is_cut: True if a reshape or a step left it.
    """

    __slots__ = ("_is_cut", "lines", "offset", "variable")

    def __init__(self, variable: Variable, offset: int, lines: tuple[Line, ...], is_cut: bool = False) -> None:
        self.variable, self.offset, self.lines, self._is_cut = variable, offset, lines, is_cut

    @staticmethod
    def of(blocks: Sequence[StridedBlock], is_cut: bool) -> PieceGrid | None:
        """Blocks that fill a view as a grid, or None when they are none."""
        first = min(blocks, key=lambda b: b.origin)
        lines, places = [], []
        for d in range(len(first.origin)):
            # Blocks along one edge of the view give the pieces of that dimension; the rest must then be their
            # combinations.
            pieces = {b.origin[d]: b for b in blocks if all(b.origin[e] == 0 for e in range(len(b.origin)) if e != d)}
            factors = [pieces[o].factors[d] for o in sorted(pieces)]
            if 0 not in pieces or any(len(f) > 1 or (f and f[0][1] != 1) for f in factors):
                return None
            offset = [pieces[o].offset - first.offset for o in sorted(pieces)]
            stride = [f[0][2] if f else 0 for f in factors]
            extent = max(pieces) + algebra.span_of(pieces[max(pieces)].factors[d])
            start, shifts, strides = (np.array(c, dtype=np.int64) for c in (sorted(pieces), offset, stride))
            lines.append(Line(start, shifts, strides, extent))
            places.append({o: (shift, pieces[o].factors[d]) for o, shift in zip(sorted(pieces), offset, strict=True)})
        # Every combination of pieces must be there, of one variable, at the sum of the shifts of its places.
        if math.prod(len(p) for p in places) != len(blocks):
            return None
        for b in blocks:
            found = [p.get(o) for p, o in zip(places, b.origin, strict=True)]
            if b.variable is not first.variable or any(
                f is None or f[1] != own for f, own in zip(found, b.factors, strict=True)
            ):
                return None
            if b.offset != first.offset + sum(f[0] for f in found if f is not None):
                return None
        return PieceGrid(first.variable, first.offset, tuple(lines), is_cut)

    def _with(self, lines: Sequence[Line], offset: int = 0) -> PieceGrid:
        return PieceGrid(self.variable, self.offset + offset, tuple(lines), self._is_cut)

    def _replaced(self, dim: int, line: Line) -> Content:
        """The grid with another line, in normal form: it adds nothing at its start; single indices have no stride."""
        shift = int(line.offset[0])
        single = (line.length == 1) & (line.stride != 0)
        stride = np.where(single, 0, line.stride) if single.any() else line.stride
        own = Line(line.start, line.offset - shift if shift else line.offset, stride, line.extent)
        return simplest(self._with(algebra.put(self.lines, dim, own), shift))

    @property
    def num_blocks(self) -> int:
        """Number of blocks in the grid."""
        return math.prod(len(line.start) for line in self.lines)

    def sliced(self, dim: int, begin: int, end: int) -> Content:
        """See :class:`Content`."""
        return self._replaced(dim, self.lines[dim].sliced(begin, end)) if end > begin else BlockList(())

    def reversed(self, dim: int, extent: int) -> Content:
        """See :class:`Content`."""
        return self._replaced(dim, self.lines[dim].reversed())

    def sampled(self, dim: int, every: int) -> Content:
        """See :class:`Content`."""
        return self._replaced(dim, self.lines[dim].sampled(every))

    def permuted(self, order: Sequence[int]) -> Content:
        """See :class:`Content`."""
        return self._with([self.lines[d] for d in order])

    def expanded(self, dim: int, extent: int = 1) -> Content:
        """See :class:`Content`."""
        zero = np.zeros(1, dtype=np.int64)
        return self._with((*self.lines[:dim], Line(zero, zero, zero, extent), *self.lines[dim:]))

    def dropped(self, dim: int) -> Content:
        """See :class:`Content`."""
        return self._with(self.lines[:dim] + self.lines[dim + 1 :], int(self.lines[dim].offset[0]))

    def shifted(self, dim: int, by: int) -> Content:
        """Not needed: a grid always fills a whole view."""
        raise AssertionError

    def reshaped(self, old: Sequence[int], new: Sequence[int], most: int) -> Content:
        """See :class:`Content`."""
        lines: list[Line] = []
        offset = 0
        zero = np.zeros(1, dtype=np.int64)
        for before, after in matching_groups(old, new):
            long_before, long_after = [d for d in before if old[d] != 1], [d for d in after if new[d] != 1]
            if len(long_before) > 1 or len(long_after) > 1:
                if self.num_blocks > min(most, MOST_BLOCKS):
                    raise NotStridedError
                return BlockList(self.all_blocks(), self._is_cut).reshaped(old, new, most)
            offset += sum(int(self.lines[d].offset[0]) for d in before if old[d] == 1)
            lines += [self.lines[long_before[0]] if new[d] != 1 else Line(zero, zero, zero, 1) for d in after]
        return self._with(lines, offset)

    def form(self, number: Callable[[Variable], int]) -> Hashable:
        """See :class:`Content`."""
        lines = tuple((n.extent, n.start.tobytes(), n.offset.tobytes(), n.stride.tobytes()) for n in self.lines)
        return self._is_cut, number(self.variable), self.offset, lines

    def with_variables(self, other: Callable[[Variable], Variable], moved: Callable[[Int64], Int64]) -> Content:
        """See :class:`Content`."""
        return PieceGrid(other(self.variable), self.offset, self.lines, self._is_cut)

    def addresses(self, shape: Sequence[int]) -> Int64:
        """See :class:`Content`."""
        result = np.array(self.variable.base + self.offset, dtype=np.int64)
        for d, line in enumerate(self.lines):
            result = result + line.table().reshape((-1,) + (1,) * (len(shape) - d - 1))
        return result

    def runs(self, shape: Sequence[int]) -> tuple[Int64, Int64]:
        """See :class:`Content`."""
        return self._runs(self.lines)

    def _runs(self, lines: Sequence[Line]) -> tuple[Int64, Int64]:
        """Runs of the dimensions in the given order."""
        begin = np.array([self.variable.base + self.offset], dtype=np.int64)
        for line in lines[:-1]:
            begin = (begin[:, None] + line.table()).reshape(-1)
        last = lines[-1]
        single = (last.stride != 1) & (last.length > 1)
        parts = np.where(single, last.length, 1)
        within = np.arange(int(parts.sum()), dtype=np.int64) - np.repeat(np.cumsum(parts) - parts, parts)
        inner = np.repeat(last.offset, parts) + within * np.repeat(last.stride, parts)
        length = np.repeat(np.where(single, 1, last.length), parts)
        return (begin[:, None] + inner).reshape(-1), np.tile(length, len(begin))

    def footprint(self) -> tuple[Int64, Int64, bool]:
        """See :class:`Content`."""
        flipped = [line if (line.stride >= 0).all() else _ascending(line) for line in self.lines]
        unit = max(range(len(flipped)), key=lambda d: int(flipped[d].length[flipped[d].stride == 1].sum()))
        return *self._runs([*flipped[:unit], *flipped[unit + 1 :], flipped[unit]]), False

    @property
    def blocks(self) -> tuple[StridedBlock, ...] | None:
        """See :class:`Content`; None where there are too many."""
        return self.all_blocks() if self.num_blocks <= MOST_BLOCKS else None

    def all_blocks(self) -> tuple[StridedBlock, ...]:
        """The blocks, one for each combination of pieces."""
        choices: list[list[tuple[int, int, Factors]]] = []
        for line in self.lines:
            rows = zip(*(c.tolist() for c in (line.start, line.offset, line.length, line.stride)), strict=True)
            choices.append([(start, shift, ((n, 1, s),) if n > 1 else ()) for start, shift, n, s in rows])
        return tuple(
            StridedBlock(
                self.variable,
                self.offset + sum(c[1] for c in chosen),
                tuple([c[0] for c in chosen]),
                tuple([c[2] for c in chosen]),
            )
            for chosen in product(*choices)
        )

    @property
    def variables(self) -> tuple[Variable, ...]:
        """See :class:`Content`."""
        return (self.variable,)

    @property
    def bounds(self) -> tuple[int, int]:
        """See :class:`Content`."""
        base = self.variable.base + self.offset
        low, high = (sum(int(edge) for edge in edges) for edges in zip(*map(_ends, self.lines), strict=True))
        return base + low, base + high + 1

    @property
    def is_surely_distinct(self) -> bool:
        """See :class:`Content`."""
        ranges = []
        for line in self.lines:
            if line.extent == 1:
                continue
            order = np.argsort(line.low, kind="stable")
            repeats = ((line.stride == 0) & (line.length > 1)).any()
            if repeats or (line.low[order][1:] <= line.high[order][:-1]).any():
                return False
            steps = np.concatenate([np.abs(line.stride[line.length > 1]), np.diff(line.offset)])
            ranges.append((int(np.gcd.reduce(steps)), int(line.high.max() - line.low.min())))
        # Dimensions by rising step: each must step over all that the smaller ones reach, or two indices may meet.
        ranges.sort()
        reach = 0
        for gap, width in ranges:
            if gap <= reach:
                return False
            reach += width
        return True

    @property
    def is_cut(self) -> bool:
        """See :class:`Content`."""
        return self._is_cut


def _ends(line: Line) -> tuple[int, int]:
    return int(line.low.min()), int(line.high.max())


def _ascending(line: Line) -> Line:
    """A line that adds the same numbers, with no piece descending."""
    return Line(line.start, line.low, np.abs(line.stride), line.extent)


def simplest(grid: PieceGrid) -> Content:
    """A grid that may have become a block or two."""
    return BlockList(grid.all_blocks(), grid.is_cut) if grid.num_blocks <= 4 else grid


def joined_grids(grids: Sequence[PieceGrid], dim: int) -> PieceGrid | None:
    """Grids after each other along ``dim`` as one, or None when the other dimensions differ."""
    first = grids[0]
    for a, b in pairwise(grids):
        if a.variable is not b.variable or len(a.lines) != len(b.lines):
            return None
        if any(not x.same_as(y) for d, (x, y) in enumerate(zip(a.lines, b.lines, strict=True)) if d != dim):
            return None
    lines = [g.lines[dim] for g in grids]
    ends = np.cumsum([line.extent for line in lines])
    start = np.concatenate([line.start + end - line.extent for line, end in zip(lines, ends, strict=True)])
    offset = np.concatenate([g.lines[dim].offset + g.offset - first.offset for g in grids])
    stride = np.concatenate([line.stride for line in lines])
    line = _merged(Line(start, offset, stride, int(ends[-1])))
    return PieceGrid(first.variable, first.offset, algebra.put(first.lines, dim, line), any(g.is_cut for g in grids))


def _merged(line: Line) -> Line:
    """A line with pieces joined that continue each other."""
    n = line.length
    width, uneven = np.divmod(np.diff(line.offset), n[:-1])
    alone = n == 1
    follows = (uneven == 0) & (alone[:-1] | (line.stride[:-1] == width)) & (alone[1:] | (line.stride[1:] == width))
    # A run goes on at one distance; where single indices would change it, it ends.
    follows[1:] &= ~(follows[1:] & follows[:-1] & (width[1:] != width[:-1]))
    if not follows.any():
        return line
    first = np.flatnonzero(np.append(True, ~follows))
    same = np.diff(np.append(line.start[first], line.extent)) == n[first]
    stride = np.where(same, line.stride[first], np.append(width, 0)[first])
    return Line(line.start[first], line.offset[first], stride, line.extent)
