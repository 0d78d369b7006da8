"""The most that one pack can be worth when each item has a value: pricing of patterns, and of bounds.

Items of every kind may be taken as often as they fit. Without a depth limit, what a capacity is worth follows from what
smaller ones are worth: the last item, and the best of the rest. As no item is shorter than the shortest, that many
capacities are computed at once. With a limit there is one such table for each number of items. Values may be floating
point, or int64 where the result has to be exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Float64, Int64
from abele.packing.histogram import SizeHistogram

MOST_CELLS = 5 * 10**6
"""Lengths times capacity up to which a knapsack is small: 2,000 lengths of 2,500 tokens take ten seconds."""

MOST_WORK = 12 * 10**6
"""Cells times the depth up to which a knapsack with a limited depth counts as small."""

Values = npt.NDArray[Any]


@dataclass(frozen=True)
class Knapsack:
    """Lengths, what a pack holds and how many items it may have.

    Attributes:
        lengths: Ascending lengths, int64[num_kinds], each at most ``capacity``.
        capacity: Size that a pack holds.
        depth: The most items of a pack.
    """

    lengths: Int64
    capacity: int
    depth: int

    @staticmethod
    def of(histogram: SizeHistogram, capacity: int, depth: int | None) -> Knapsack:
        """The knapsack of packing a histogram: no pack has more items than fit, or than there are."""
        most = min(capacity // int(histogram.lengths[0]), histogram.num_items)
        return Knapsack(histogram.lengths, capacity, most if depth is None else min(depth, most))

    @property
    def unlimited(self) -> bool:
        """True if the depth limits nothing."""
        return self.depth >= self.capacity // int(self.lengths[0])

    @property
    def is_small(self) -> bool:
        """True if column generation ends within half a minute for it."""
        cells = len(self.lengths) * (self.capacity + 1)
        return cells <= MOST_CELLS and cells * (1 if self.unlimited else self.depth) <= MOST_WORK

    def flat_values(self) -> list[Float64]:
        """Values of which no pack is worth more than 1: the share of the capacity that an item takes, and of items."""
        return [self.lengths / self.capacity, np.full(len(self.lengths), 1 / self.depth)]

    def solve(self, values: Values) -> KnapsackTable:
        """Highest value of a pack of each capacity, when an item of each kind is worth ``values`` [num_kinds]."""
        return _unlimited(self, values) if self.unlimited else _by_depth(self, values)

    def best_value(self, values: Values) -> Any:
        """Highest value of a whole pack, of the type of ``values``."""
        return self.solve(values).best[-1, -1]


@dataclass(frozen=True)
class KnapsackTable:
    """Highest values of packs, by room and number of items.

    Attributes:
        steps: For each kind of item, by how many rooms one of them makes a pack smaller; int64[num_kinds].
        depth: The most items of a pack.
        best: Value by room with at most as many items as the row says, [levels, num_rooms]; the last room is a whole
            pack. A depth that does not limit has one row, and rows that would be as the one before are left out.
        last: The kind of an item of the pack that is worth this, and -1 where one item fewer, or less room, is worth
            as much; int32, shape as ``best``.
    """

    steps: Int64
    depth: int
    best: Values
    last: npt.NDArray[np.int32]

    def patterns(self) -> npt.NDArray[np.int32]:
        """For each kind the most valuable pattern that has it: int32[num_kinds, most items], -1 where none is."""
        members = [np.arange(len(self.steps), dtype=np.int32)]
        room = self.best.shape[1] - 1 - self.steps
        level = np.full(len(self.steps), min(self.depth, len(self.best)) - 1)
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
            room = np.where(taken, room - self.steps[kinds], 0)


def _by_depth(knapsack: Knapsack, values: Values) -> KnapsackTable:
    lengths, capacity = knapsack.lengths, knapsack.capacity
    best = np.zeros((knapsack.depth + 1, capacity + 1), values.dtype)
    last = np.full(best.shape, -1, np.int32)
    # Best values by room, behind those of negative rooms: a window of them has the rooms left beside an item.
    never = _never(values)
    before = np.full(2 * capacity + 1, never)
    rest = np.lib.stride_tricks.sliding_window_view(before, capacity + 1)
    for items in range(1, knapsack.depth + 1):
        before[capacity:] = best[items - 1]
        worth = rest[capacity - lengths]
        worth += values[:, None]
        kinds = worth.argmax(axis=0)
        found = np.take_along_axis(worth, kinds[None], axis=0)[0]
        better = found > best[items - 1]
        best[items] = np.where(better, found, best[items - 1])
        last[items] = np.where(better, kinds, -1)
    return KnapsackTable(lengths, knapsack.depth, best, last)


def _unlimited(knapsack: Knapsack, values: Values) -> KnapsackTable:
    lengths, capacity, never = knapsack.lengths, knapsack.capacity, _never(values)
    step = int(lengths[0])
    worth_of = np.concatenate([np.full(capacity, never), np.zeros(capacity + 1, values.dtype)])
    best = worth_of[capacity:]
    last = np.full(capacity + 1, -1, np.int32)
    for begin in range(step, capacity + 1, step):
        end = min(begin + step, capacity + 1)
        num_kinds = int(np.searchsorted(lengths, end - 1, side="right"))
        places = (capacity + np.arange(begin, end))[None, :] - lengths[:num_kinds, None]
        worth = worth_of[places] + values[:num_kinds, None]
        kinds = worth.argmax(axis=0)
        found = np.take_along_axis(worth, kinds[None], axis=0)[0]
        best[begin:end] = np.maximum(np.maximum.accumulate(found), best[begin - 1])
        last[begin:end] = np.where(found >= best[begin:end], kinds, -1)
    # Room that is worth no more than less room is filled as that is.
    at = np.maximum.accumulate(np.where((last >= 0) & (best > 0), np.arange(capacity + 1), 0))
    return KnapsackTable(lengths, knapsack.depth, best[None], last[at][None])


def _never(values: Values) -> Any:
    """Less than anything is worth, with room for sums."""
    return np.array(-(2**62) if values.dtype.kind == "i" else -np.inf, values.dtype)
