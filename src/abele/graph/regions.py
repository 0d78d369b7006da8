"""Regions: the lists of element intervals that vertex fields are wired to, shared by all that use them.

Taking n boxes out of a view costs as much as there are different *patterns* of boxes, not n times a slice: two boxes
whose elements lie alike relative to their first give the same runs, shifted. The address of a first element is a sum of
one term per dimension, so all of them are found at once; the runs of a pattern are worked out for one box and repeated.
In a tiled matrix there is one pattern for the inside and one for each edge. Views of several blocks have no such sum:
there a box is ranges of the flattened view, and they are cut from the view's runs by binary search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import TensorError
from abele.graph.intervals import merge_adjacent, order_of
from abele.graph.tensor import Tensor
from abele.layout import Modes, offsets, row_major


@dataclass(frozen=True, eq=False)
class Regions:
    """A numbered set of regions; a region is an ordered list of intervals of the global element space.

    Attributes:
        ptr: Intervals of region r are ``ptr[r]`` to ``ptr[r + 1]``, int64[num + 1].
        begin: First global address of each interval, int64[k].
        length: Elements of each interval, int64[k].
        tensor: The view that the regions were taken from; its type and writability are the regions'.
    """

    ptr: Int64
    begin: Int64
    length: Int64
    tensor: Tensor

    @property
    def num(self) -> int:
        """Number of regions."""
        return len(self.ptr) - 1

    @property
    def counts(self) -> Int64:
        """Intervals of each region, int64[num]."""
        return np.diff(self.ptr)

    @property
    def sizes(self) -> Int64:
        """Elements of each region, int64[num]."""
        total = np.concatenate([[0], np.cumsum(self.length)])
        return np.asarray(total[self.ptr[1:]] - total[self.ptr[:-1]], dtype=np.int64)

    @property
    def row(self) -> Int64:
        """Region that each interval belongs to, int64[k]."""
        return np.repeat(np.arange(self.num, dtype=np.int64), self.counts)

    def take(self, index: Int64) -> Regions:
        """The regions ``index``, in that order."""
        counts = self.counts[index]
        ptr = np.concatenate([[0], np.cumsum(counts)])
        source = np.repeat(self.ptr[:-1][index] - ptr[:-1], counts) + np.arange(ptr[-1], dtype=np.int64)
        return Regions(ptr, self.begin[source], self.length[source], self.tensor)

    @staticmethod
    def concat(parts: Sequence[Regions]) -> Regions:
        """All regions of several sets, numbered on."""
        if len(parts) == 1:
            return parts[0]
        offsets = np.cumsum([0] + [len(p.begin) for p in parts])
        ptr = np.concatenate([[0]] + [p.ptr[1:] + o for p, o in zip(parts, offsets, strict=False)])
        return Regions(
            ptr.astype(np.int64),
            np.concatenate([p.begin for p in parts]),
            np.concatenate([p.length for p in parts]),
            parts[0].tensor,
        )

    @staticmethod
    def from_intervals(tensor: Tensor, row: Int64, begin: Int64, length: Int64, num: int) -> Regions:
        """Regions from intervals of the global space, with the region of each; neighbours are joined.

        Args:
            tensor: The view that the intervals belong to.
            row: Region of each interval, int64[k], non-decreasing.
            begin: Global begin of each, int64[k].
            length: Elements of each, int64[k].
            num: Number of regions; some may be empty.
        """
        keep = length > 0
        if not keep.all():
            row, begin, length = row[keep], begin[keep], length[keep]
        begin, length, joined = merge_adjacent(begin, length, row)
        assert joined is not None
        ptr = np.searchsorted(joined, np.arange(num + 1))
        return Regions(ptr.astype(np.int64), begin, length, tensor)

    def __repr__(self) -> str:
        return f"Regions({self.num} of {self.tensor!r}, {len(self.begin)} intervals)"


def whole(tensor: Tensor) -> Regions:
    """One region: all of a view."""
    begin, length = tensor.intervals()
    return Regions(np.array([0, len(begin)], dtype=np.int64), begin, length, tensor)


def wholes(tensors: Sequence[Tensor]) -> Regions:
    """One region for each of several views: all of it."""
    found = [t.content.single_run for t in tensors]
    if not all(found):
        return Regions.concat([whole(t) for t in tensors])
    runs_ = np.array(found, dtype=np.int64).reshape(-1, 2)
    begin, length = np.ascontiguousarray(runs_[:, 0]), np.ascontiguousarray(runs_[:, 1])
    return Regions(np.arange(len(tensors) + 1, dtype=np.int64), begin, length, tensors[0])


def rows(tensor: Tensor) -> Regions:
    """One region for each index of a view's first dimension."""
    n = tensor.shape[0]
    start = np.zeros((n, tensor.ndim), dtype=np.int64)
    start[:, 0] = np.arange(n)
    return boxes(tensor, start, np.array((1, *tensor.shape[1:]), dtype=np.int64))


