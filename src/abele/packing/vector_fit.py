"""Packing items of several sizes, such as graphs of nodes and edges, into packs with a capacity for each.

One pattern after the other is filled greedily, from the kind of item that takes most of any capacity, and then by the
kind that leaves the least room: the sum of squares of the shares left, each weighed by how scarce its capacity is in
what remains to be packed. The pattern is used as often as there are items for it, so that each pattern uses up a kind,
and the work depends on how many kinds there are and not on how many items. Weights by scarcity and equal ones are both
tried, and the better result is taken.

There is no small and certain gap here as for one capacity: what is proven is the best bound of any capacity alone.

Source: Panigrahy, Talwar, Uyeda, Wieder, "Heuristics for vector bin packing", 2011 (norm-based greedy).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from abele.arrays import Float64, Int64
from abele.packing.groups import GroupOfPacks, num_packs
from abele.packing.histogram import SizeHistogram


def vector_fit(histogram: SizeHistogram, capacity: Sequence[int], depth: int) -> list[GroupOfPacks]:
    """Packs of all items, within every capacity.

    Args:
        histogram: Items by size, each within the capacities.
        capacity: Capacity of a pack, for each size.
        depth: The most items of a pack.
    """
    limits = np.array(capacity, np.int64)
    return min((_greedy(histogram, limits, depth, scarce) for scarce in (True, False)), key=num_packs)


def _greedy(histogram: SizeHistogram, capacity: Int64, depth: int, scarce: bool) -> list[GroupOfPacks]:
    shares = histogram.sizes / capacity
    # Kinds that are used up leave the arrays, the largest lead.
    order = np.argsort(-shares.max(axis=1), kind="stable")
    sizes, shares, left = histogram.sizes[order], shares[order], histogram.counts[order]
    groups = []
    while len(order):
        needed = left @ shares
        weights = needed / needed.sum() if scarce else np.full(len(capacity), 1 / len(capacity))
        members = Counter(_filled(sizes, shares, left, capacity, depth=depth, weights=weights))
        kinds, times = np.array(list(members)), np.array(list(members.values()))
        packs = int((left[kinds] // times).min())
        runs = tuple((int(order[kind]), count) for kind, count in members.items())
        groups.append(GroupOfPacks(runs, int(times.sum()), packs))
        left[kinds] -= times * packs
        kept = left > 0
        order, sizes, shares, left = order[kept], sizes[kept], shares[kept], left[kept]
    return groups


def _filled(sizes: Int64, shares: Float64, left: Int64, capacity: Int64, *, depth: int, weights: Float64) -> list[int]:
    """The members of one pack: the first kind, then the kinds that leave the least room."""
    members = [0]
    room = capacity - sizes[0]
    spare = left.copy()
    spare[0] -= 1
    # A kind that does not fit now never will.
    fits = np.arange(len(sizes))
    while len(members) < depth:
        fits = fits[(sizes[fits] <= room).all(axis=1) & (spare[fits] > 0)]
        if not len(fits):
            break
        rest = room / capacity - shares[fits]
        chosen = int(fits[np.argmin((rest * rest) @ weights)])
        members.append(chosen)
        room = room - sizes[chosen]
        spare[chosen] -= 1
    return members
