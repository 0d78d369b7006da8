"""Offsets of the elements of a product's matrices: one for every row and column of each.

Loop dims that make one dim of the product are its digits. An element's offset is the sum of one of its row and one of
its column. So six tables describe any layout, in a few bytes per row and column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from abele import layout
from abele.layout import Modes


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


def places_of(dims: Sequence[Modes], *, keeps: bool) -> Places:
    """The places of matrices with these dims: A's rows and columns, B's rows and columns, C's rows and columns."""
    tables = tuple(map(offsets, dims))
    runs = [run_of(dim) for dim in dims[:4]]
    numbers = np.array([tables[1].size, *(t.ctypes.data for t in tables), *runs, int(keeps)], np.int64)
    return Places(numbers, tables)


@lru_cache(maxsize=512)
def offsets(digits: Modes) -> np.ndarray:
    """Offset of every element of a dim, int64[extent]."""
    total = layout.offsets(digits)
    total.setflags(write=False)
    return total


def run_of(digits: Modes) -> int:
    """Elements that lie next to each other, from multiples of that number on; 0 if none do."""
    run = layout.run_length(digits)
    return run if run > 1 else 0