def boxes(tensor: Tensor, start: npt.ArrayLike, size: npt.ArrayLike) -> Regions:
    """One region for each box of a view; its elements are in the view's row-major order.

    Args:
        tensor: A view of d dimensions.
        start: First corner of each box, int64[n, d].
        size: Extents of each box, int64[n, d], or int64[d] for all.

    Raises:
        TensorError: A box reaches outside the view.
    """
    starts = np.asarray(start, dtype=np.int64)
    if starts.ndim < 2:
        starts = starts.reshape(-1, max(tensor.ndim, 1))[:, : tensor.ndim]
    sizes = np.broadcast_to(np.asarray(size, dtype=np.int64), starts.shape)
    _check_inside(tensor, starts, sizes)
    n = len(starts)
    if n == 0:
        empty = np.empty(0, dtype=np.int64)
        return Regions(np.zeros(1, dtype=np.int64), empty, empty, tensor)
    strided = tensor.strided()
    if strided is None:
        return _cut_boxes(tensor, starts, sizes)
    axes = [_Axis.of(f) for f in strided.factors]
    base = np.full(n, strided.variable.base + strided.offset, dtype=np.int64)
    # First elements of all boxes: one term per dimension.
    for d, axis in enumerate(axes):
        base += axis.at(starts[:, d])
    # Runs of one box per pattern, then repeated for all boxes and shifted to their first elements.
    pattern, members = _patterns(axes, starts, sizes)
    parts = [_pattern_runs(axes, starts[first].tolist(), sizes[first].tolist()) for first in members]
    counts = np.array([len(p[0]) for p in parts], dtype=np.int64)
    begins = np.concatenate([p[0] for p in parts])
    lengths = np.concatenate([p[1] for p in parts])
    if bool((counts == 1).all()):
        return Regions(np.arange(n + 1, dtype=np.int64), begins[pattern] + base, lengths[pattern], tensor)
    ptr = np.concatenate([[0], np.cumsum(counts[pattern])])
    first_run = np.concatenate([[0], np.cumsum(counts)])[:-1]
    source = np.repeat(first_run[pattern] - ptr[:-1], counts[pattern]) + np.arange(ptr[-1], dtype=np.int64)
    begin = begins[source] + np.repeat(base, counts[pattern])
    return Regions(ptr, begin, lengths[source], tensor)


class _Axis(NamedTuple):
    """Offsets along one dimension of a view: a constant stride, or a table of them."""

    stride: int
    table: Int64 | None

    @staticmethod
    def of(strides: Modes) -> _Axis:
        if len(strides) == 1:
            return _Axis(strides[0][1], None)
        table = offsets(strides)
        step = int(table[1] - table[0]) if len(table) > 1 else 0
        return _Axis(step, None if bool((np.diff(table) == step).all()) else table)

    def at(self, index: Int64) -> Int64:
        """Offset of each index; an index one past the last is that of an empty box."""
        if self.table is None:
            return index * self.stride
        return np.asarray(self.table[np.minimum(index, len(self.table) - 1)])

    @property
    def is_run(self) -> bool:
        """True if neighbours along it are neighbours in memory."""
        return self.table is None and self.stride == 1

    def within(self, start: int, size: int) -> Int64:
        """Offsets of ``size`` indices from ``start`` on, relative to its own."""
        if self.table is None:
            return np.arange(size, dtype=np.int64) * self.stride
        return np.asarray(self.table[start : start + size] - self.table[start])


def _patterns(axes: list[_Axis], starts: Int64, sizes: Int64) -> tuple[Int64, Int64]:
    """Group boxes of equal layout relative to their first element: group of each box, one box of each group."""
    first, number = np.zeros(1, dtype=np.int64), np.zeros(len(starts), dtype=np.int64)
    for d, axis in enumerate(axes):
        # With a constant stride only the size matters; with a table, the differences within it do.
        alike = sizes[:, d] if axis.table is None else _alike(starts[:, d], sizes[:, d], axis.table)
        if (alike != alike[0]).any():
            first, number = _numbered(number * (int(alike.max()) + 1) + alike)
    return number, first


def _numbered(key: Int64) -> tuple[Int64, Int64]:
    """Numbers of equal keys, from 0: the first position of each number, and the number at each position."""
    order = order_of(key)
    fresh = np.append(True, np.diff(key[order]) != 0)
    number = np.empty_like(key)
    number[order] = np.cumsum(fresh) - 1
    return order[fresh], number


