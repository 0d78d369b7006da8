"""The most that one pack of several capacities can be worth: pricing of patterns of nodes and edges, and of bounds.

What a pack of at most d items is worth follows, room by room, from what packs of d - 1 items are worth: a room is a
number for each capacity, and all rooms of a level are worked out at once, kind of item by kind of item. As for one
capacity, items may be taken as often as they fit, and values may be floating point or int64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.packing.histogram import SizeHistogram
from abele.packing.knapsack import Floats, Values
from abele.packing.packs import Int64s

MOST_WORK = 10**8
"""Kinds times rooms times levels of what counts as small: some twenty rounds of half a second."""

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

    sizes: Int64s
    capacity: Int64s
    depth: int

    @staticmethod
    def of(histogram: SizeHistogram, capacity: tuple[int, ...], depth: int | None) -> VectorKnapsack:
        """The knapsack of packing a histogram: no pack has more items than fit, or than there are."""
        limits = np.array(capacity, np.int64)
        most = min(int((limits // histogram.sizes.min(axis=0)).min()), histogram.num_items)
        return VectorKnapsack(histogram.sizes, limits, most if depth is None else min(depth, most))

    @property
    def is_small(self) -> bool:
        """Whether column generation comes to an end with it in half a minute."""
        rooms = 1
        for limit in self.capacity.tolist():
            rooms *= limit + 1
        return rooms <= MOST_ROOMS and rooms * len(self.sizes) * self.depth <= MOST_WORK

    def flat_values(self) -> list[Floats]:
        """Values of which no pack is worth more than 1: the share of each capacity that an item takes, and of items."""
        shares = self.sizes / self.capacity
        return [*shares.T, np.full(len(self.sizes), 1 / self.depth)]

    def solve(self, values: Values) -> VectorTable:
        """What each room is worth at most, when an item of each kind is worth ``values`` [num_kinds]."""
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
        return VectorTable(self, np.stack(best).reshape(len(best), -1), np.stack(last).reshape(len(last), -1))

    def best_value(self, values: Values) -> Any:
        """What a whole pack is worth at most, of the type of ``values``."""
        return self.solve(values).best[-1, -1]


@dataclass(frozen=True)
class VectorTable:
    """What packs are worth.

    Attributes:
        knapsack: The problem.
        best: Value by room, all rooms in one row, with at most as many items as the row says, [levels, num_rooms].
        last: The kind of an item of the pack that is worth this, -1 where one item fewer is worth as much; int32.
    """

    knapsack: VectorKnapsack
    best: Values
    last: npt.NDArray[np.int32]

    def patterns(self) -> npt.NDArray[np.int32]:
        """For each kind the most valuable pattern that has it: int32[num_kinds, most items], -1 where none is."""
        problem = self.knapsack
        widths = (problem.capacity + 1).tolist()
        strides = np.array([int(np.prod(widths[place + 1 :])) for place in range(len(widths))], np.int64)
        steps = problem.sizes @ strides
        members = [np.arange(len(steps), dtype=np.int32)]
        room = int(problem.capacity @ strides) - steps
        level = np.full(len(steps), min(problem.depth - 1, len(self.best) - 1))
        while True:
            kinds = self.last[level, room]
            while (skipped := (kinds < 0) & (level > 0)).any():
                level = level - skipped
                kinds = self.last[level, room]
            level = np.maximum(level - 1, 0)
            taken = kinds >= 0
            if not taken.any():
                return np.stack(members, axis=1)
            members.append(kinds)
            room = np.where(taken, room - steps[kinds], 0)
