"""Packing a stream of samples whose lengths are not known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from abele.arrays import Float64, Int64
from abele.packing.assign import reordered
from abele.packing.columns import FractionalPacking, exact_bound, generate
from abele.packing.histogram import SizeHistogram, checked_sizes
from abele.packing.histogram_fit import GroupOfPacks, longest_pack_first, num_packs, runs_of, strategies_of
from abele.packing.knapsack import Knapsack, Values
from abele.packing.packs import Packs
from abele.packing.plan import PackingPlan
from abele.packing.rounding import rounded
from abele.packing.solve import Method, checked_items, checked_limits, pack

# Packing few items with the prices of many: what column generation learned of a stream packs its next window.
#
# A window of a thousand items has hundreds of lengths, few items of each. Column generation takes as long for it as
# for a million items with these lengths, and a solution in whole packs is no better than what its prices alone can
# tell. So prices are kept: what an item of each length is worth, when a pack costs 1. Packs are filled one after the
# other, from the longest item that is left, by what is worth most together with it: each next member by its own price
# and the most that the room beside it could be worth. What a single item could be worth there is known of the items
# that are left; deeper levels come from a table that is made anew when a sixteenth of the items is gone.
#
# Prices are those of all items that came lately, and are made anew when there are four times as many, later when half
# of them are other ones: prices of one window alone leave it 0.7 % above its own optimum, those of sixteen 0.2 %, and
# those of a programme that was ended early are worse too. Where a window needs more packs than its sums explain, by
# more than the items of the prices did, the stream has changed: what came before is forgotten, and column generation
# packs the window itself. The bound that prices prove of another window (Farley) was tried for that and is too weak: a
# length that the prices do not know spoils it.

CHANGED = 0.04
"""By how much more, as a proportion, a window may exceed the packs that its sums need than the items of its prices do:
from there on a stream is taken to have changed. Windows of a thousand alike items differ by 0.02."""

_MEMORY = 32
"""Windows, about, whose items make prices: older ones count half as much each time as many have come."""

_MORE = 4
"""Growth of the number of items seen after which prices are made anew, until the memory is full."""

_BY_LENGTH = 0.01
"""Weight of an item's share of the capacity in its price: of equally good companions, the longer ones are taken."""

_GONE = 16
"""One part of this many of the items is used up before the worth of rooms is worked out again."""


@dataclass
class PriceBook:
    """Prices of a stream's items by length, and the packing of its windows by them.

    Args:
        capacity: Size that a pack holds.
        depth: The most items of a pack; None for no limit.
    """

    capacity: int
    depth: int | None
    _prices: Float64 | None = None
    _over: float = 1.0
    _seen: Int64 = field(init=False)
    _num_seen: int = 0
    _priced_at: int = 0

    def __post_init__(self) -> None:
        self._seen = np.zeros(self.capacity + 1, np.int64)

    def pack(self, histogram: SizeHistogram) -> tuple[list[GroupOfPacks], int]:
        """Packs of the items of a window, and a proven bound of their number.

        Args:
            histogram: Lengths of a window, small enough for a knapsack (:attr:`Knapsack.is_small`).
        """
        knapsack = Knapsack.of(histogram, self.capacity, self.depth)
        self._remember(histogram)
        if self._prices is None:
            return self._solved(knapsack, histogram)
        if self._num_seen >= _MORE * self._priced_at:
            lengths = np.flatnonzero(self._seen)
            many = SizeHistogram(lengths[:, None], self._seen[lengths])
            wide = Knapsack.of(many, self.capacity, self.depth)
            self._take(wide, many, _fractional(wide, many))
        prices = self._prices[knapsack.lengths]
        bound = exact_bound(knapsack, histogram.counts, prices)
        groups = priced_fit(knapsack, histogram.counts, prices)
        if num_packs(groups) <= (self._over + CHANGED) * _by_sums(knapsack, histogram) + 1:
            return groups, bound
        self._seen[:] = 0
        self._num_seen = 0
        self._remember(histogram)
        return self._solved(knapsack, histogram)

    def _remember(self, histogram: SizeHistogram) -> None:
        self._seen[histogram.lengths] += histogram.counts
        self._num_seen += histogram.num_items
        if self._num_seen >= 2 * _MEMORY * histogram.num_items:
            self._seen //= 2
            self._num_seen //= 2
            # The older half is gone: prices are made anew.
            self._priced_at = 0

    def _solved(self, knapsack: Knapsack, histogram: SizeHistogram) -> tuple[list[GroupOfPacks], int]:
        """The packs of column generation, whose prices are taken from now on."""
        fractional = _fractional(knapsack, histogram)
        self._take(knapsack, histogram, fractional)
        return rounded(knapsack, histogram.counts, fractional), fractional.bound

    def _take(self, knapsack: Knapsack, histogram: SizeHistogram, fractional: FractionalPacking) -> None:
        """Prices by length, float64[capacity + 1], from those of the lengths of a histogram."""
        # A length that did not come is worth what the next longer one is, and beyond all of them a whole pack.
        places = np.searchsorted(histogram.lengths, np.arange(self.capacity + 1))
        self._prices = np.append(fractional.values, 1.0)[places]
        self._over = fractional.num_packs / _by_sums(knapsack, histogram)
        self._priced_at = self._num_seen


