"""Race check: within a compute set no element is written twice, or written by one vertex and read by another.

Two fields of one vertex that write an element count as two writes.

Vertices of a compute set run in no order, so any of these would make results depend on one. The check is a sweep:
written intervals are sorted by address, and one that begins before the furthest end so far overlaps an earlier one.
That finds every write-write race in O(n log n); comparing vertices pair by pair would be quadratic, and a mark per
element would follow the size of variables instead of what the compute set touches. Without such a race the written
intervals are apart, so those that a read overlaps are one stretch of the sorted list, found by two binary searches,
and it is enough to know whether one vertex owns the whole stretch. Intervals are exact to the element, so what is
reported is a race and never an approximation of one.

Example: of writes to [0, 4) and [3, 6), the second begins at 3, before the furthest end so far, 4: a race on element 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from abele.arrays import Int64
from abele.compiler.uses import FieldUse
from abele.graph.intervals import order_of


class VertexAccess(NamedTuple):
    """One vertex's access to one interval."""

    use: FieldUse
    vertex: int
    begin: int
    end: int


class Race(NamedTuple):
    """Two vertices, or two fields of one, that touch the same elements; the first writes them."""

    writer: VertexAccess
    other: VertexAccess
    other_reads: bool


@dataclass(frozen=True, eq=False, slots=True)
class Writes:
    """All intervals that a compute set writes, in order of address.

    Attributes:
        begin: First global address of each interval, int64[k], ascending.
        end: One past the last, int64[k].
        reach: Largest end up to and including each interval, int64[k].
        vertex: Vertex that writes it, int64[k].
        part: Position of the interval before sorting, int64[k], or None when it was sorted.
        parts: Number of intervals of each writing use, in order.
        uses: The writing uses.
    """

    begin: Int64
    end: Int64
    reach: Int64
    vertex: Int64
    part: Int64 | None
    parts: Int64
    uses: tuple[FieldUse, ...]

    def use_of(self, position: int) -> FieldUse:
        """The use that sorted interval ``position`` came from."""
        part = position if self.part is None else int(self.part[position])
        return self.uses[int(np.searchsorted(np.cumsum(self.parts), part, side="right"))]

    def access(self, position: int) -> VertexAccess:
        """Sorted interval ``position`` as an access."""
        vertex, begin, end = int(self.vertex[position]), int(self.begin[position]), int(self.end[position])
        return VertexAccess(self.use_of(position), vertex, begin, end)

    def union(self) -> tuple[Int64, Int64]:
        """Begins and ends of the written intervals, overlapping and adjoining ones joined."""
        if len(self.begin) == 0:
            return self.begin, self.end
        fresh = np.append(True, self.begin[1:] > self.reach[:-1])
        first = np.flatnonzero(fresh)
        return self.begin[first], self.reach[np.append(first[1:], len(self.begin)) - 1]


def collect_writes(uses: Sequence[FieldUse]) -> Writes:
    """Every interval that the compute set's vertices may write, sorted."""
    writing = tuple(u for u in uses if u.writes)
    found = [u.intervals() for u in writing]
    parts = np.array([len(f[0]) for f in found], dtype=np.int64)
    begin, length, vertex = (_joined([f[i] for f in found]) for i in range(3))
    part = None
    if len(begin) and not bool((begin[1:] >= begin[:-1]).all()):
        part = order_of(begin)
        begin, length, vertex = begin[part], length[part], vertex[part]
    end = begin + length
    return Writes(
        begin=begin, end=end, reach=np.maximum.accumulate(end), vertex=vertex, part=part, parts=parts, uses=writing
    )


