"""Layout: the tile of every element, and its place in that tile's memory.

A tile keeps its share of a variable packed, in order of address. The *packed space* renumbers the elements of the
graph so that every such share is one interval of it: two elements are neighbours in a tile's memory exactly when they
are neighbours in it and on the same tile.

Why it is worth the sort: a vertex often wants many intervals of a variable that lie in one piece on its tile, because
the elements between them are mapped elsewhere. In packed addresses that is one interval, and every question about
memory ("in one piece?", "aligned?", "already brought?") is a comparison of numbers.

Example: of 8 elements, 0, 1, 4 and 5 lie on tile 0 and the others on tile 1. Their packed addresses, in order, are 0,
1, 4, 5, 2, 3, 6 and 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from abele.arrays import Int32, Int64
from abele.compiler.packing import Packing, pack
from abele.graph.interval_map import IntervalMap
from abele.graph.variable import Variable


class TilePieces(NamedTuple):
    """Intervals cut where the tile changes, in packed addresses.

    Attributes:
        begin: First packed address of each piece, int64[k].
        length: Elements of each, int64[k].
        tile: Tile of each, int32[k].
        share: First packed address of the tile's share of the variable, int64[k].
        source: Interval that each piece was cut from, int64[k], non-decreasing.
    """

    begin: Int64
    length: Int64
    tile: Int32
    share: Int64
    source: Int64


@dataclass(frozen=True, eq=False, slots=True)
class Layout:
    """Tile and address of every element of a graph.

    Attributes:
        begin: First global address of each map piece, int64[m], ascending; a piece lies in one variable on one tile.
        end: One past its last address, int64[m].
        tile: Its tile, int32[m].
        packing: Packed addresses of the pieces.
        base: First global address of each variable, int64[v].
        size: Elements of each variable, int64[v].
        width: Bytes of one element of each variable, int64[v].
        num_tiles: Tiles of the system.
    """

    begin: Int64
    end: Int64
    tile: Int32
    packing: Packing
    base: Int64
    size: Int64
    width: Int64
    num_tiles: int

    @staticmethod
    def of(interval_map: IntervalMap, variables: Sequence[Variable], num_tiles: int) -> Layout:
        """The layout of ``variables``, all of a graph or some, which are in order of their base.

        Where it is of some, they are numbered through, and addresses of others must not be asked for.
        """
        base = np.array([v.base for v in variables], dtype=np.int64)
        size = np.array([v.size for v in variables], dtype=np.int64)
        width = np.array([v.dtype.bytes for v in variables], dtype=np.int64)
        begin = interval_map.begin
        # Pieces fill a variable, so each ends where the next begins, or with the variable.
        end = np.append(begin[1:], interval_map.size)[: len(begin)]
        ptr = np.append(np.searchsorted(begin, base), len(begin))
        some = np.flatnonzero(ptr[1:] > ptr[:-1])
        end[ptr[1:][some] - 1] = (base + size)[some]
        packing = pack(begin, end, interval_map.tile, ptr, num_tiles)
        return Layout(
            begin=begin,
            end=end,
            tile=interval_map.tile,
            packing=packing,
            base=base,
            size=size,
            width=width,
            num_tiles=num_tiles,
        )

    def cut(self, begin: Int64, length: Int64) -> TilePieces:
        """Cut intervals of the global space where the tile or the variable changes.

        Args:
            begin: First address of each interval, int64[k].
            length: Elements of each, int64[k], at least 1.
        """
        if len(begin) == 0:
            return self._pieces(begin, begin, length, begin)
        end = begin + length
        # Intervals of one variable lie in few pieces of the map: a search among these stays in the cache.
        low, high = np.searchsorted(self.begin, [begin.min(), end.max()], side="right") - [1, 0]
        first = np.searchsorted(self.begin[low:high], begin, side="right") + (low - 1)
        source = np.arange(len(begin), dtype=np.int64)
        # Nearly every field of a well placed program: each interval lies in one piece, and nothing is cut.
        cut = np.flatnonzero(end > self.end[first])
        if len(cut) == 0:
            return self._pieces(first, begin, length, source)
        count = np.ones(len(begin), dtype=np.int64)
        count[cut] = np.searchsorted(self.begin[low:high], end[cut], side="left") + low - first[cut]
        source = np.repeat(source, count)
        # All pieces of all intervals in one column: first[i], first[i] + 1, … up to last[i].
        piece = np.arange(len(source), dtype=np.int64) + np.repeat(first - np.cumsum(count) + count, count)
        low = np.maximum(self.begin[piece], begin[source])
        high = np.minimum(self.end[piece], end[source])
        return self._pieces(piece, low, high - low, source)

    def _pieces(self, piece: Int64, begin: Int64, length: Int64, source: Int64) -> TilePieces:
        packed, share = self.packed(piece)
        return TilePieces(packed + (begin - self.begin[piece]), length, self.tile[piece], share, source)

    def packed(self, piece: Int64) -> tuple[Int64, Int64]:
        """Packed address of the first element of some pieces, and of that of the share that each is in, int64[k]."""
        packing = self.packing
        if not packing.is_shared or len(piece) == 0:
            return packing.packed[piece], packing.share[piece]
        ends = self.variables_at(self.begin[np.array([piece.min(), piece.max()])])
        return packing.at(piece, ends[0] if ends[0] == ends[1] else self.variables_at(self.begin[piece]))

    @property
    def all_packed(self) -> tuple[Int64, Int64]:
        """Result of :meth:`packed` for all pieces."""
        return self.packed(np.arange(len(self.begin)))

    def variables_at(self, address: Int64) -> Int64:
        """Position of the variable that each global address belongs to, int64[k]."""
        return np.asarray(np.searchsorted(self.base, address, side="right") - 1, dtype=np.int64)

    def variables_in(self, begin: Int64, end: Int64) -> Int64:
        """Positions of the variables that the intervals touch, ascending and unique."""
        if len(begin) == 0:
            return np.empty(0, dtype=np.int64)
        low, high = self.variables_at(np.array([begin.min(), end.max() - 1]))
        if low == high:
            return np.array([low], dtype=np.int64)
        # Mark where intervals enter and leave the row of variables; the running sum is above zero inside them.
        touched = np.bincount(self.variables_at(begin), minlength=len(self.base) + 1)
        touched -= np.bincount(self.variables_at(end - 1) + 1, minlength=len(self.base) + 1)
        return np.flatnonzero(np.cumsum(touched)[:-1])
