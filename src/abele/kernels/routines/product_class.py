"""Classes of matrix products, and the points of each at which a host measures rates.

A class says how the operands lie; its points are a grid of rows, columns and summed elements. The rate of any shape
follows from those of the eight points around it. Rates are powers of extents, nearly: overheads make them proportional
to a short extent, and they level off where it is long. So the logarithm of the rate is interpolated, linear in the
logarithm of each extent. Below the grid a rate falls on as it did between the first two points; above it stays, since
all that is shared among more products is small by then.

Example: of 24 columns, log(24/8) / log(96/8) = 0.44 of the logarithm comes from the points of 96 columns, 0.56 from
those of 8.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

ROWS, COLUMNS, SUMMED = (8, 192), (8, 96, 1000), (12, 40, 750)
"""Extents of the points: less than a register tile, a few tiles, and what fits no second-level cache. Beyond some
hundred rows nothing changes, since an element of the right operand is then used so often."""
AXES = (ROWS, COLUMNS, SUMMED)


@dataclass(frozen=True)
class ProductClass:
    """Products whose operands lie alike.

    Attributes:
        left_turned: True if elements that are summed do not lie next to each other in the left operand.
        right_turned: True if columns do not lie next to each other in the right operand.
        pairs: True if both operands are of bf16 that the CPU multiplies in pairs.
        is_crowded: True if the rows of the right operand in memory lie a power of two apart, nearly: they meet in a few
            places of the first-level cache, which loses them before they are used up.
        is_left_crowded: True if the left operand is turned, and its rows in memory lie so. Rows of a left operand
            that is not turned may: a register tile has few of them, and uses up their lines.
    """

    left_turned: bool = False
    right_turned: bool = False
    pairs: bool = False
    is_crowded: bool = False
    is_left_crowded: bool = False

    @property
    def name(self) -> str:
        """Name in file names, such as ``plain-turned``."""
        words = ["turned" if turned else "plain" for turned in (self.left_turned, self.right_turned)]
        words += ["pairs"] * self.pairs + ["crowded"] * self.is_crowded + ["leftcrowded"] * self.is_left_crowded
        return "-".join(words)

    def __str__(self) -> str:
        left, right = ("Aᵀ" if self.left_turned else "A"), ("Bᵀ" if self.right_turned else "B")
        crowded = [f"{name} crowded" for name, is_so in (("A", self.is_left_crowded), ("B", self.is_crowded)) if is_so]
        return ", ".join([f"{left}·{right}", *["bf16"] * self.pairs, *crowded])


CLASSES = tuple(
    ProductClass(left, right, is_crowded=is_crowded, is_left_crowded=is_left_crowded)
    for is_left_crowded, is_crowded, right, left in product((False, True), repeat=4)
    if left or not is_left_crowded
)
"""Classes of f32."""
POINTS = tuple(product(*AXES))
"""Rows, columns and summed elements that are measured of a class."""


def share_at(shares: Sequence[float], shape: tuple[int, int, int]) -> float:
    """Share of the machine's arithmetic for products of ``shape``, from those at :data:`POINTS`."""
    total = 0.0
    for corner in product(*(list(_weights(axis, extent)) for axis, extent in zip(AXES, shape, strict=True))):
        place = 0
        for axis, (number, _) in zip(AXES, corner, strict=True):
            place = place * len(axis) + number
        total += math.prod(weight for _, weight in corner) * math.log(shares[place])
    return math.exp(total)


def _weights(axis: Sequence[int], extent: int) -> Iterator[tuple[int, float]]:
    """Numbers of the neighbours of ``extent`` on an axis, and how much each counts; the sum is 1."""
    if extent >= axis[-1]:
        yield len(axis) - 1, 1.0
        return
    above = max(1, bisect_right(axis, extent))
    low, high = axis[above - 1], axis[above]
    part = math.log(extent / low) / math.log(high / low)
    yield above - 1, 1 - part
    yield above, part
