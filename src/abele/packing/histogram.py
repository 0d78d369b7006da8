"""Histograms of item sizes: the number of packs depends on nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import ItemSizeError, PackingError

LARGEST = 2**40
"""Sizes and capacities are below this, so that products with a fixed-point scale stay in int64."""

MOST_ITEMS = 2**53
"""Items, and sums of their sizes, are below this, so that floating point has all of them exactly."""


@dataclass(frozen=True, eq=False)
class SizeHistogram:
    """Items by size, the sizes in ascending order.

    Attributes:
        sizes: The sizes that occur, int64[num_kinds, num_capacities]: one column for sequences, for graphs one for
            nodes and one for edges. Rows are unique and in lexical order.
        counts: Items of each size, int64[num_kinds], all at least 1.
    """

    sizes: Int64
    counts: Int64

    @staticmethod
    def of(sizes: npt.ArrayLike) -> SizeHistogram:
        """Count raw items: integers of shape [num_items], or [num_items, num_capacities].

        Raises:
            ItemSizeError: A size is not a whole number, not positive, or 2**40 or more.
            PackingError: There are no items.
        """
        rows = checked_sizes(sizes)
        if rows.shape[1] == 1:
            flat = rows[:, 0]
            most = int(flat.max())
            if most <= max(4 * len(flat), 65_536):
                by_length = np.bincount(flat)
                lengths = np.flatnonzero(by_length)
                return SizeHistogram(lengths[:, None], by_length[lengths])
            lengths, counts = np.unique(flat, return_counts=True)
            return SizeHistogram(lengths[:, None], counts.astype(np.int64))
        kinds, counts = np.unique(rows, axis=0, return_counts=True)
        return SizeHistogram(kinds, counts.astype(np.int64))

    @staticmethod
    def counted(counts: Mapping[int, int] | npt.ArrayLike) -> SizeHistogram:
        """A histogram of lengths that was counted before.

        Args:
            counts: Items by length: a mapping, or integers of shape [most + 1] whose index is the length. Lengths
                without items may be left out or be 0.

        Raises:
            ItemSizeError: A length is not a whole number, not positive, or 2**40 or more.
            PackingError: A count is negative or not a whole number, all are 0, or there are too many items.
        """
        if isinstance(counts, Mapping):
            names, numbers = list(counts.keys()), list(counts.values())
        else:
            numbers = list(whole(counts, "counts", PackingError))
            names = list(range(len(numbers)))
        return SizeHistogram.of_kinds(np.array(names, object), np.array(numbers, object))

    @staticmethod
    def of_kinds(sizes: npt.ArrayLike, counts: npt.ArrayLike) -> SizeHistogram:
        """A histogram of sizes and their counts, in any order; counts of equal sizes are added up.

        Args:
            sizes: Integers of shape [num_kinds] or [num_kinds, num_capacities].
            counts: Items of each, integers of shape [num_kinds], 0 or more.
        """
        numbers = whole(counts, "counts", PackingError)
        given = np.asarray(sizes)
        if numbers.ndim != 1 or given.ndim not in (1, 2) or len(given) != len(numbers):
            raise PackingError(f"sizes of shape {list(given.shape)} with counts of shape {list(numbers.shape)}")
        if len(numbers) and numbers.min() < 0:
            at = int(numbers.argmin())
            raise PackingError(f"a count is negative: {numbers[at]:,} items of size {given[at]}")
        kept = numbers > 0
        if not kept.any():
            raise PackingError("there are no items to pack", because="every count is 0")
        rows = checked_sizes(given[kept])
        total = sum(map(int, numbers[kept]))
        if total >= MOST_ITEMS:
            raise PackingError(f"{total:,} items are more than the {MOST_ITEMS:,} that can be counted exactly")
        kinds, kind_of = np.unique(rows, axis=0, return_inverse=True)
        summed = np.zeros(len(kinds), np.int64)
        np.add.at(summed, kind_of.reshape(-1), numbers[kept])
        return SizeHistogram(kinds, summed)

    @property
    def lengths(self) -> Int64:
        """The sizes of items of one size each, int64[num_kinds]."""
        if self.num_capacities != 1:
            raise PackingError(f"items have {self.num_capacities} sizes each, not one length")
        return self.sizes[:, 0]

    @property
    def num_capacities(self) -> int:
        """Number of sizes per item, one for each capacity."""
        return int(self.sizes.shape[1])

    @property
    def num_items(self) -> int:
        """Items in all."""
        return int(self.counts.sum())

    @property
    def totals(self) -> Int64:
        """The sum of all items' sizes, int64[num_capacities]."""
        return self.counts @ self.sizes


def checked_sizes(sizes: npt.ArrayLike) -> Int64:
    """Sizes as int64[num_items, num_capacities], all of them whole, positive and below 2**40."""
    rows = whole(sizes, "sizes", ItemSizeError)
    if rows.ndim == 1:
        rows = rows[:, None]
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise ItemSizeError(
            f"sizes have shape {list(rows.shape)}",
            remedy="a length for each item, [num_items], or a row of sizes for each, [num_items, num_capacities]",
        )
    if len(rows) == 0:
        raise PackingError("there are no items to pack")
    least, most = rows.min(), rows.max()
    if least < 1:
        at = int(np.argmax((rows < 1).any(axis=1)))
        raise ItemSizeError(
            f"item {at:,} has size {size_text(rows[at])}: sizes are at least 1",
            remedy="leave empty items out before packing",
        )
    if most >= LARGEST:
        at = int(np.argmax((rows >= LARGEST).any(axis=1)))
        raise ItemSizeError(f"item {at:,} has size {size_text(rows[at])}: sizes are below {LARGEST:,}")
    return rows


def whole(values: npt.ArrayLike, name: str, error: type[PackingError]) -> Int64:
    """Integers as int64; floating point and objects are taken where they are whole numbers that int64 holds."""
    given = np.asarray(values)
    if given.dtype.kind in "iu" and given.dtype != np.uint64:
        return given.astype(np.int64, copy=False)
    if given.size == 0:
        return np.zeros(given.shape, np.int64)
    if given.dtype.kind == "O":
        numbers = [_whole_number(value, name, error) for value in given.reshape(-1)]
        return np.array(numbers, np.int64).reshape(given.shape)
    if given.dtype.kind not in "uf":
        raise error(f"{name} are whole numbers, got {given.dtype}")
    bad = ~np.isfinite(given) | (given != np.floor(given)) | (np.abs(given) >= 2.0**63)
    if bad.any():
        at = int(np.argmax(bad.reshape(-1)))
        raise error(f"{name} are whole numbers below 2**63, entry {at:,} is {given.reshape(-1)[at]}")
    return given.astype(np.int64)


def _whole_number(value: Any, name: str, error: type[PackingError]) -> int:
    try:
        number = int(value)
        same = bool(number == value)
    except (TypeError, ValueError, OverflowError):
        same = False
    if not same:
        raise error(f"{name} are whole numbers, got {value!r}")
    if not -(2**63) <= number < 2**63:
        raise error(f"{name} are below 2**63, got {number:,}")
    return number


def size_text(row: Iterable[int]) -> str:
    """The sizes of one item, or the capacities of a pack: ``18 × 37``."""
    return " × ".join(f"{int(size):,}" for size in row)
