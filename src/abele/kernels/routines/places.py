"""Offsets of the elements of a product's matrices: one for every row and column of each.

Loop dims that make one dim of the product are its digits. An element's offset is the sum of one of its row and one of
its column. So six tables describe any layout, in a few bytes per row and column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

Digits = tuple[tuple[int, int], ...]
"""A dim of a matrix: extent and stride of every digit, the slowest first."""


@dataclass(frozen=True)
class Places:
    """Offsets and sizes of a routine's matrices, as they lie in memory.

    Attributes:
        numbers: Summed elements; addresses of the tables; runs; whether the packed block is kept.
        tables: Offsets in elements, of A's rows and columns, B's rows and columns, and C's rows and columns.
    """

    numbers: np.ndarray
    tables: tuple[np.ndarray, ...]

    @property
    def address(self) -> int:
        """Of the numbers."""
        return int(self.numbers.ctypes.data)


def places_of(dims: Sequence[Digits], *, keeps: bool) -> Places:
    """The places of matrices with these dims: A's rows and columns, B's rows and columns, C's rows and columns."""
    tables = tuple(map(offsets, dims))
    runs = [run_of(dim) for dim in dims[:4]]
    numbers = np.array([tables[1].size, *(t.ctypes.data for t in tables), *runs, int(keeps)], np.int64)
    return Places(numbers, tables)


@lru_cache(maxsize=512)
def offsets(digits: Digits) -> np.ndarray:
    """Offset of every element of a dim, int64[extent]."""
    total = np.zeros(1, np.int64)
    for extent, stride in digits:
        total = np.add.outer(total, np.arange(extent, dtype=np.int64) * stride).ravel()
    total.setflags(write=False)
    return total


def run_of(digits: Digits) -> int:
    """Elements that lie next to each other, from multiples of that number on; 0 if none do."""
    run, known = 0, False
    for extent, stride in reversed([d for d in digits if d[0] > 1]):
        if stride != (run if known else 1):
            break
        run, known = (run or 1) * extent, True
    return run
