"""The interval map: the tile of every element of the global space, as one sorted array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from abele.arrays import Int32, Int64
from abele.graph.variable import Variable


@dataclass(frozen=True, eq=False, slots=True)
class IntervalMap:
    """Tiles of the whole element space, or of some variables in it.

    Attributes:
        begin: First address of each piece, int64[m], ascending; a piece never crosses a variable.
        tile: Tile of each piece, int32[m]; −1 where unmapped.
        size: One past the last address.
    """

    begin: Int64
    tile: Int32
    size: int

    @staticmethod
    def of(variables: Sequence[Variable]) -> IntervalMap:
        """The map of variables in order of their base."""
        if not variables:
            return IntervalMap(np.empty(0, np.int64), np.empty(0, np.int32), 0)
        begin = np.concatenate([v.base + v.mapping.begin for v in variables])
        tile = np.concatenate([v.mapping.tile for v in variables])
        last = variables[-1]
        return IntervalMap(begin, tile, last.base + last.size)

    def split(self, begin: Int64, length: Int64) -> tuple[Int64, Int64, Int32, Int64]:
        """Cut intervals where the tile (or variable) changes.

        Args:
            begin: Global begin of each interval, int64[k]; the interval lies in one of the variables.
            length: Elements of each, int64[k], at least 1.

        Returns:
            Begin, length and tile of each piece, in order, and the interval that it came from.
        """
        end = begin + length
        first = np.searchsorted(self.begin, begin, side="right") - 1
        count = np.searchsorted(self.begin, end, side="left") - first
        source = np.repeat(np.arange(len(begin), dtype=np.int64), count)
        piece = np.arange(len(source), dtype=np.int64) + np.repeat(first - np.cumsum(count) + count, count)
        low = np.maximum(self.begin[piece], begin[source])
        high = np.minimum(np.append(self.begin[1:], self.size)[piece], end[source])
        return low, high - low, self.tile[piece], source
