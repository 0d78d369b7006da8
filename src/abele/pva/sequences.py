"""Sequences whose objects are made when somebody asks for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Self, TypeVar, overload

import numpy as np

from abele.arrays import Int64
from abele.errors import ReportIndexError
from abele.words import counted

T = TypeVar("T", covariant=True)


class LazySequence(Sequence[T], Generic[T]):
    """Rows of a table as objects, each made when it is asked for and forgotten with its last user.

    Indexing, slicing, ``len``, iterating and ``in`` work as for a list. A slice is a sequence of the same kind. What a
    program asks of all rows at once it asks of the arrays that subclasses have, which make no objects.

    Args:
        rows: The rows that the sequence is of: a number of rows from 0 on, or int64[n].
        make: Makes the object of a row.
        noun: Name of an entry in errors.
    """

    def __init__(self, rows: int | Int64, make: Callable[[int], T], noun: str) -> None:
        self._rows: range | Int64 = range(rows) if isinstance(rows, int) else rows
        self._make = make
        self._noun = noun

    @property
    def rows(self) -> Int64:
        """Rows of the table that the entries are, int64[n]."""
        return np.asarray(self._rows, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Self: ...

    def __getitem__(self, index: int | slice) -> T | Self:
        if isinstance(index, slice):
            return self._picked(self.rows[index])
        count = len(self._rows)
        place = index.__index__()
        if not -count <= place < count:
            known = f"they are numbered 0 to {count - 1:,}" if count else None
            raise ReportIndexError(f"no {self._noun} {place:,} among {counted(count, self._noun)}", remedy=known)
        return self._make(int(self._rows[place]))

    def __iter__(self) -> Iterator[T]:
        # Portions keep the integers of a million rows from being alive at once.
        for first in range(0, len(self._rows), _PORTION):
            part = self._rows[first : first + _PORTION]
            yield from map(self._make, part if isinstance(part, range) else part.tolist())

    def _picked(self, rows: Int64) -> Self:
        """Sequence of the same kind with other rows."""
        found = type(self).__new__(type(self))
        found.__dict__.update(self.__dict__)
        found._rows = rows
        return found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({counted(len(self), self._noun)})"


_PORTION = 1 << 16
