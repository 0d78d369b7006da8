"""Columns that are made on first use: mapped from a file, computed, or picked from others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from abele.report.text_column import Column, unchanging


class DeferredColumns(Mapping[str, Column]):
    """Columns of one table, each made once, on first use.

    A report of a large program has more to say than anyone asks at once. Its tables therefore hold the way to their
    columns: :class:`~abele.report.table.Table` reads them through this mapping and does not see the difference.

    Args:
        names: Names of the columns, in order.
        num_rows: Gives the number of rows without making a column.
        make: Gives the column of a name, with that many rows.
    """

    def __init__(self, names: Sequence[str], num_rows: Callable[[], int], make: Callable[[str], Column]) -> None:
        self._names = dict.fromkeys(names)
        self._num_rows = num_rows
        self._make = make
        self._made: dict[str, Column] = {}

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self._num_rows()

    def __getitem__(self, name: str) -> Column:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._made:
            self._made[name] = unchanging(self._make(name))
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def picked(columns: Mapping[str, Column], rows: Any, num_rows: Callable[[], int]) -> DeferredColumns:
    """Rows of columns, picked from each on first use.

    Args:
        columns: The columns.
        rows: A boolean mask, an index array or a slice.
        num_rows: Gives the number of rows.
    """
    return DeferredColumns(tuple(columns), num_rows, lambda name: columns[name][rows])


def computed(names: Sequence[str], make: Callable[[], Mapping[str, Column]]) -> DeferredColumns:
    """Columns that one computation makes together.

    Args:
        names: Their names, in order.
        make: Makes all of them.
    """
    made: dict[str, Column] = {}

    def all_columns() -> Mapping[str, Column]:
        if not made:
            made.update(make())
        return made

    return DeferredColumns(names, lambda: len(all_columns()[names[0]]), lambda name: all_columns()[name])
