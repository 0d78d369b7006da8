"""Intervals of elements: half-open ranges, and arrays of them.

All functions work on whole columns: a sort, a running sum and a gather, never a loop over intervals. Two patterns come
again and again. *Runs of different length in one column*: repeat each row's start by its count, subtract where the row
begins in the output, and add one arange. *Cutting two lists alike*: the sorted union of both lists of ends is the list
of all cuts, and a binary search in either says which interval a piece is from.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64


class Asked(int):
    """A number that may also be called, as ``interval.begin()`` is in C++."""

    __slots__ = ()

    def __call__(self) -> int:
        """The number."""
        return int(self)


class _Ends(NamedTuple):
    begin: Asked
    end: Asked


class Interval(_Ends):
    """A half-open range of elements, ``[begin, end)``; ``begin``, ``end`` and ``size`` are attributes and calls."""

    __slots__ = ()

    def __new__(cls, begin: int = 0, end: int = 0) -> Interval:
        """The range from ``begin`` up to, not including, ``end``."""
        return super().__new__(cls, Asked(begin), Asked(end))

    @property
    def size(self) -> Asked:
        """Number of elements in the interval."""
        return Asked(self[1] - self[0])


def order_of(key: npt.NDArray[np.integer[Any]]) -> Int64:
    """Stable sorting permutation of a column, int64[k]: ``np.argsort(key, kind="stable")``.

    Many times faster than that on long columns.
    """
    if len(key) < _LEAST_PACKED or key.dtype.itemsize <= 2:  # NumPy sorts narrow numbers by their digits.
        return np.argsort(key, kind="stable")
    if bool((key[1:] >= key[:-1]).all()):
        return np.arange(len(key), dtype=np.int64)
    low, bits = int(key.min()), len(key).bit_length()
    if (int(key.max()) - low).bit_length() + bits > _MOST_BITS:
        return np.argsort(key, kind="stable")
    # NumPy sorts plain numbers with vector instructions, but not indices by them: the index is part of the number.
    packed = key.astype(np.int64)
    packed -= low
    packed <<= bits
    packed |= np.arange(len(key), dtype=np.int64)
    packed.sort()
    packed &= (1 << bits) - 1
    return packed


_LEAST_PACKED = 1000
"""Entries from which on a packed sort is the faster one. Measured on x86-64."""
_MOST_BITS = 62


def distinct(values: Int64) -> Int64:
    """The distinct values in ascending order, int64[m].

    Many times faster than ``np.unique`` on large arrays.
    """
    flat = values.reshape(-1)
    if bool((flat[1:] > flat[:-1]).all()):
        return flat.copy()
    ordered = np.sort(flat)
    keep = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=keep[1:])
    return ordered[keep]


def merge_adjacent(begin: Int64, length: Int64, row: Int64 | None = None) -> tuple[Int64, Int64, Int64 | None]:
    """Join intervals that follow each other in order and in memory.

    Args:
        begin: First address of each interval, int64[k], in order.
        length: Elements of each, int64[k].
        row: Row that each interval belongs to, int64[k], non-decreasing; joins never cross rows.

    Returns:
        Begins, lengths and rows of the joined intervals.
    """
    if len(begin) == 0:
        return begin, length, row
    starts = np.empty(len(begin), dtype=bool)
    starts[0] = True
    np.not_equal(begin[1:], begin[:-1] + length[:-1], out=starts[1:])
    if row is not None:
        starts[1:] |= row[1:] != row[:-1]
    if starts.all():
        return begin, length, row
    first = np.flatnonzero(starts)
    return begin[first], np.add.reduceat(length, first), None if row is None else row[first]


def runs(addresses: Int64) -> tuple[Int64, Int64, Int64]:
    """Runs of consecutive addresses in each row of ``addresses``.

    Args:
        addresses: int64[rows, elements].

    Returns:
        Begin, length and row of each run.
    """
    rows, width = addresses.shape
    if rows == 0 or width == 0:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty, empty
    starts = np.empty((rows, width), dtype=bool)
    starts[:, 0] = True
    np.not_equal(addresses[:, 1:], addresses[:, :-1] + 1, out=starts[:, 1:])
    first = np.flatnonzero(starts)
    length = np.diff(first, append=rows * width)
    return addresses.reshape(-1)[first], length, first // width


def expand(begin: Int64, length: Int64) -> Int64:
    """Every address of the intervals in order, int64[sum of lengths]."""
    total = int(length.sum())
    ends = np.cumsum(length)
    # Address minus position is constant within an interval.
    step = np.repeat(begin - (ends - length), length)
    return step + np.arange(total, dtype=np.int64)


class CutPart(NamedTuple):
    """Intervals that pieces are cut from.

    Attributes:
        interval: The interval that each piece is part of, int64[k].
        offset: Elements of it before the piece, int64[k].
    """

    interval: Int64
    offset: Int64


def cut_alike(one: Int64, other: Int64) -> tuple[Int64, CutPart, CutPart]:
    """Two lists of lengths with the same sum, cut where an interval of either ends: one list of pieces for both.

    Returns:
        The length of each piece, int64[k], and which parts of both lists the pieces are.
    """
    if len(one) == len(other) and np.array_equal(one, other):
        same = CutPart(np.arange(len(one), dtype=np.int64), np.zeros(len(one), dtype=np.int64))
        return one, same, same
    ends = np.cumsum(one), np.cumsum(other)
    # Every end of either list is a cut, and there are no others.
    cuts = distinct(np.concatenate(ends))
    length = np.diff(cuts, prepend=0)
    start = cuts - length
    first, second = (np.searchsorted(e, start, side="right") for e in ends)
    return (
        length,
        CutPart(first, start - (ends[0] - one)[first]),
        CutPart(second, start - (ends[1] - other)[second]),
    )


def cut_at(borders: Int64, begin: Int64, length: Int64) -> tuple[Int64, Int64, Int64]:
    """Cut intervals where they cross a border.

    Args:
        borders: Addresses at which something new begins, int64[n], ascending.
        begin: First address of each interval, int64[k].
        length: Elements of each, int64[k], at least 1.

    Returns:
        Begin and length of each piece, in order, and the interval that it came from.
    """
    first = np.searchsorted(borders, begin, side="right")
    count = np.searchsorted(borders, begin + length, side="left") - first
    if not count.any():
        return begin, length, np.arange(len(begin), dtype=np.int64)
    source = np.repeat(np.arange(len(begin), dtype=np.int64), count + 1)
    heads = np.cumsum(count + 1) - count - 1
    # Piece 0 begins where its interval does, piece r at the r-th border inside.
    rank = np.arange(len(source), dtype=np.int64) - heads[source]
    low = np.where(rank == 0, begin[source], borders[np.minimum(first[source] + rank - 1, len(borders) - 1)])
    # Pieces of one interval adjoin, so each ends where the next begins; the last ends with the interval.
    end = np.append(low[1:], 0)
    end[np.append(heads[1:], len(source)) - 1] = begin + length
    return low, end - low, source
