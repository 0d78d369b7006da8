"""Lists of modes: one index, and an offset for it in one space or in two at once.

A mode is a tuple of an extent and a stride per space. Views count through positions and storage together, so theirs
have two strides: ((4, 6, 1), (6, 1, 4)) are positions 0 to 23 in order, and the elements of a matrix stored by columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from abele.arrays import Int64

Mode = tuple[int, int]
Modes = tuple[Mode, ...]
M = TypeVar("M", bound=tuple[int, ...])
Index = TypeVar("Index", int, Int64)


class ModeImage(NamedTuple):
    """The offsets of modes as a set.

    Attributes:
        low: The lowest.
        modes: Extents with positive strides, the largest stride first, neighbours merged.
        times: Indices per offset that strides of 0 make.
    """

    low: int
    modes: list[Mode]
    times: int


def coalesce(modes: Sequence[M]) -> tuple[M, ...]:
    """The same function in the fewest modes: without extents of 1, neighbours merged where they continue each other.

    >>> coalesce([(4, 12), (1, 7), (6, 2)])
    ((24, 2),)
    """
    if len(modes) == 1:
        return () if modes[0][0] == 1 else tuple(modes)
    found: list[M] = []
    for mode in modes:
        n = mode[0]
        if n == 1:
            continue
        # One step of the outer mode is a whole round of this one, in the first space and in the last.
        if found and (outer := found[-1])[1] == n * mode[1] and outer[-1] == n * mode[-1]:
            found[-1] = (outer[0] * n, *mode[1:])  # type: ignore[assignment]
        else:
            found.append(mode)
    return tuple(found)


def offset_at(modes: Sequence[Mode], index: Index) -> Index:
    """Offset of an index, or of each of an array of them; they wrap past the size.

    >>> offset_at([(4, 1), (6, 4)], 7)
    5
    """
    offset = index * 0
    for extent, stride in reversed(modes):
        offset = offset + index % extent * stride
        index = index // extent
    return offset


def offsets(modes: Iterable[Mode]) -> Int64:
    """Offset of every index, int64[size].

    >>> offsets([(2, 10), (3, 1)]).tolist()
    [0, 1, 2, 10, 11, 12]
    """
    table = np.zeros(1, dtype=np.int64)
    for extent, stride in modes:
        table = (table[:, None] + np.arange(extent, dtype=np.int64) * stride).reshape(-1)
    return table


def split(modes: Iterable[M], pieces: Iterable[Sequence[int]]) -> list[M]:
    """The same function with each mode cut into modes of these extents, which multiply to its own.

    >>> split([(12, 5)], [(3, 4)])
    [(3, 20), (4, 5)]
    """
    found: list[M] = []
    for mode, extents in zip(modes, pieces, strict=True):
        if len(extents) == 1:
            found.append(mode)
            continue
        inner = mode[0]
        for extent in extents:
            inner //= extent
            found.append((extent, *[inner * s for s in mode[1:]]))  # type: ignore[arg-type]
    return found


def run_length(modes: Sequence[Mode]) -> int:
    """Elements that lie next to each other from index 0 on.

    >>> run_length([(4, 12), (2, 3), (3, 1)])
    6
    """
    run = 1
    for extent, stride in reversed(modes):
        if extent != 1:
            if stride != run:
                break
            run *= extent
    return run


def image(modes: Iterable[Mode]) -> ModeImage:
    """The offsets as a set.

    >>> image([(3, -4), (4, 1), (5, 0)])
    ModeImage(low=-8, modes=[(12, 1)], times=5)
    """
    low, times, pairs = 0, 1, list[Mode]()
    for extent, stride in modes:
        if stride == 0:
            times *= extent
            continue
        if stride < 0:
            low += (extent - 1) * stride
        pairs.append((extent, abs(stride)))
    pairs.sort(key=lambda p: -p[1])
    return ModeImage(low, list(coalesce(pairs)), times)


def are_apart(modes: Iterable[Mode]) -> bool:
    """True if each stride passes all that smaller ones reach, so that no two indices share an offset.

    >>> are_apart([(4, 6), (3, 2)]), are_apart([(4, 4), (3, 2)])
    (True, False)
    """
    reach = 0
    for stride, extent in sorted([(abs(s), n) for n, s in modes]):
        if extent > 1 and stride <= reach:
            return False
        reach += stride * (extent - 1)
    return True
