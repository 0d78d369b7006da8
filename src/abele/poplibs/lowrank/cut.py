"""Cuts of items into shares for the tiles of a machine, equal in cycles.

Items are stretches of work that one vertex can do part of: the rows of a block column, the columns of a block row. A
vertex has a start, whatever it does, and cycles for each unit. Two kinds of cut are tried and the cheaper one is taken:
without a gap, so that a tile may have the end of one item and the beginning of the next, or with tiles of its own for
each item.

Example: items of 100 and 20 units, a start of 10 cycles and one cycle per unit, on 3 tiles. The line of cycles is 140
long and cut at 47 and 93: shares of 37, 46 and 17 + 20. Apart, it is 50, 50 and 20.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64

Float64 = npt.NDArray[np.float64]
CyclesOf = Callable[[Int64, Int64], Int64]
"""Cycles of vertices: (items, sizes) of each, int64[n]."""


@dataclass(frozen=True, eq=False)
class ItemShares:
    """Stretches of items, one for each vertex.

    Attributes:
        item: Item of each, int64[n], rising.
        first: First unit of it within the item, int64[n].
        size: Units, int64[n].
        tile: Tile, int64[n].
    """

    item: Int64
    first: Int64
    size: Int64
    tile: Int64

    @property
    def num(self) -> int:
        """Number of shares."""
        return len(self.item)


@dataclass(frozen=True, eq=False)
class ItemCosts:
    """Cycles of a share of an item: a start, and so many for each unit.

    Attributes:
        start: Cycles of a share without a unit, float64[items].
        each: Cycles of a unit, float64[items].
    """

    start: Float64
    each: Float64


def cut_apart(lengths: Int64, tiles: int) -> ItemShares | None:
    """Shares of items of ``lengths`` units, each tile with one item; None where there are more items than tiles."""
    each = _smallest(lengths, tiles)
    if each is None:
        return None
    counts = -(-lengths // each)
    item, number = np.repeat(np.arange(len(lengths)), counts), within(counts)
    # Equal shares of the item rather than full ones and a rest.
    first = number * lengths[item] // counts[item]
    size = (number + 1) * lengths[item] // counts[item] - first
    return ItemShares(item, first, size, np.arange(len(item)))


def cut_through(lengths: Int64, tiles: int, costs: ItemCosts) -> ItemShares:
    """Shares of items of ``lengths`` units without a gap, equal in cycles.

    Items are laid one after the other on a line of cycles, each with its start before its units, and the line is cut
    into equal stretches. So a tile with the ends of several short items has fewer units than one inside a long item.
    """
    ends = np.cumsum(costs.start + lengths * costs.each)
    begins = ends - lengths * costs.each
    cuts = np.arange(tiles) * (float(ends[-1]) / tiles)
    item = np.minimum(np.searchsorted(ends, cuts, side="right"), len(lengths) - 1)
    units = np.clip(np.round((cuts - begins[item]) / costs.each[item]), 0, lengths[item]).astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    first_units = starts[item] + units
    edges = np.unique(np.concatenate([starts, first_units, [int(lengths.sum())]]))
    begin, size = edges[:-1], np.diff(edges)
    of = np.searchsorted(starts + lengths, begin, side="right")
    tile = np.searchsorted(first_units, begin, side="right") - 1
    return ItemShares(of, begin - starts[of], size, tile)


def _smallest(lengths: Int64, tiles: int) -> int | None:
    """Fewest units per tile with which every item has tiles of its own."""
    if np.count_nonzero(lengths) > tiles:
        return None
    low, high = 1, max(1, int(lengths.max(initial=1)))
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if int((-(-lengths // middle)).sum()) <= tiles else (middle + 1, high)
    return low


def best_cut(ipu: Int64, lengths: Int64, unit: int, tiles_per_ipu: int, cycles: CyclesOf) -> ItemShares:
    """The cheaper cut on each IPU, of all of them.

    Args:
        ipu: IPU of each item, int64[items].
        lengths: Elements of each item, int64[items], above 0.
        unit: Elements that shares are multiples of, but for the last one of an item.
        tiles_per_ipu: Tiles of an IPU that take part.
        cycles: Cycles of vertices by item and elements.
    """
    parts, units = [], -(-lengths // unit)
    for number in np.unique(ipu):
        mine = np.flatnonzero(ipu == number)
        options = [cut_through(units[mine], tiles_per_ipu, _costs(mine, unit, cycles))]
        apart = cut_apart(units[mine], tiles_per_ipu)
        options += [] if apart is None else [apart]
        found = []
        for shares in options:
            item, first = mine[shares.item], shares.first * unit
            size = np.minimum(shares.size * unit, lengths[item] - first)
            found.append(ItemShares(item, first, size, shares.tile))
        best = min(found, key=lambda s: busiest(s, cycles(s.item, s.size)))
        parts.append((best, int(number)))
    none = np.empty(0, np.int64)
    return ItemShares(
        item=np.concatenate([none, *(s.item for s, _ in parts)]),
        first=np.concatenate([none, *(s.first for s, _ in parts)]),
        size=np.concatenate([none, *(s.size for s, _ in parts)]),
        tile=np.concatenate([none, *(s.tile + number * tiles_per_ipu for s, number in parts)]),
    )


def _costs(items: Int64, unit: int, cycles: CyclesOf) -> ItemCosts:
    """The line through the cycles of one unit and of nine (chosen: two points far apart), of each item."""
    few, many = (cycles(items, np.full_like(items, count * unit)) for count in (1, 9))
    each = np.maximum((many - few) / 8, 1e-3)
    return ItemCosts(np.maximum(few - each, 0.0), each)


def busiest(shares: ItemShares, cycles: Int64) -> int:
    """Cycles of the tile that has most."""
    return int(np.bincount(shares.tile, cycles).max(initial=0))


def within(counts: Int64) -> Int64:
    """0, 1, … for each of ``counts`` stretches."""
    return np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
