"""Intermediate results of a reduction, and where they are brought together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abele.arrays import Int32, Int64
from abele.graph.intervals import distinct
from abele.graph.mapping import TileMapping
from abele.poplibs.poputil.regions import count_up


@dataclass(frozen=True)
class Partials:
    """Intermediate results: ranges of the outputs, each on one tile.

    Attributes:
        begin: First output of each range, int64[n].
        length: Outputs of each, int64[n].
        tile: Tile of each, int32[n].
        place: First element of each in storage, int64[n]; None where they are stored one after the other.
    """

    begin: Int64
    length: Int64
    tile: Int32
    place: Int64 | None = None

    @property
    def num(self) -> int:
        """Number of ranges."""
        return len(self.begin)

    @property
    def offset(self) -> Int64:
        """First element of each range in storage, int64[n]."""
        return np.cumsum(self.length) - self.length if self.place is None else self.place

    @property
    def size(self) -> int:
        """Elements of all ranges."""
        return int(self.length.sum())

    @property
    def mapping(self) -> TileMapping:
        """Tile of each element of storage."""
        return TileMapping(self.size, self.offset, self.tile)

    def merged(self) -> Partials:
        """The same storage with ranges joined that follow each other there, on one tile."""
        apart = self.tile[1:] != self.tile[:-1]
        for first in (self.begin, self.offset):
            apart |= first[1:] != (first + self.length)[:-1]
        head = np.flatnonzero(np.append(True, apart)[: self.num])
        length = np.add.reduceat(self.length, head) if len(head) else self.length
        place = None if self.place is None else self.place[head]
        return Partials(self.begin[head], length, self.tile[head], place)

    def result_mapping(self, outputs: int) -> TileMapping:
        """Tiles of the results when each has one range."""
        order = np.argsort(self.begin, kind="stable")
        begin, tile = self.begin[order], self.tile[order]
        change = np.append(True, tile[1:] != tile[:-1]) if len(tile) else np.zeros(0, bool)
        return TileMapping(outputs, begin[change], tile[change])


@dataclass(frozen=True)
class Combination:
    """Ranges combined by one vertex each: a step after the first.

    Attributes:
        partials: Result of each vertex.
        source: First element of each row in the partials' storage, int64[rows].
        vertex: Vertex of each row, int64[rows], non-decreasing; rows of one vertex have its length.
    """

    partials: Partials
    source: Int64
    vertex: Int64


@dataclass(frozen=True)
class CutRanges:
    """Ranges cut where any of them begins or ends.

    Attributes:
        cuts: First output of each segment, int64[segments + 1].
        segment: Segment of each piece, int64[n].
        entry: Range that each piece is part of, int64[n].
        offset: First element of each piece within its range, int64[n].
    """

    cuts: Int64
    segment: Int64
    entry: Int64
    offset: Int64

    @property
    def depth(self) -> Int64:
        """Pieces of each segment."""
        return np.bincount(self.segment, minlength=len(self.cuts))


def cut(begin: Int64, length: Int64, longest: int = 0, grain: int = 1, extra: Int64 | None = None) -> CutRanges:
    """Cut ranges at each other's ends, at ``extra`` points, and into parts of at most ``longest`` elements.

    These are as equal as whole ``grain`` elements, which ``longest`` is a multiple of, let them be.
    """
    points = [begin, begin + length] if extra is None else [begin, begin + length, extra]
    cuts = distinct(np.concatenate(points))
    # Long segments in equal parts, so that several tiles share them.
    if longest and len(cuts):
        sizes = np.append(np.diff(cuts), 1)
        parts = -(-sizes // longest)
        entry, number = count_up(parts)
        cuts = cuts[entry] + number * -(-sizes // grain)[entry] // parts[entry] * grain
    first = np.searchsorted(cuts, begin)
    last = np.searchsorted(cuts, begin + length)
    entry, number = count_up(last - first)
    segment = first[entry] + number
    return CutRanges(cuts, segment, entry, cuts[segment] - begin[entry])


def depth(partials: Partials) -> int:
    """Most partial results that one output has."""
    return int(cut(partials.begin, partials.length).depth.max(initial=0))


def combine_on_tiles(partials: Partials, outputs: int) -> Combination | None:
    """Combine ranges of the same outputs that lie on the same tile; None where there are none."""
    # Tiles lie one after the other on one axis, so ranges are cut only at ends of ranges of their own tile.
    key = partials.tile.astype(np.int64) * (outputs + 1) + partials.begin
    pieces = cut(key, partials.length)
    if len(pieces.segment) == 0 or pieces.depth.max() < 2:
        return None
    order = np.argsort(pieces.segment, kind="stable")
    segment, entry, offset = pieces.segment[order], pieces.entry[order], pieces.offset[order]
    head = np.flatnonzero(np.append(True, np.diff(segment) != 0))
    size = np.append(np.diff(pieces.cuts), 0)[segment[head]]
    given = Partials(pieces.cuts[segment[head]] % (outputs + 1), size, partials.tile[entry[head]])
    vertex = np.cumsum(np.append(False, np.diff(segment) != 0))
    return Combination(given, partials.offset[entry] + offset, vertex)
