"""Classes of matrix products, and the points of each at which a host measures rates.

A class says how the operands lie; its points are a grid of rows, columns and summed elements. The rate of any shape
follows from those of the eight points around it. Rates are powers of extents, nearly: overheads make them proportional
to a short extent, and they level off where it is long. So the logarithm of the rate is interpolated, linear in the
logarithm of each extent. Below the grid a rate falls on as it did between the first two points; above it stays, since
all that is shared among more products is small by then.

Only which operands are transposed is measured on the whole grid. What else a class says (lines that meet in a cache,
operands in blocks) are *traits*: each is measured alone, at the :data:`CORNERS`, and its ratio to the class
without it holds for all classes. Traits of two operands cost nearly the product of what each costs.

Example: of 24 columns, log(24/8) / log(96/8) = 0.44 of the logarithm comes from the points of 96 columns, 0.56 from
those of 8.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

ROWS, COLUMNS, SUMMED = (8, 192), (8, 96, 1008), (12, 48, 992)
"""Extents of the points: less than a register tile, a few tiles, and what fits no second-level cache. Beyond some
hundred rows nothing changes, since an element of the right operand is then used so often. The longest sum is one that
loops run in parts, and blocks divide what is measured of them."""
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
        left_in_blocks: True if neighbours of the left operand lie in short blocks, each in another page.
        right_in_blocks: True if those of the right operand do, in blocks shorter than a vector.
    """

    left_turned: bool = False
    right_turned: bool = False
    pairs: bool = False
    is_crowded: bool = False
    is_left_crowded: bool = False
    left_in_blocks: bool = False
    right_in_blocks: bool = False

    @property
    def bare(self) -> ProductClass:
        """The class without traits."""
        return ProductClass(self.left_turned, self.right_turned, self.pairs)

    @property
    def traits(self) -> tuple[ProductClass, ...]:
        """For each trait a class of f32 that has it alone; the other operand is not turned."""
        left, right = ProductClass(left_turned=self.left_turned), ProductClass(right_turned=self.right_turned)
        found = (
            (self.is_crowded, replace(right, is_crowded=True)),
            (self.is_left_crowded, replace(left, is_left_crowded=True)),
            (self.left_in_blocks, replace(left, left_in_blocks=True)),
            (self.right_in_blocks, replace(right, right_in_blocks=True)),
        )
        return tuple(of for has, of in found if has)

    @property
    def points(self) -> tuple[tuple[int, int, int], ...]:
        """Points at which the class is measured: all without traits, else the corners."""
        return CORNERS if self.traits else POINTS

    @property
    def name(self) -> str:
        """Name in file names, such as ``plain-turned``."""
        words = ["turned" if turned else "plain" for turned in (self.left_turned, self.right_turned)]
        words += ["pairs"] * self.pairs + ["crowded"] * self.is_crowded + ["leftcrowded"] * self.is_left_crowded
        words += ["leftblocks"] * self.left_in_blocks + ["rightblocks"] * self.right_in_blocks
        return "-".join(words)

    def __str__(self) -> str:
        left, right = ("Aᵀ" if self.left_turned else "A"), ("Bᵀ" if self.right_turned else "B")
        crowded = [f"{name} crowded" for name, is_so in (("A", self.is_left_crowded), ("B", self.is_crowded)) if is_so]
        blocks = (("A", self.left_in_blocks), ("B", self.right_in_blocks))
        in_blocks = [f"{name} in blocks" for name, is_so in blocks if is_so]
        return ", ".join([f"{left}·{right}", *["bf16"] * self.pairs, *crowded, *in_blocks])


POINTS = tuple(product(*AXES))
"""Rows, columns and summed elements that are measured of a class without traits."""
CORNERS = tuple(product(ROWS, COLUMNS[-1:], SUMMED[1:]))
"""Points that are measured of a trait: it costs most where columns are many, and sums not short."""
CLASSES = tuple(ProductClass(left, right) for right, left in product((False, True), repeat=2))
"""Classes of f32 without traits."""
TRAITS = tuple(
    dict.fromkeys(
        trait
        for turned in (False, True)
        for trait in ProductClass(
            turned, turned, is_crowded=True, is_left_crowded=turned, left_in_blocks=True, right_in_blocks=True
        ).traits
    )
)
"""Classes of one trait."""


def with_traits(bare: Sequence[float], ratios: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Rates at :data:`POINTS`: those without traits, times each trait's ratio at the nearest of the corners."""
    found = []
    for share, (rows, _, summed) in zip(bare, POINTS, strict=True):
        corner = CORNERS.index((rows, COLUMNS[-1], max(summed, SUMMED[1])))
        found.append(share * math.prod(ratio[corner] for ratio in ratios))
    return tuple(found)


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
