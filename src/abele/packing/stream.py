"""Packing a stream of samples whose lengths are not known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.packing.assign import reordered
from abele.packing.groups import strategies_of
from abele.packing.histogram import SizeHistogram, checked_sizes
from abele.packing.knapsack import Knapsack
from abele.packing.packs import Packs
from abele.packing.plan import PackingPlan
from abele.packing.priced_fit import PriceBook
from abele.packing.solve import Method, checked_items, checked_limits, pack

Sample = TypeVar("Sample")

_HELD_PROPORTION = 0.1
"""Of a window's items, how many may wait for the next window at most."""

_SMALL_WINDOW = 5_000
"""Items of a window up to which prices pack it faster than column generation."""

_FEW_PACKS = 2
"""Packs above the bound of a small window that are few enough for best fit: the worst ones wait anyway."""


class PackStream:
    """Packs the items of a stream window by window.

    The packs that a window leaves least filled wait: their items are packed again with those of the next window, once.
    So the few bad packs are made at the end only, an item is out at most two windows after it came, and memory is that
    of a window.

    Args:
        capacity: Size that a pack holds, one number for each size of an item.
        depth: The most items of a pack; None for no limit.
        window: Items that are packed together.
        method: Method of packing a window, as of :func:`pack`.
        tolerance: Number of packs above the bound that are few enough, as of :func:`pack`: with this one, windows are
            packed by best fit unless a depth or the lengths make that bad.
        seed: Shuffles items of equal size, and the packs of each window.

    Raises:
        PackingError: Capacity, depth or window are below 1.
    """

    def __init__(
        self,
        capacity: int | Sequence[int],
        *,
        depth: int | None = None,
        window: int = 100_000,
        method: Method = "columns",
        tolerance: float = 0.001,
        seed: int | None = None,
    ) -> None:
        self.capacity, self.depth, checked = checked_limits(capacity, depth, window=window)
        self.window = checked or window
        self.method = method
        self.tolerance = tolerance
        self.seed = seed
        self.num_items = 0
        """Items that came so far."""
        self._windows = 0
        self._waiting = np.empty((0, len(self.capacity)), np.int64)
        self._numbers = np.empty(0, np.int64)
        self._held = 0
        self._plan: PackingPlan | None = None
        few = method == "columns" and len(self.capacity) == 1 and self.window <= _SMALL_WINDOW
        self._book = PriceBook(self.capacity[0], self.depth) if few else None

    def push(self, sizes: npt.ArrayLike) -> Packs:
        """Take the next items, and give the packs that are made by then.

        Args:
            sizes: Integers of shape [num_items] or [num_items, num_capacities]; there may be none.

        Returns:
            Packs of the items' numbers, counted from the beginning of the stream.

        Raises:
            ItemSizeError: A size is zero, negative, not a whole number or over its capacity. No item was taken.
        """
        if np.size(sizes) == 0:
            return _joined([])
        rows = checked_items(checked_sizes(sizes), self.capacity)
        self._waiting = np.concatenate([self._waiting, rows])
        self._numbers = np.concatenate([self._numbers, np.arange(self.num_items, self.num_items + len(rows))])
        self.num_items += len(rows)
        made = []
        while len(self._numbers) >= self.window:
            made.append(self._packed(hold=int(_HELD_PROPORTION * self.window)))
        return _joined(made)

    def finish(self) -> Packs:
        """The packs of all items that still wait."""
        return _joined([self._packed(hold=0)] if len(self._numbers) else [])

    def _packed(self, hold: int) -> Packs:
        """Packs of the first window of waiting items, but for the least filled ones, whose items go on waiting."""
        rows, numbers = self._waiting[: self.window], self._numbers[: self.window]
        seed = None if self.seed is None else (self.seed, self._windows)
        plan = self._planned(rows)
        packs = plan.assign(rows, seed=seed)
        kept = np.flatnonzero(_worst(packs, rows, self.capacity, hold, self._held))
        given = np.ones(len(packs), bool)
        given[kept] = False
        back = reordered(packs, kept).items
        packs = reordered(packs, np.flatnonzero(given))
        self._waiting = np.concatenate([rows[back], self._waiting[self.window :]])
        self._numbers = np.concatenate([numbers[back], self._numbers[self.window :]])
        self._held = len(back)
        self._windows += 1
        return Packs(numbers[packs.items], packs.begins)

    def _planned(self, rows: Int64) -> PackingPlan:
        """The plan of a window. Column generation takes as long for few items as for many: few go by prices."""
        histogram = SizeHistogram.of(rows)
        if self._book is not None and Knapsack.of(histogram, self.capacity[0], self.depth).is_small:
            plan = pack(histogram, self.capacity, depth=self.depth, method="lpfhp")
            tolerance = max(self.tolerance, _FEW_PACKS / plan.bound)
            if plan.num_packs > plan.bound * (1 + tolerance):
                groups, bound = self._book.pack(histogram)
                strategies, counts = strategies_of(groups)
                plan = replace(plan, strategies=strategies, counts=counts, bound=max(bound, plan.bound))
            return replace(plan, method=self.method)
        # Of several capacities, small windows are packed greedily.
        method = "lpfhp" if len(self.capacity) > 1 and self.window <= _SMALL_WINDOW else self.method
        self._plan = pack(
            histogram, self.capacity, depth=self.depth, method=method, tolerance=self.tolerance, like=self._plan
        )
        return self._plan


