"""Column generation for items of several sizes: the programme of one capacity, priced by a knapsack of all of them.

The bound of any capacity alone does not see that items which fit by nodes may not fit by edges. The programme over
patterns sees it. Rounded packs are completed item by item: into the pack whose room it fills best, as far as there is
one, and what is left then greedily into new packs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64
from abele.packing.columns import generate
from abele.packing.groups import GroupOfPacks, num_packs, runs_of, strategies_of
from abele.packing.histogram import SizeHistogram
from abele.packing.rounding import rounded_with, without_surplus
from abele.packing.vector_fit import vector_fit
from abele.packing.vector_knapsack import VectorKnapsack


def vector_columns(
    knapsack: VectorKnapsack,
    histogram: SizeHistogram,
    greedy: Sequence[GroupOfPacks],
    *,
    at_least: int,
    tolerance: float,
) -> tuple[list[GroupOfPacks], int]:
    """Packs of all items, no more than the greedy ones, and a proven bound of their number.

    Args:
        knapsack: Sizes, capacities and depth, small enough (:attr:`VectorKnapsack.is_small`).
        histogram: Items by size.
        greedy: Packs of all items that are known.
        at_least: A number of packs that is known to be needed.
        tolerance: The proportion of packs by which the programme may be above its bound in the end.
    """
    singles = [np.array([kind]) for kind in range(len(histogram.counts))]
    first = [*singles, *strategies_of(greedy)[0]]
    fractional = generate(knapsack, histogram.counts, first, at_least=at_least, tolerance=tolerance)
    found = rounded_with(_Completion(knapsack, histogram), histogram.counts, fractional)
    return min([*greedy], found, key=num_packs), fractional.bound


@dataclass(frozen=True)
class _Completion:
    """Fills up packs of several capacities until every item has its place."""

    knapsack: VectorKnapsack
    histogram: SizeHistogram

    def __call__(self, counts: Int64, groups: Sequence[GroupOfPacks]) -> list[GroupOfPacks]:
        kept, missing = without_surplus(counts, groups)
        left = np.array(missing, np.int64)
        filled = self._into_room(kept, left)
        kinds = np.flatnonzero(left)
        if not len(kinds):
            return filled
        rest = SizeHistogram(self.histogram.sizes[kinds], left[kinds])
        more = vector_fit(rest, self.knapsack.capacity.tolist(), self.knapsack.depth)
        return filled + [
            GroupOfPacks(tuple((int(kinds[kind]), times) for kind, times in group.runs), group.depth, group.count)
            for group in more
        ]

    def _into_room(self, groups: list[GroupOfPacks], left: Int64) -> list[GroupOfPacks]:
        """Put items of ``left`` into packs with room, largest first, and take them off ``left``."""
        sizes, capacity = self.histogram.sizes, self.knapsack.capacity
        found = list(groups)
        rooms = [capacity - sum(sizes[kind] * times for kind, times in group.runs) for group in found]
        shares = (sizes / capacity).max(axis=1)
        for kind in sorted(np.flatnonzero(left).tolist(), key=lambda kind: -shares[kind]):
            while left[kind] and found:
                rest = np.stack(rooms) - sizes[kind]
                open_ = np.array([group.depth < self.knapsack.depth for group in found]) & (rest >= 0).all(axis=1)
                if not open_.any():
                    break
                place = int(np.argmin(np.where(open_, (rest / capacity).max(axis=1), np.inf)))
                group = found[place]
                packs = min(group.count, int(left[kind]))
                joined = runs_of([k for k, times in group.runs for _ in range(times)] + [kind])
                found[place] = GroupOfPacks(joined, group.depth + 1, packs)
                if packs < group.count:
                    found.append(GroupOfPacks(group.runs, group.depth, group.count - packs))
                    rooms.append(rooms[place])
                rooms[place] = rest[place]
                left[kind] -= packs
        return found
