"""Cycles of the vertices of a sorting network. Source: machine reference §4.12."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64
from abele.numerics import ElementType

SUPERVISOR_CYCLES = 19
"""Starting the workers on one round of a network."""


@dataclass(frozen=True)
class PairCost:
    """Slots that comparing and exchanging pairs takes a worker.

    Attributes:
        overhead: Entering the vertex.
        item: An entry of its work list.
        first: The first pair.
        inner: Each further pair.
        outer: Each further run of neighbouring pairs.
    """

    overhead: int
    item: int
    first: int
    inner: int
    outer: int

    def cycles(self, pairs: Int64, distance: int, workers: int) -> Int64:
        """Tile cycles of a round over ``pairs`` pairs, in runs of ``distance``."""
        share = -(-pairs // workers)
        runs = -(-share // distance)
        slots = self.overhead + self.item + self.first + np.maximum(share - 1, 0) * self.inner + runs * self.outer
        return np.asarray(SUPERVISOR_CYCLES + workers * slots, np.int64)


KEYS_AND_VALUES = PairCost(23, 4, 8, 11, 11)
FLOAT_KEYS = PairCost(40, 17, 13, 13, 13)
INTEGER_KEYS = PairCost(42, 22, 12, 12, 17)
"""Pairs of f32 keys with values, of f32 keys, of integer keys."""
SECOND_KEY = PairCost(47, 30, 26, 26, 24)
"""Costs of equal keys that a second one tells apart; the middle of the ranges in the source."""


def pair_cost(key: ElementType, num_values: int, by_second: bool) -> PairCost:
    """The cost of vertices for these elements; whole numbers with values take as long as without."""
    if by_second:
        return SECOND_KEY
    if not key.is_float:
        return INTEGER_KEYS
    return KEYS_AND_VALUES if num_values else FLOAT_KEYS