def pack_stream(
    samples: Iterable[Sample],
    capacity: int | Sequence[int],
    *,
    size: Callable[[Sample], int | Sequence[int]] = len,  # type: ignore[assignment]
    depth: int | None = None,
    window: int = 100_000,
    method: Method = "columns",
    tolerance: float = 0.001,
    seed: int | None = None,
) -> Iterator[list[Sample]]:
    """Yield packs of samples, reading no more than a window ahead.

    Args:
        samples: Any iterable, which may be endless.
        capacity: Size that a pack holds, one number for each size of a sample.
        size: The size of a sample, or its sizes.
        depth: The most samples of a pack.
        window: Samples that are packed together; see :class:`PackStream`.
        method: Method of packing a window, as of :func:`pack`.
        tolerance: As of :class:`PackStream`.
        seed: Shuffles samples of equal size, and the packs of each window.

    Raises:
        ItemSizeError: A size is zero, negative, not a whole number or over its capacity.
        PackingError: Capacity, depth or window are below 1.
    """
    stream = PackStream(capacity, depth=depth, window=window, method=method, tolerance=tolerance, seed=seed)
    waiting: dict[int, Sample] = {}
    source = iter(samples)
    while True:
        first = stream.num_items
        chunk = list(islice(source, stream.window - len(waiting)))
        waiting.update(enumerate(chunk, first))
        packs = stream.push([size(sample) for sample in chunk]) if len(waiting) == stream.window else None
        if packs is None:
            break
        yield from ([waiting.pop(number) for number in pack.tolist()] for pack in packs)
    if chunk:
        for pack in stream.push([size(sample) for sample in chunk]):
            yield [waiting.pop(number) for number in pack.tolist()]
    for pack in stream.finish():
        yield [waiting.pop(number) for number in pack.tolist()]


def _worst(packs: Packs, rows: Int64, capacity: Sequence[int], hold: int, held: int) -> npt.NDArray[np.bool_]:
    """The least filled packs, of at most ``hold`` items in all, but for those with one of the first ``held`` items."""
    filled = np.add.reduceat(rows[packs.items], packs.begins[:-1], axis=0)
    room = (1 - filled / np.array(capacity)).min(axis=1)
    old = np.logical_or.reduceat(packs.items < held, packs.begins[:-1])
    room[old] = 0
    order = np.argsort(-room, kind="stable")
    chosen = np.zeros(len(packs), bool)
    chosen[order] = np.cumsum(packs.depths[order]) <= hold
    chosen &= room > 0
    return chosen


def _joined(packs: Sequence[Packs]) -> Packs:
    """Packs one after the other."""
    items = np.concatenate([np.empty(0, np.int64), *(each.items for each in packs)])
    depths = np.concatenate([np.empty(0, np.int64), *(each.depths for each in packs)])
    return Packs(items, np.concatenate(([0], np.cumsum(depths))))
