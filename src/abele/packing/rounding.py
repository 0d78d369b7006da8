"""From fractions of patterns to whole packs that hold every item once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from abele.arrays import Float64, Int64
from abele.packing.columns import FractionalPacking
from abele.packing.histogram_fit import GroupOfPacks, longest_pack_first, runs_of
from abele.packing.knapsack import Knapsack

_SHIFTS = (1e-6, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Numbers added before rounding down: from rounding down itself to rounding up nearly all."""


Completion = Callable[[Int64, Sequence[GroupOfPacks]], list[GroupOfPacks]]
"""Completes packs to hold every item once: from numbers of items by kind, and packs with too many or too few."""


def rounded(knapsack: Knapsack, counts: Int64, fractional: FractionalPacking) -> list[GroupOfPacks]:
    """Whole packs from the fractions, the fewest of several ways of rounding.

    Patterns are used a whole number of times. Where that makes more slots than there are items, slots are emptied;
    items without a slot go by best fit into the room that is left, then into new packs.
    """
    return rounded_with(partial(completed, knapsack), counts, fractional)


def rounded_with(complete: Completion, counts: Int64, fractional: FractionalPacking) -> list[GroupOfPacks]:
    """Packs that hold every item once, by any completion of rounded patterns."""
    used = fractional.uses > 1e-9
    patterns, uses = fractional.patterns[used], fractional.uses[used]
    runs = [runs_of(row[row >= 0].tolist()) for row in patterns]
    found = [_rounded_by(complete, counts, runs, uses, shift) for shift in _SHIFTS]
    return min(found, key=lambda groups: sum(group.count for group in groups))


def _rounded_by(
    complete: Completion, counts: Int64, runs: Sequence[tuple[tuple[int, int], ...]], uses: Float64, shift: float
) -> list[GroupOfPacks]:
    whole = np.floor(uses + shift).astype(np.int64).tolist()
    groups = [
        GroupOfPacks(members, sum(times for _, times in members), count)
        for members, count in zip(runs, whole, strict=True)
        if count
    ]
    return complete(counts, groups)


def completed(knapsack: Knapsack, counts: Int64, groups: Sequence[GroupOfPacks]) -> list[GroupOfPacks]:
    """Packs that hold every item once: slots too many are emptied, items without a slot placed by best fit."""
    lengths = knapsack.lengths.tolist()
    kept, missing = without_surplus(counts, groups)
    opened = [(knapsack.capacity - sum(lengths[kind] * times for kind, times in group.runs), group) for group in kept]
    return longest_pack_first(lengths, missing, knapsack.capacity, knapsack.depth, opened)


def without_surplus(counts: Int64, groups: Sequence[GroupOfPacks]) -> tuple[list[GroupOfPacks], list[int]]:
    """Packs without the slots that no item is left for, and the items without a slot, by kind."""
    missing = counts.tolist()
    kept: list[GroupOfPacks] = []
    for group in groups:
        kept += _without_surplus(group, missing)
    return kept, missing


def _without_surplus(group: GroupOfPacks, missing: list[int]) -> list[GroupOfPacks]:
    """The packs of a group with no more members than are ``missing``, of which they are then taken off."""
    parts = [group]
    for place, (kind, times) in enumerate(group.runs):
        surplus = times * group.count - missing[kind]
        missing[kind] = max(-surplus, 0)
        if surplus <= 0:
            continue
        # Emptied as evenly as it goes: some packs lose one member more than the others.
        fewer, extra = divmod(surplus, group.count)
        cut: list[GroupOfPacks] = []
        for part in parts:
            more = min(extra, part.count)
            extra -= more
            cut += [_cut(part, place, times - fewer - 1, more), _cut(part, place, times - fewer, part.count - more)]
        parts = [part for part in cut if part.count]
    return [_tidy(part) for part in parts if any(times for _, times in part.runs)]


def _cut(group: GroupOfPacks, place: int, times: int, count: int) -> GroupOfPacks:
    runs = list(group.runs)
    runs[place] = (runs[place][0], times)
    return GroupOfPacks(tuple(runs), group.depth, count)


def _tidy(group: GroupOfPacks) -> GroupOfPacks:
    runs = tuple((kind, times) for kind, times in group.runs if times)
    return GroupOfPacks(runs, sum(times for _, times in runs), group.count)
