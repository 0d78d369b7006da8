"""Tiles that operands come from: where pieces of x lie, and shares that are kept apart from what they read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from abele.arrays import Int64
from abele.poplibs.lowrank.compressed import TileLowRank
from abele.poplibs.lowrank.layout import LeftShares, RightShares

_MOST_SWAPS = 64
"""Tiles that one is tried to change places with."""


def homes_of_x(matrix: TileLowRank, right: RightShares, num_tiles: int) -> Int64:
    """Tile of the piece of x of each block column: that of its first V rows, int64[J]."""
    # Pieces of block columns without a rank lie on the first tiles.
    tile = np.arange(matrix.grid[1], dtype=np.int64) % num_tiles
    _, at = np.unique(right.shares.item, return_index=True)
    tile[right.column[::-1]] = right.shares.tile[at][::-1]
    return tile


def apart_from_sources(
    left: LeftShares, right: RightShares, homes: Int64, width: int, tiles_per_ipu: int
) -> LeftShares:
    """The same shares, on tiles that none of their operands come from.

    What comes from other tiles arrives in order, without a copy. A piece that lies on the tile already is copied
    beside them, which takes 300 cycles more than the exchange. So tiles change places until none has such a piece.
    """
    column = left.columns_of()
    share = np.repeat(np.arange(left.shares.num), left.shares.size)
    row, along = left.right[column], left.along[column]
    first, tiles = right.first, right.shares.tile
    source = homes[np.maximum(along, 0) // width]
    from_right = row >= 0
    source[from_right] = tiles[np.searchsorted(first, row[from_right], side="right") - 1]
    total = (
        int(max(left.shares.tile.max(initial=0), tiles.max(initial=0), homes.max())) // tiles_per_ipu + 1
    ) * tiles_per_ipu
    pairs = np.unique(left.shares.tile[share] * total + source)
    user, source = pairs // total, pairs % total
    place = np.arange(total)
    for step in range(1, min(tiles_per_ipu, _MOST_SWAPS)):
        bad = np.unique(user[place[user] == source])
        if not len(bad):
            break
        other = bad - bad % tiles_per_ipu + (bad + step) % tiles_per_ipu
        free = ~np.isin(other, bad) & (np.bincount(other, minlength=total)[other] == 1)
        one, two = bad[free], other[free]
        good = ~np.isin(one * total + place[two], pairs) & ~np.isin(two * total + place[one], pairs)
        one, two = one[good], two[good]
        place[one], place[two] = place[two], place[one].copy()
    return replace(left, shares=replace(left.shares, tile=place[left.shares.tile]))
