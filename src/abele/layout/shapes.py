"""Extents without strides: mixed-radix numbers, and how two shapes of equal size cut each other.

A shape has *marks*: the products of its last extents, 1 to its size. Those of (4, 6) are 1, 6 and 24. A dimension
begins and ends at neighbouring marks, so the shape that (4, 6) and (2, 12) both cut into has the marks of either:
1, 6, 12 and 24, or (2, 2, 6). Two shapes have one exactly if all marks, sorted, divide each other in turn.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

Shape = Sequence[int]


class LayoutError(ValueError):
    """An operation of shapes or layouts that has no result."""


class RefinementError(LayoutError):
    """Two shapes that no shape refines."""


def row_major(shape: Shape) -> tuple[int, ...]:
    """Strides of a dense array whose last dimension is the fastest.

    >>> row_major((4, 3, 2))
    (6, 2, 1)
    """
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * shape[d + 1]
    return tuple(strides)


def digits(index: int, shape: Shape) -> list[int]:
    """Coordinates of a row-major index, outermost first.

    >>> digits(7, (4, 6))
    [1, 1]
    """
    found = []
    for extent in reversed(shape):
        index, digit = divmod(index, extent)
        found.append(digit)
    return found[::-1]


Pieces = list[tuple[int, ...]]
"""Extents that each dimension of a shape is cut into, outermost first; none for an extent of 1."""


def refine(one: Shape, other: Shape) -> tuple[Pieces, Pieces]:
    """The coarsest shape that two shapes both cut into, by the dimensions of either.

    >>> refine((4, 6), (2, 12))
    ([(2, 2), (6,)], [(2,), (2, 6)])

    Raises:
        RefinementError: There is none: sizes differ or are 0, or extents such as 6 beside 4 overlap.
    """
    mine: Pieces = [()] * len(one)
    others: Pieces = [()] * len(other)
    i, j, left, right = len(one), len(other), 1, 1
    while True:
        # What is left of the dimension at hand in either shape, from the innermost outwards.
        while left == 1 and i:
            i -= 1
            left = one[i]
        while right == 1 and j:
            j -= 1
            right = other[j]
        if left == right == 1:
            return mine, others
        extent = min(left, right)
        if extent < 2 or max(left, right) % extent:
            raise RefinementError(f"no shape refines {tuple(one)} and {tuple(other)}")
        mine[i], others[j] = (extent, *mine[i]), (extent, *others[j])
        left, right = left // extent, right // extent


def matching_groups(old: Shape, new: Shape) -> Iterator[tuple[range, range]]:
    """Shortest runs of old and new dimensions with equal numbers of indices; one run where there are no indices.

    >>> list(matching_groups((4, 6, 5), (2, 12, 5)))
    [(range(0, 2), range(0, 2)), (range(2, 3), range(2, 3))]

    Args:
        old: A shape.
        new: Another of the same size.
    """
    if 0 in old:
        # Products say nothing here: (0,) and (0, 5) both have no index, and no run of either ends before the other's.
        yield range(len(old)), range(len(new))
        return
    i = j = 0
    while i < len(old) or j < len(new):
        i0, j0 = i, j
        left = right = 1
        if i < len(old):
            left, i = old[i], i + 1
        if j < len(new):
            right, j = new[j], j + 1
        while left != right:
            if left < right:
                left, i = left * old[i], i + 1
            else:
                right, j = right * new[j], j + 1
        while i < len(old) and old[i] == 1 and j == len(new):
            i += 1
        while j < len(new) and new[j] == 1 and i == len(old):
            j += 1
        yield range(i0, i), range(j0, j)


class Divisors:
    """The marks of a shape that is being refined: divisors of ``total``, each dividing the next, from 1 to it."""

    def __init__(self, total: int) -> None:
        self.marks = [1, total] if total > 1 else [1]
        self.solid: list[tuple[int, int]] = []

    def keep_whole(self, low: int, high: int) -> None:
        """Never split between ``low`` and ``high``."""
        self.solid.append((low, high))

    def add(self, mark: int) -> bool:
        """Split at ``mark``; False if it is there already, outside, to be kept whole, or does not divide."""
        for low, high in self.solid:
            if low < mark < high:
                return False
        place = bisect_left(self.marks, mark)
        if place == len(self.marks) or place == 0 or self.marks[place] == mark:
            return False
        # Marks stay a chain only if the neighbours on either side divide: 4 and 6 cannot both be marks of 24.
        if mark % self.marks[place - 1] or self.marks[place] % mark:
            return False
        self.marks.insert(place, mark)
        return True

    def between(self, low: int, high: int) -> list[int]:
        """The marks above ``low`` and below ``high``."""
        return self.marks[bisect_right(self.marks, low) : bisect_left(self.marks, high)]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape with these marks."""
        return tuple([high // low for low, high in pairwise(self.marks)][::-1])

    def digit_of(self, stride: int) -> int:
        """Number of the digit that steps of ``stride`` move, the fastest first."""
        return min(bisect_right(self.marks, stride), len(self.marks) - 1) - 1
