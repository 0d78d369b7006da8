"""The most that one pack of several capacities can be worth: pricing of patterns of nodes and edges, and of bounds.

What a pack of at most d items is worth follows, room by room, from what packs of d - 1 items are worth: a room is a
number for each capacity, and all rooms of a level are worked out at once, kind of item by kind of item. As for one
capacity, items may be taken as often as they fit, and values may be floating point or int64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.arrays import Float64, Int64
from abele.packing.histogram import SizeHistogram
from abele.packing.knapsack import KnapsackTable, Values

MOST_WORK = 10**8
"""Kinds times rooms times levels up to which a knapsack is small: some twenty rounds of half a second."""

MOST_ROOMS = 10**6
"""Rooms of a level, so that tables stay below a gigabyte."""


@dataclass(frozen=True)
class VectorKnapsack:
    """Sizes of the kinds of items, what a pack holds and how many items it may have.

    Attributes:
        sizes: int64[num_kinds, num_capacities], each within the capacities.
        capacity: int64[num_capacities].
        depth: The most items of a pack.
    """

    sizes: Int64
    capacity: Int64
    depth: int

    @staticmethod
    def of(histogram: SizeHistogram, capacity: tuple[int, ...], depth: int | None) -> VectorKnapsack:
        """The knapsack of packing a histogram: no pack has more items than fit, or than there are."""
        limits = np.array(capacity, np.int64)
        most = min(int((limits // histogram.sizes.min(axis=0)).min()), histogram.num_items)
        return VectorKnapsack(histogram.sizes, limits, most if depth is None else min(depth, most))

    @property
    def is_small(self) -> bool:
        """True if column generation ends within half a minute for it."""
        rooms = 1
        for limit in self.capacity.tolist():
            rooms *= limit + 1
        return rooms <= MOST_ROOMS and rooms * len(self.sizes) * self.depth <= MOST_WORK

    def flat_values(self) -> list[Float64]:
        """Values of which no pack is worth more than 1: the share of each capacity that an item takes, and of items."""
        shares = self.sizes / self.capacity
        return [*shares.T, np.full(len(self.sizes), 1 / self.depth)]

    def solve(self, values: Values) -> KnapsackTable:
        """Highest value of a pack of each room, when an item of each kind is worth ``values`` [num_kinds]."""
        shape = tuple((self.capacity + 1).tolist())
        best, last = [np.zeros(shape, values.dtype)], [np.full(shape, -1, np.int32)]
        worth = np.flatnonzero(values > 0).tolist()
        for _ in range(self.depth):
            before = best[-1]
            now, kinds = before.copy(), np.full(shape, -1, np.int32)
            for kind in worth:
                size = self.sizes[kind].tolist()
                rest = before[tuple(slice(0, width - each) for width, each in zip(shape, size, strict=True))]
                here = tuple(slice(each, None) for each in size)
                made = rest + values[kind]
                better = made > now[here]
                np.copyto(now[here], made, where=better)
                np.copyto(kinds[here], np.int32(kind), where=better)
            if not (kinds >= 0).any():
                break
            best.append(now)
            last.append(kinds)
        # A room is a number for each capacity, and all rooms of a level one row.
        steps = self.sizes @ np.array([math.prod(shape[place + 1 :]) for place in range(len(shape))], np.int64)
        rows = len(best), -1
        return KnapsackTable(steps, self.depth, np.stack(best).reshape(rows), np.stack(last).reshape(rows))

    def best_value(self, values: Values) -> Any:
        """Highest value of a whole pack, of the type of ``values``."""
        return self.solve(values).best[-1, -1]
