"""Moves: copies within tiles, as an exchange leaves them to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from abele.arrays import Int32, Int64
from abele.compiler.tile_vector import TileVector

GRANULES = (1, 2, 4, 8)
"""Widths of pieces by which copies are counted, in bytes. Source: §2.6, and 1 for bytes."""

_LEAST_SUMMED = 1 << 12
"""Rows from which on it is worth to add those of one tile up. Chosen."""


class Moves(NamedTuple):
    """Copies within tiles; a row is one of them, or several of one tile and granule.

    Attributes:
        tile: Tile of each row, int32[k].
        bytes: Bytes that its copies move together, int64[k].
        granule: Largest power of two up to 8 that divides size and offset of each of them in bytes, int64[k].
        pieces: Number of copies, int64[k].
    """

    tile: Int32
    bytes: Int64
    granule: Int64
    pieces: Int64

    @staticmethod
    def single(tile: Int32, size: Int64, granule: Int64) -> Moves:
        """A row for each copy."""
        return Moves(tile, size, granule, np.ones(len(tile), dtype=np.int64))

    @staticmethod
    def joined(parts: Sequence[Moves]) -> Moves:
        """All copies of several sets."""
        kept = [part for part in parts if len(part.tile)]
        if len(kept) == 1:
            return kept[0]
        if not kept:
            empty = np.empty(0, dtype=np.int64)
            return Moves(empty.astype(np.int32), empty, empty, empty)
        return Moves(*(np.concatenate(column) for column in zip(*kept, strict=True)))

    def summed(self) -> Moves:
        """The same copies with one row for each tile and granule, in order of both."""
        if len(self.tile) < _LEAST_SUMMED:
            return self
        key = self.tile.astype(np.int64) * (GRANULES[-1] + 1)
        key += self.granule
        total = np.bincount(key, weights=self.pieces)
        some = np.flatnonzero(total)
        tile, granule = np.divmod(some, GRANULES[-1] + 1)
        size = np.bincount(key, weights=self.bytes)[some].astype(np.int64)
        return Moves(tile.astype(np.int32), size, granule, total[some].astype(np.int64))

    def bytes_by_tile(self, num_tiles: int) -> TileVector:
        """Bytes copied on each tile."""
        return TileVector.sum_of(self.tile, self.bytes, num_tiles)


def granules(offset_bytes: Int64, length_bytes: Int64) -> Int64:
    """Largest power of two up to 8 that divides both, int64[k]."""
    bits = offset_bytes | length_bytes | 8
    return bits & -bits
