"""Tile mapping: which tile holds each element of a variable."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abele.arrays import Int32, Int64
from abele.graph.intervals import distinct, order_of

UNMAPPED = -1


@dataclass(frozen=True, slots=True)
class TileMapping:
    """A piecewise constant map from the elements of one variable to tiles.

    Attributes:
        size: Elements of the variable.
        begin: First element of each piece, int64[m], ascending from 0.
        tile: Tile of each piece, int32[m]; −1 where nothing is mapped.
    """

    size: int
    begin: Int64
    tile: Int32

    @staticmethod
    def unmapped(size: int) -> TileMapping:
        """The mapping of a fresh variable: no element is on any tile."""
        pieces = 1 if size else 0
        return TileMapping(size, np.zeros(pieces, np.int64), np.full(pieces, UNMAPPED, np.int32))

    @property
    def end(self) -> Int64:
        """One past the last element of each piece, int64[m]."""
        return np.append(self.begin[1:], self.size) if len(self.begin) else self.begin

    @property
    def length(self) -> Int64:
        """Elements of each piece, int64[m]."""
        return self.end - self.begin

    @property
    def is_complete(self) -> bool:
        """True if every element has a tile."""
        return bool((self.tile >= 0).all())

    @property
    def is_whole(self) -> bool:
        """True if every element has a tile, and neighbours that share one are one piece."""
        begin = self.begin
        if len(begin) == 0 or begin[0] != 0 or begin[-1] >= self.size:
            return False
        is_ascending = bool((begin[1:] > begin[:-1]).all())
        return is_ascending and self.is_complete and bool((self.tile[1:] != self.tile[:-1]).all())

    def first_unmapped(self) -> tuple[int, int] | None:
        """The first interval that has no tile, or None."""
        where = np.flatnonzero(self.tile < 0)
        if len(where) == 0:
            return None
        piece = int(where[0])
        return int(self.begin[piece]), int(self.end[piece])

    def overlaid(self, begin: Int64, length: Int64, tile: Int32) -> TileMapping:
        """This mapping with the given intervals moved to new tiles.

        Args:
            begin: First element of each interval, int64[k]; the intervals must not overlap each other.
            length: Elements of each, int64[k].
            tile: New tile of each, int32[k].
        """
        order = order_of(begin)
        order = order[length[order] > 0]
        begin, length, tile = begin[order], length[order], tile[order]
        if len(begin) == 0:
            return self
        end = begin + length
        # The new intervals cover everything: what was before does not matter.
        if begin[0] == 0 and end[-1] == self.size and np.array_equal(begin[1:], end[:-1]):
            return _joined(self.size, begin, tile)
        cuts = distinct(np.concatenate([self.begin, begin, end]))
        cuts = cuts[cuts < self.size]
        # Between two cuts both the old and the new mapping are constant.
        old = self.tile[np.searchsorted(self.begin, cuts, side="right") - 1]
        slot = np.searchsorted(begin, cuts, side="right") - 1
        covered = (slot >= 0) & (cuts < end[np.maximum(slot, 0)])
        fresh = np.where(covered, tile[np.maximum(slot, 0)], old).astype(np.int32)
        return _joined(self.size, cuts, fresh)

    def shifted(self, tiles: int) -> TileMapping:
        """This mapping, ``tiles`` tiles further on; unmapped elements stay so."""
        if tiles == 0:
            return self
        tile = np.where(self.tile == UNMAPPED, UNMAPPED, self.tile + np.int32(tiles))
        return TileMapping(self.size, self.begin, tile.astype(np.int32))

    def tiles_over(self, begin: int, end: int) -> Int32:
        """Tile of each piece that holds some of the elements ``[begin, end)``, int32[m]."""
        first = np.searchsorted(self.begin, begin, side="right") - 1
        return self.tile[first : np.searchsorted(self.begin, end, side="left")]

    def tiles_of(self, elements: Int64) -> Int32:
        """Tile of each element, int32[k]."""
        return self.tile[np.searchsorted(self.begin, elements, side="right") - 1]


def _joined(size: int, begin: Int64, tile: Int32) -> TileMapping:
    """The mapping of pieces in order, neighbours on one tile joined."""
    change = np.append(True, tile[1:] != tile[:-1])
    return TileMapping(size, begin[change], tile[change])
