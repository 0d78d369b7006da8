"""Plan that packs a histogram: strategies, the number of packs of each, and the packing factor."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.packing.assign import Seed, assigned
from abele.packing.histogram import SizeHistogram
from abele.packing.packs import Packs


@dataclass(frozen=True, eq=False)
class PackingPlan:
    """Strategies that hold all items of a histogram exactly once.

    Attributes:
        histogram: The items.
        capacity: Size that a pack holds, for each size of an item: (tokens,) or (nodes, edges).
        depth: The most items of a pack; None for no limit.
        method: Method that found the strategies; where column generation was too large, the best fit in its place.
        strategies: The kinds of items of each strategy, as rows of ``histogram.sizes``, largest first.
        counts: Packs made by each strategy, int64[num_strategies], all at least 1.
        bound: A number of packs that no packing is below, proven.
        splits: Items over the capacity were cut into pieces; the histogram counts pieces.
    """

    histogram: SizeHistogram
    capacity: tuple[int, ...]
    depth: int | None
    method: str
    strategies: Packs
    counts: Int64
    bound: int
    splits: bool = False

    @property
    def num_packs(self) -> int:
        """Packs in all."""
        return int(self.counts.sum())

    @property
    def num_items(self) -> int:
        """Items in all; with ``splits``, pieces of items."""
        return self.histogram.num_items

    @property
    def gap(self) -> int:
        """Packs above the proven bound: 0 is optimal."""
        return self.num_packs - self.bound

    @property
    def patterns(self) -> Int64:
        """Lengths in the packs of each strategy, longest first, then zeros; int64[num_strategies, most items]."""
        depths = self.strategies.depths
        table = np.zeros((len(depths), int(depths.max())), np.int64)
        slot = np.arange(len(self.strategies.items)) - np.repeat(self.strategies.begins[:-1], depths)
        table[self.strategies.pack_of_slot, slot] = self.histogram.lengths[self.strategies.items]
        return table

    @property
    def loads(self) -> Int64:
        """Load of a pack of each strategy, int64[num_strategies, num_capacities]."""
        return np.add.reduceat(self.histogram.sizes[self.strategies.items], self.strategies.begins[:-1], axis=0)

    @property
    def padding(self) -> int:
        """Tokens (the first capacity) of all packs that nothing lies in."""
        return self.num_packs * self.capacity[0] - int(self.histogram.totals[0])

    @property
    def efficiencies(self) -> tuple[float, ...]:
        """The share of each capacity that is used."""
        return tuple(
            float(Fraction(int(total), self.num_packs * capacity))
            for total, capacity in zip(self.histogram.totals, self.capacity, strict=True)
        )

    @property
    def efficiency(self) -> float:
        """The share of tokens (the first capacity) that are real ones."""
        return self.efficiencies[0]

    @property
    def factor(self) -> float:
        """Items by pack, the packing factor."""
        return self.num_items / self.num_packs

    def assign(self, sizes: npt.ArrayLike, *, seed: Seed | None = None) -> Packs:
        """Give actual items to the strategies.

        Args:
            sizes: The items that the histogram counted, integers of shape [num_items] or [num_items, num_capacities].
            seed: Items of equal size are shuffled, and so are the packs. Without one, items lie in ascending order of
                strategies and numbers.

        Returns:
            The packs. Where items were split, a :class:`SplitPacks`, which has the offset of each piece.

        Raises:
            PackingError: The items are not those of the histogram.
        """
        return assigned(self, sizes, seed)
