"""Joins over relations: rows of tables by the phase, superstep, variable or operation that owns them.

The first column of a relation names the owner of each row, as row numbers of another table, in ascending order. Of a
``phase_tiles`` whose ``phase`` is 0, 0, 1, 3, 3, phases 3, -1 and 0 own rows 3 and 4, none, and rows 0 and 1:
:func:`joined_rows` gives 3, 4, 0, 1 and their places among the three, 0, 0, 2, 2. A negative number owns nothing.

All functions read whole columns or two places of them, and make no object per row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Float64, Int64
from abele.report.table import Table


def flat_ranges(first: npt.ArrayLike, count: npt.ArrayLike) -> tuple[Int64, Int64]:
    """The numbers of several ranges one after the other, and the range that each is of.

    Args:
        first: First number of each range, integer[n].
        count: Length of each range, integer[n].

    Returns:
        Numbers and ranges, int64[sum of count] each.
    """
    length = np.asarray(count, dtype=np.int64)
    owner = np.repeat(np.arange(len(length)), length)
    # A number minus its position is constant within a range.
    step = np.asarray(first, dtype=np.int64) - (np.cumsum(length) - length)
    return step[owner] + np.arange(len(owner)), owner


def rows_of(table: Table, owner: str, number: int) -> slice:
    """The rows of a relation that belong to one owner; few pages of a mapped file are read.

    Args:
        table: A relation such as ``phase_tiles``.
        owner: Its first column.
        number: The owner.
    """
    first, end = _edges(table[owner], np.array(number))
    return slice(int(first), int(end))


def ranges_of(table: Table, owner: str, numbers: npt.ArrayLike) -> tuple[Int64, Int64]:
    """First row and number of the rows of a relation that belong to each of several owners, int64[n] each.

    Args:
        table: A relation such as ``phase_tiles``.
        owner: Its first column.
        numbers: The owners, integer[n].
    """
    first, end = _edges(table[owner], np.asarray(numbers))
    return first, end - first


def joined_rows(table: Table, owner: str, numbers: npt.ArrayLike) -> tuple[Int64, Int64]:
    """The rows of a relation that belong to several owners, and the place of each row's owner in ``numbers``.

    Args:
        table: A relation such as ``phase_tiles``.
        owner: Its first column.
        numbers: The owners, integer[n]; the rows of one that is named twice are there twice.

    Returns:
        Rows and places, int64[rows] each, in order of places.
    """
    return flat_ranges(*ranges_of(table, owner, numbers))


def _edges(owners: npt.NDArray[Any], numbers: npt.NDArray[Any]) -> tuple[Int64, Int64]:
    # Keys of the column's own type: otherwise NumPy converts the whole column for each question. No owner is as large
    # as the greatest number of the type.
    low = np.clip(numbers, -1, np.iinfo(owners.dtype).max - 1).astype(owners.dtype)
    return np.searchsorted(owners, low), np.searchsorted(owners, low + owners.dtype.type(1))


def sums_of(table: Table, owner: str, values: npt.NDArray[Any], numbers: npt.NDArray[np.integer[Any]]) -> Float64:
    """Sums over the rows of a relation that belong to each of several owners, float64[n]; 0 for those without rows.

    Args:
        table: A relation such as ``phase_tiles``.
        owner: Its first column.
        values: A value for each row of the relation.
        numbers: The owners, integer[n].
    """
    sums: Float64 = np.append(np.bincount(table[owner], weights=values), 0.0)
    return sums[np.where((numbers >= 0) & (numbers < len(sums)), numbers, -1)]


def summed_by(owners: npt.NDArray[np.integer[Any]], values: npt.NDArray[Any], count: int) -> Float64:
    """Sums of values by the row that each belongs to, such as cycles of steps by operation, float64[count or more].

    Args:
        owners: Row that each value belongs to, integer[n]; what belongs to a negative one is left out.
        values: The values, number[n].
        count: Rows that there are.
    """
    known = owners >= 0
    return np.bincount(owners[known], weights=values[known], minlength=count).astype(np.float64, copy=False)
