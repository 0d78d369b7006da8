"""Packs of items in their own order: next fit, and windows of neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.packing.histogram import checked_sizes
from abele.packing.packs import Packs
from abele.packing.solve import checked_items, checked_limits, pack_items


def pack_in_order(
    sizes: npt.ArrayLike,
    capacity: int | Sequence[int],
    *,
    depth: int | None = None,
    window: int | None = None,
) -> Packs:
    """Pack items without moving them far from their neighbours.

    Args:
        sizes: Integers of shape [num_items] or [num_items, num_capacities].
        capacity: Size that a pack holds, one number for each size of an item.
        depth: The most items of a pack; None for no limit.
        window: None packs strictly in order: each pack has the items that follow those of the pack before (next fit).
            With a number, so many neighbouring items are packed among themselves by best fit; items of a pack are in
            order, and packs in the order of their first items, so that no item is moved by more than the window.

    Raises:
        ItemSizeError: A size is zero, negative, not a whole number or over its capacity.
        PackingError: There are no items, or capacity, depth or window are below 1.
    """
    limits, depth, window = checked_limits(capacity, depth, window=window)
    rows = checked_items(checked_sizes(sizes), limits)
    if window is None:
        return Packs(np.arange(len(rows)), _next_fit(rows, limits, depth))
    items, depths = [], []
    for begin in range(0, len(rows), window):
        packs = in_order(pack_items(rows[begin : begin + window], limits, depth=depth))
        items.append(packs.items + begin)
        depths.append(packs.depths)
    return Packs(np.concatenate(items), np.concatenate([[0], np.cumsum(np.concatenate(depths))]))


def in_order(packs: Packs) -> Packs:
    """The same packs with the items of each in ascending order, and in the order of their first items."""
    pack_of = packs.pack_of_slot
    first = np.minimum.reduceat(packs.items, packs.begins[:-1])
    rank = np.empty(len(packs), np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(packs))
    order = np.lexsort((packs.items, rank[pack_of]))
    depths = np.empty(len(packs), np.int64)
    depths[rank] = packs.depths
    return Packs(packs.items[order], np.concatenate(([0], np.cumsum(depths))))


def _next_fit(rows: Int64, limits: tuple[int, ...], depth: int | None) -> Int64:
    """First item of each pack that takes as many of the next items as it holds, and the end of the last pack.

    Sums from the beginning say for every item where a pack would end that began there. Packs begin at what is reached
    from item 0 by going from beginning to end over and over: those that are 1, 2, 4 … steps away at once.
    """
    num_items = len(rows)
    following = np.full(num_items + 1, num_items)
    following[:-1] = np.minimum(num_items, np.arange(num_items) + (depth or num_items))
    for column, limit in enumerate(limits):
        sums = np.concatenate(([0], np.cumsum(rows[:, column])))
        ends = np.searchsorted(sums, sums[:-1] + limit, side="right") - 1
        following[:-1] = np.minimum(following[:-1], ends)
    begins = np.zeros(1, np.int64)
    while True:
        further = following[begins]
        begins = np.concatenate([begins, further[further < num_items]])
        if further[-1] == num_items:
            return np.append(begins, num_items)
        following = following[following]