def _by_sums(knapsack: Knapsack, histogram: SizeHistogram) -> float:
    """Packs that the sum of lengths and the number of items need, whichever are more."""
    return max(float(histogram.totals[0]) / knapsack.capacity, histogram.num_items / knapsack.depth)


def _fractional(knapsack: Knapsack, histogram: SizeHistogram) -> FractionalPacking:
    fit = longest_pack_first(histogram.lengths.tolist(), histogram.counts.tolist(), knapsack.capacity, knapsack.depth)
    return generate(knapsack, histogram.counts, strategies_of(fit)[0])


def priced_fit(knapsack: Knapsack, counts: Int64, prices: Float64) -> list[GroupOfPacks]:
    """Packs of all items, filled by price.

    Args:
        knapsack: Lengths, capacity and depth.
        counts: Items of each length, int64[num_kinds].
        prices: Value of an item of each length, float64[num_kinds].
    """
    kinds = np.arange(len(counts))
    worth = prices + _BY_LENGTH / knapsack.capacity * knapsack.lengths
    left = counts.copy()
    groups: list[GroupOfPacks] = []
    num_left = int(left.sum())
    while num_left:
        kept = left > 0
        kinds, worth, left = kinds[kept], worth[kept], left[kept]
        leave = num_left - max(num_left // _GONE, 1)
        filler = _Filler(Knapsack(knapsack.lengths[kinds], knapsack.capacity, knapsack.depth), worth, left)
        while num_left > leave:
            members = filler.fill()
            runs = runs_of(members)
            places, times = np.array([place for place, _ in runs]), np.array([times for _, times in runs])
            packs = 1 + int((left[places] // times).min())
            left[places] -= times * (packs - 1)
            groups.append(GroupOfPacks(tuple((int(kinds[place]), n) for place, n in runs), len(members), packs))
            num_left -= packs * len(members)
    return groups


class _Filler:
    """Filler of packs from the items that are left; ``left`` counts them by kind."""

    def __init__(self, knapsack: Knapsack, worth: Float64, left: Int64) -> None:
        self._lengths, self._capacity = knapsack.lengths, knapsack.capacity
        self._worth, self._left = worth, left
        self._depth = min(knapsack.depth, knapsack.capacity // int(knapsack.lengths[0]))
        narrow = Knapsack(knapsack.lengths, knapsack.capacity, self._depth)
        # Packs of two need to know what one item is worth, and no more.
        self._rooms: Values = narrow.solve(worth).best if self._depth > 2 else np.zeros((1, 1))

    def fill(self) -> list[int]:
        """Kinds of one pack, taken off the items that are left: the longest, then the most valuable beside it."""
        first = int(np.flatnonzero(self._left)[-1])
        members, room = [first], self._capacity - int(self._lengths[first])
        self._left[first] -= 1
        single = self._worth_of_one(room)
        while len(members) < self._depth:
            # Lengths ascend: those that fit come first.
            fits = int(np.searchsorted(self._lengths, room, side="right"))
            scores = np.where(self._left[:fits] > 0, self._worth[:fits], -np.inf)
            more = self._depth - len(members) - 1
            if more and fits:
                rooms = room - self._lengths[:fits]
                # The one row of a table without depths says what any number of items is worth.
                scores += single[rooms] if more == 1 else self._rooms[min(more, len(self._rooms) - 1), rooms]
            if not fits or scores.max() == -np.inf:
                break
            chosen = int(scores.argmax())
            members.append(chosen)
            self._left[chosen] -= 1
            room -= int(self._lengths[chosen])
        return members

    def _worth_of_one(self, room: int) -> Float64:
        """Highest price of one remaining item that fits each room up to ``room``."""
        found = np.zeros(room + 1)
        fits = int(np.searchsorted(self._lengths, room, side="right"))
        found[self._lengths[:fits]] = np.where(self._left[:fits] > 0, self._worth[:fits], 0.0)
        most: Float64 = np.maximum.accumulate(found)
        return most


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
