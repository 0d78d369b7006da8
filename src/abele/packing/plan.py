"""Plan that packs a histogram: strategies, the number of packs of each, and the packing factor."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import PackingError
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


# Expected speed-up of training by packing: the packing factor, less the extra cost of packed attention and losses.

PROFILED = {2: 0.04283, 3: 0.04287, 4: 0.04294, 8: 0.04481, 16: 0.04477}
"""Cycles that packing adds to a step, as a proportion, by depth: profiled by its authors on an IPU-M2000.

Pre-training of BERT with 512 tokens: the mask between sequences in attention, and losses by sequence.
Source: arXiv 2107.02027, table 1; deck 004. Depths between are taken to cost as the next one that was profiled.
"""


@dataclass(frozen=True)
class ExpectedSpeedUp:
    """Expected speed-up of packing over one sequence per row.

    Attributes:
        speed_up: Ratio of sequences per second.
        overhead: Extra time of a step of packs over one of single sequences, as a proportion.
        source: Source of the overhead.
    """

    speed_up: float
    overhead: float
    source: str


def expected_speed_up(
    plan: PackingPlan, machine: str = "IPU-M2000", *, overhead: float | None = None
) -> ExpectedSpeedUp:
    """The packing factor over one plus the overhead.

    Args:
        plan: The packs.
        machine: Name of the machine that trains: says whether the profiled overhead is its own or taken over.
        overhead: Extra time of a step by packing, as a proportion, where that was measured or modelled. None takes
            the published figure for the plan's depth.

    Raises:
        PackingError: The overhead is negative or not a number.
    """
    if overhead is not None:
        if not 0 <= overhead < float("inf"):
            raise PackingError(f"an overhead is a proportion of at least 0, got {overhead}")
        return ExpectedSpeedUp(plan.factor / (1 + overhead), overhead, "given")
    deepest = int(plan.strategies.depths.max())
    if deepest == 1:
        return ExpectedSpeedUp(1.0, 0.0, "none: nothing lies beside anything")
    depth = min((known for known in PROFILED if known >= deepest), default=max(PROFILED))
    source = f"published: BERT at 512 tokens and depth {depth}, profiled on an IPU-M2000 (arXiv 2107.02027)"
    if "M2000" not in machine:
        source += f"; taken over for {machine}, not modelled for it"
    return ExpectedSpeedUp(plan.factor / (1 + PROFILED[depth]), PROFILED[depth], source)