def _alike(start: Int64, size: Int64, table: Int64) -> Int64:
    """A number for each (start, size) along one dimension, equal where the relative offsets are equal."""
    first, number = _numbered(start * (len(table) + 1) + size)
    seen: dict[bytes, int] = {}
    numbers = np.empty(len(first), dtype=np.int64)
    for i, (at, n) in enumerate(zip(start[first], size[first], strict=True)):
        relative = table[at : at + n] - (table[at] if n else 0)
        numbers[i] = seen.setdefault(relative.tobytes(), len(seen))
    return numbers[number]


def _pattern_runs(axes: list[_Axis], start: list[int], size: list[int]) -> tuple[Int64, Int64]:
    """Runs of one box relative to its first element."""
    if 0 in size:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty
    grid = np.zeros(1, dtype=np.int64)
    is_run = bool(axes) and axes[-1].is_run
    outer = axes[:-1] if is_run else axes
    for axis, s, n in zip(outer, start, size, strict=False):
        grid = (grid[:, None] + axis.within(s, n)).reshape(-1)
    begin, length, _ = merge_adjacent(grid, np.full(len(grid), size[-1] if is_run else 1, dtype=np.int64))
    return begin, length


def _cut_boxes(tensor: Tensor, starts: Int64, sizes: Int64) -> Regions:
    """Boxes of a view of several blocks: each is some ranges of the flattened view, and these are cut from its runs."""
    strides = np.array(row_major(tensor.shape), dtype=np.int64)
    shapes, inverse = np.unique(sizes, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    positions, lengths, boxes_ = [], [], []
    for number, shape in enumerate(shapes):
        members = np.flatnonzero(inverse == number)
        outer, length = _ranges_of(shape, np.array(tensor.shape, dtype=np.int64), strides)
        positions.append(((starts[members] @ strides)[:, None] + outer).reshape(-1))
        lengths.append(np.full(len(members) * len(outer), length, dtype=np.int64))
        boxes_.append(np.repeat(members, len(outer)))
    row = np.concatenate(boxes_)
    # Back into the order of boxes, as boxes were handled by shape.
    order = order_of(row)
    position, length_all = np.concatenate(positions)[order], np.concatenate(lengths)[order]
    begin, pieces, source, _ = cut_runs(tensor, position, length_all)
    return Regions.from_intervals(tensor, row[order][source], begin, pieces, len(starts))


def _ranges_of(size: Int64, shape: Int64, strides: Int64) -> tuple[Int64, int]:
    """Flat ranges that make up a box at the origin: first position of each, and their common length."""
    inner = len(size)
    # The innermost dimensions that a box fills whole, and the one outside them, are one range.
    while inner > 0 and (inner == len(size) or size[inner] == shape[inner]):
        inner -= 1
    outer = np.zeros(1, dtype=np.int64)
    for n, stride in zip(size[:inner], strides[:inner], strict=True):
        outer = (outer[:, None] + np.arange(n, dtype=np.int64) * stride).reshape(-1)
    return outer, int(np.prod(size[inner:]))


def cut_runs(tensor: Tensor, position: Int64, length: Int64) -> tuple[Int64, Int64, Int64, Int64]:
    """Intervals of memory that ranges of a flattened view show.

    Args:
        tensor: The view.
        position: First position of each range, int64[k].
        length: Elements of each, int64[k].

    Returns:
        Global begin and length of each contiguous piece, in order, the range that it came from, and its position.
    """
    at, size = tensor.intervals()
    keep = np.flatnonzero(length > 0)
    position, end = position[keep], (position + length)[keep]
    starts = np.cumsum(size) - size
    first = np.searchsorted(starts, position, side="right") - 1
    count = np.searchsorted(starts, end, side="left") - first
    source = np.repeat(np.arange(len(keep), dtype=np.int64), count)
    run = np.arange(len(source), dtype=np.int64) + np.repeat(first - np.cumsum(count) + count, count)
    low = np.maximum(starts[run], position[source])
    high = np.minimum(starts[run] + size[run], end[source])
    return at[run] + low - starts[run], high - low, keep[source], low


def _check_inside(tensor: Tensor, starts: Int64, sizes: Int64) -> None:
    shape = np.array(tensor.shape, dtype=np.int64)
    bad = np.flatnonzero(((starts < 0) | (sizes < 0) | (starts + sizes > shape)).any(axis=1))
    if len(bad):
        i = int(bad[0])
        raise TensorError(
            f"box {i} reaches outside {tensor!r}",
            because=f"it starts at {starts[i].tolist()} with size {sizes[i].tolist()}",
        )