def find_race(uses: Sequence[FieldUse], writes: Writes | None = None) -> Race | None:
    """The first race of a compute set, or None.

    Args:
        uses: Its field uses.
        writes: Its writes when they were collected before.

    Model: writes are swept in order of address. Where one begins before all earlier ones have ended, the one that
    reaches furthest overlaps it; until then every cluster of overlapping writes belongs to one vertex, so comparing
    with that one is exact. Reads are located in the sorted writes; regions that several vertices share are tested once.
    """
    writes = collect_writes(uses) if writes is None else writes
    race = _write_race(writes)
    if race is not None or len(writes.begin) == 0:
        return race
    # Number of changes of owner up to each write: a stretch has one owner if its ends have the same number.
    turns = np.concatenate([[0], np.cumsum(writes.vertex[1:] != writes.vertex[:-1])])
    for use in uses:
        if not use.writes:
            race = _read_race(use, writes, turns)
            if race is not None:
                return race
    return None


def _write_race(writes: Writes) -> Race | None:
    late = np.flatnonzero(writes.begin[1:] < writes.reach[:-1]) + 1
    if len(late) == 0:
        return None
    position = np.arange(len(writes.end), dtype=np.int64)
    # Position of the write that reaches furthest so far: the one that a late beginner overlaps.
    furthest = np.maximum.accumulate(np.where(writes.end == writes.reach, position, 0))
    clash = late[writes.vertex[late] != writes.vertex[furthest[late - 1]]]
    # without two vertices, two fields (or two rows of one) of the same vertex write the same
    second = int(clash[0]) if len(clash) else int(late[0])
    return Race(writes.access(second), writes.access(int(furthest[second - 1])), False)


def _read_race(use: FieldUse, writes: Writes, turns: Int64) -> Race | None:
    regions = use.edge.regions
    if len(regions.begin) == 0 or len(use.edge.index) == 0:
        return None
    # Most fields are read from variables that no vertex of the set writes: their ends tell, without a search.
    if int(regions.begin.min()) >= int(writes.reach[-1]):
        return None
    end = regions.begin + regions.length
    if int(end.max()) <= int(writes.begin[0]):
        return None
    # Writes that end behind the read's begin, and begin before its end.
    low = np.searchsorted(writes.reach, regions.begin, side="right")
    high = np.searchsorted(writes.begin, end, side="left")
    touched = np.flatnonzero(low < high)
    if len(touched) == 0:
        return None
    first, last = _readers(use, regions.num)
    region = np.searchsorted(regions.ptr, touched, side="right") - 1
    low, high = low[touched], high[touched]
    # A vertex may read what it writes itself, if it is the only reader of the region and the only writer of the
    # stretch.
    safe = (first[region] == last[region]) & (writes.vertex[low] == first[region])
    safe &= turns[low] == turns[high - 1]
    # Regions that no vertex is wired to.
    safe |= first[region] < 0
    clash = np.flatnonzero(~safe)
    if len(clash) == 0:
        return None
    at = int(clash[0])
    span = range(int(low[at]), int(high[at]))
    return _described(use, int(touched[at]), int(first[region[at]]), int(last[region[at]]), span, writes)


def _readers(use: FieldUse, num_regions: int) -> tuple[Int64, Int64]:
    """First and last vertex that reads each region; −1 where none does."""
    vertex = use.row_vertex
    if use.is_identity:
        return vertex, vertex
    first, last = np.full(num_regions, -1, np.int64), np.full(num_regions, -1, np.int64)
    # The last assignment to an element wins: in reverse order that leaves the first reader.
    first[use.edge.index[::-1]] = vertex[::-1]
    last[use.edge.index] = vertex
    return first, last


def _described(use: FieldUse, interval: int, first: int, last: int, span: range, writes: Writes) -> Race:
    """The race between a read interval and a write of ``span`` by another vertex."""
    regions = use.edge.regions
    begin = int(regions.begin[interval])
    read = VertexAccess(use, first, begin, begin + int(regions.length[interval]))
    owners = writes.vertex[span.start : span.stop]
    others = np.flatnonzero(owners != first)
    if len(others):
        return Race(writes.access(span.start + int(others[0])), read, True)
    return Race(writes.access(span.start), read._replace(vertex=last), True)


def _joined(arrays: list[Int64]) -> Int64:
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)
