"""Rows of records laid out in blocks over the tiles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abele.arrays import Int32, Int64
from abele.graph import Graph, Tensor
from abele.graph.mapping import TileMapping
from abele.numerics import ElementType
from abele.poplibs.poputil.mapping import set_mapping
from abele.poplibs.poputil.regions import count_up

MIN_BLOCK = 32
"""Records below which a row is not shared between tiles: 128 bytes of 32-bit keys, as linear mappings have it."""


def power_of_two(n: int) -> int:
    """The least power of two that is at least ``n``."""
    return 1 << max(n - 1, 0).bit_length()


@dataclass(frozen=True)
class RecordBlocks:
    """``rows`` rows of ``length`` records, each cut into blocks of ``size`` records, the last of them shorter.

    Attributes:
        rows: Number of rows.
        length: Records of a row.
        size: Records of a block, a power of two; a row that is no longer is one block.
        num_tiles: Tiles that blocks are spread over.
    """

    rows: int
    length: int
    size: int
    num_tiles: int

    @staticmethod
    def plan(graph: Graph, rows: int, length: int, least: int = MIN_BLOCK) -> RecordBlocks:
        """Blocks that keep all tiles busy, of at least ``least`` records."""
        tiles = graph.system.num_tiles
        return RecordBlocks(rows, length, power_of_two(max(-(-rows * length // tiles), least)), tiles)

    @property
    def per_row(self) -> int:
        """Blocks of a row."""
        return -(-self.length // self.size)

    @property
    def count(self) -> int:
        """Blocks in all."""
        return self.rows * self.per_row

    @property
    def begin(self) -> Int64:
        """First record of each block in the flattened rows, int64[count]."""
        row, block = np.divmod(np.arange(self.count, dtype=np.int64), self.per_row)
        return np.asarray(row * self.length + block * self.size, np.int64)

    @property
    def sizes(self) -> Int64:
        """Records of each block, int64[count]."""
        block = np.arange(self.count, dtype=np.int64) % self.per_row
        return np.asarray(np.minimum(self.length - block * self.size, self.size), np.int64)

    @property
    def tile(self) -> Int32:
        """Tile of each block, int32[count]."""
        used = min(self.count, self.num_tiles)
        return (np.arange(self.count, dtype=np.int64) * used // self.count).astype(np.int32)

    def variable(self, graph: Graph, dtype: ElementType, name: str) -> Tensor:
        """A variable [rows, length] in these blocks."""
        made = graph.variable(dtype, (self.rows, self.length), name=name)
        return set_mapping(graph, made, TileMapping(self.rows * self.length, self.begin, self.tile))

    def on_tiles(self) -> tuple[Int64, Int64, Int32]:
        """Begin, length and tile of each vertex's elements: whole rows of a tile, or a block."""
        if self.per_row > 1:
            return self.begin, self.sizes, self.tile
        tile = self.tile
        first = np.flatnonzero(np.append(True, np.diff(tile) != 0))
        begin = self.begin[first]
        return begin, np.diff(np.append(begin, self.rows * self.length)), tile[first]

    def pairs(self, distance: int, mirrored: int = 0) -> tuple[Int64, Int64, Int64]:
        """Blocks that are compared with each other.

        Args:
            distance: Blocks between them; not used where they are mirrored.
            mirrored: Blocks of a merge in which block i is compared with block i from the end; 0 for a fixed distance.

        Returns:
            Number of the earlier and of the later block, and places that are compared, int64[k] each.
        """
        block = np.arange(self.per_row, dtype=np.int64)
        if mirrored:
            other = block // mirrored * mirrored + mirrored - 1 - block % mirrored
        else:
            # The later block of a pair is skipped, or the pair would come twice.
            other = np.where(block // distance % 2 == 0, block + distance, -1)
        # A partner beyond the end stands for worst elements, which never move: nothing to compare.
        low = np.flatnonzero((other > block) & (other < self.per_row))
        row, number = count_up(np.full(self.rows, len(low), dtype=np.int64))
        low, high = low[number] + row * self.per_row, other[low][number] + row * self.per_row
        return low, high, self.sizes[high]
