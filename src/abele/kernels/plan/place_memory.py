"""Places in one block of memory for arrays that live at different times.

The smallest total is NP-hard to find (it is bin packing with time). Largest first is the usual greedy rule, since large
arrays are hard to fit between others and small ones fill what is left. It looks at pairs, so it is for the few hundred
arrays of a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""


@dataclass(frozen=True)
class Lifetime:
    """An array of ``size_bytes`` that lives from step ``first`` to step ``last``, both included."""

    size_bytes: int
    first: int
    last: int


def place(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """The byte offset of every array, and the bytes that all need; arrays that live together do not overlap.

    Larger arrays are placed first, each at the lowest place that is free over its whole life.
    """
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    for number in sorted(range(len(lifetimes)), key=lambda n: (-lifetimes[n].size_bytes, n)):
        item = lifetimes[number]
        size = padded(item.size_bytes)
        offset = 0
        # From the bottom up: move above every array that lives at the same time and leaves no gap of our size below it.
        for other in sorted(placed, key=lambda n: offsets[n]):
            together = lifetimes[other].first <= item.last and item.first <= lifetimes[other].last
            if together and offsets[other] < offset + size:
                offset = max(offset, offsets[other] + padded(lifetimes[other].size_bytes))
        offsets[number] = offset
        placed.append(number)
    ends = [o + padded(item.size_bytes) for o, item in zip(offsets, lifetimes, strict=True)]
    return offsets, max(ends, default=0)


def padded(size_bytes: int) -> int:
    """``size_bytes`` rounded up to whole cache lines."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT
