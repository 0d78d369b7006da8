"""Partitions: the tile of each unit of a product of blocks, by the methods that PopLibs names.

PopLibs hands a hypergraph (units are its nodes, shared blocks its edges) to a library. Here a partition is a *cut of an
order*: units are sorted by a key, and tiles take equal stretches. What follows each other in the order shares blocks,
so little is sent twice, and loads differ by one unit at most.

- ``strip`` sorts by block column: an output is on few tiles, mostly one, and few partial sums are exchanged.
- ``stripv0`` gives tiles block columns of equal number, whatever they hold: its loads are as uneven as the pattern.
- ``block`` follows a Hilbert curve over the blocks: a stretch of it is a patch, and reads as many rows as columns. A
  patch of 16 blocks reads 4 + 4 pieces of the operands, a stretch of a column 16 + 1.
- ``block-group2`` is the same over 2 × 2 blocks, which stay together.
- ``block-naive`` gives whole outputs to the least loaded tile, the heaviest first, and does not look at what they read.

Greedy dealing goes round by round: the heaviest outputs that are left, one for each tile, to the tiles by ascending
load. That is the rule of heaviest first but for ties, and takes outputs / tiles steps of NumPy.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.poplibs.popsparse.experimental.units import BlockUnits

Tiles = npt.NDArray[np.int32]


def partition(units: BlockUnits, method: str, tiles: int) -> Tiles:
    """Tile of each unit, int32[units].

    Args:
        units: Units of one pass.
        method: One of PopLibs' partition methods.
        tiles: Tiles there are.
    """
    if not units.num:
        return np.zeros(0, np.int32)
    match method:
        case "stripv0":
            return _by_columns(units, tiles)
        case "block-naive":
            return _by_outputs(units, tiles)
        case "strip":
            order = np.lexsort((units.down, units.across, units.part, units.group))
        case _:
            order = _along_curve(units, 2 if method == "block-group2" else 1)
    found = np.empty(units.num, np.int32)
    found[order] = _stretches(units.num, tiles)
    return found


def _stretches(num: int, tiles: int) -> Tiles:
    """Tile of each of ``num`` units in order: equal stretches, spread over the tiles if there are few."""
    used = min(num, tiles)
    stretch = np.arange(num, dtype=np.int64) * used // num
    return (stretch * tiles // used).astype(np.int32)


def _by_columns(units: BlockUnits, tiles: int) -> Tiles:
    """Equal numbers of block columns for each tile, in the order of groups and strips."""
    column = (units.group * units.parts + units.part) * units.grid[2] + units.across
    columns = units.params.numGroups * units.parts * units.grid[2]
    used = min(columns, tiles)
    return (column * used // columns * tiles // used).astype(np.int32)


def _by_outputs(units: BlockUnits, tiles: int) -> Tiles:
    """Whole vertices dealt to the least loaded tiles, the heaviest first."""
    key, number, weight = np.unique(units.together, return_inverse=True, return_counts=True)
    tile, load = np.empty(len(key), np.int32), np.zeros(tiles, np.int64)
    order = np.argsort(-weight, kind="stable")
    for first in range(0, len(key), tiles):
        given = order[first : first + tiles]
        lightest = np.argsort(load, kind="stable")[: len(given)]
        tile[given] = lightest
        load[lightest] += weight[given]
    return tile[number.reshape(-1)]


def _along_curve(units: BlockUnits, side: int) -> Int64:
    """Order of units along a Hilbert curve over squares of ``side`` × ``side`` blocks."""
    y, x = units.down // side, units.across // side
    inside = units.down % side * side + units.across % side
    return np.lexsort((inside, hilbert(y, x), units.part, units.group))


def hilbert(y: Int64, x: Int64) -> Int64:
    """Place of each (y, x) along a Hilbert curve that covers all of them, int64[n].

    From the coarsest bit down, the quadrant is two bits of the place, and what is inside is turned so that the curve
    enters and leaves at neighbours.
    """
    bits = max(int(max(y.max(initial=0), x.max(initial=0))).bit_length(), 1)
    y, x = y.astype(np.int64), x.astype(np.int64)
    place = np.zeros(len(y), np.int64)
    for bit in range(bits - 1, -1, -1):
        size = 1 << bit
        right, low = (x >> bit) & 1, (y >> bit) & 1
        place = place * 4 + ((3 * right) ^ low)
        flip = (low == 0) & (right == 1)
        x, y = (
            np.where(flip, size - 1 - (x & (size - 1)), x & (size - 1)),
            np.where(flip, size - 1 - (y & (size - 1)), y & (size - 1)),
        )
        x, y = np.where(low == 0, y, x), np.where(low == 0, x, y)
    return place
