"""Packing few items with the prices of many: what column generation learned of a stream packs its next window.

A window of a thousand items has hundreds of lengths, few items of each. Column generation takes as long for it as for a
million items with these lengths, and a solution in whole packs is no better than what its prices alone can tell. So
prices are kept: what an item of each length is worth, when a pack costs 1. Packs are filled one after the other, from
the longest item that is left, by what is worth most together with it: each next member by its own price and the most
that the room beside it could be worth. What a single item could be worth there is known of the items that are left;
deeper levels come from a table that is made anew when a sixteenth of the items is gone.

Prices are those of all items that came lately, and are made anew when there are four times as many, later when half of
them are other ones: prices of one window alone leave it 0.7 % above its own optimum, those of sixteen 0.2 %, and those
of a programme that was ended early are worse too. Where a window needs more packs than its sums explain, by more than
the items of the prices did, the stream has changed: what came before is forgotten, and column generation packs the
window itself. The bound that prices prove of another window (Farley) was tried for that and is too weak: a length that
the prices do not know spoils it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from abele.arrays import Float64, Int64
from abele.packing.columns import FractionalPacking, exact_bound, generate
from abele.packing.groups import GroupOfPacks, num_packs, runs_of, strategies_of
from abele.packing.histogram import SizeHistogram
from abele.packing.histogram_fit import longest_pack_first
from abele.packing.knapsack import Knapsack, Values
from abele.packing.rounding import rounded

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
