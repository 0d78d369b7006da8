"""Chains of divisors: how an extent or an address range splits into dims, outermost last.

The chain 1 | 4 | 8 | 24 splits 24 places into digits of 4, 2 and 3, the first the fastest. Buffers have a chain over
their addresses, loop dims one over their indices; splitting both until they agree makes every access index whole dims.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Chain:
    """Divisors of ``total`` in rising order, each dividing the next, from 1 to ``total``."""

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
        # The chain stays one only if the neighbours on either side divide: 4 and 6 cannot both be marks of 24.
        if mark % self.marks[place - 1] or self.marks[place] % mark:
            return False
        self.marks.insert(place, mark)
        return True

    def between(self, low: int, high: int) -> list[int]:
        """The marks above ``low`` and below ``high``."""
        return self.marks[bisect_right(self.marks, low) : bisect_left(self.marks, high)]

    def digits(self) -> list[tuple[int, int]]:
        """(extent, stride) of every digit, fastest first."""
        return [(high // low, low) for low, high in zip(self.marks, self.marks[1:], strict=False)]

    def digit_of(self, stride: int) -> int:
        """Number of the digit in which steps of ``stride`` move."""
        return min(bisect_right(self.marks, stride), len(self.marks) - 1) - 1

    def split(self, offset: int) -> list[int]:
        """``offset`` as one number a digit, fastest first."""
        return [offset // stride % extent for extent, stride in self.digits()]
