"""Tables of named columns: NumPy arrays, no object per row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from abele.arrays import Array
from abele.errors import InvalidOptionError, nearest
from abele.report.text_column import Column, Text, unchanging
from abele.words import counted

# Columns that are made on first use: mapped from a file, computed, or picked from others.


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


class Table:
    """Named columns of equal length, which are read-only.

    ``table["cycles"]`` is a NumPy array, read-only; ``len(table)`` the number of rows; ``for name in table`` gives the
    names of columns.

    Raises:
        InvalidOptionError: Columns differ in length, or a column is asked for that there is not.
    """

    def __init__(self, columns: Mapping[str, Column]) -> None:
        if isinstance(columns, DeferredColumns):
            self.columns: Mapping[str, Column] = columns
            return
        self.columns = MappingProxyType({name: unchanging(column) for name, column in columns.items()})
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise InvalidOptionError(
                "columns of one table differ in length", because=", ".join(f"{n} has {k:,}" for n, k in lengths.items())
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.columns)

    def __len__(self) -> int:
        if isinstance(self.columns, DeferredColumns):
            return self.columns.num_rows
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def __getitem__(self, name: str) -> Array:
        column = self._column(name)
        return column.decode() if isinstance(column, Text) else column

    def _column(self, name: str) -> Column:
        if name not in self.columns:
            close = nearest(str(name), self.columns)
            raise InvalidOptionError(
                f"no column is called {name!r}",
                remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(self.columns),
            )
        return self.columns[name]

    def select(self, rows: Any) -> Table:
        """Rows that a boolean mask, an index array or a slice picks; columns are picked on first use."""
        return Table(picked(self.columns, rows, lambda: _num_picked(rows, len(self))))

    def where(self, name: str, value: Any) -> Table:
        """The rows whose column ``name`` equals ``value``."""
        column = self._column(name)
        if isinstance(column, Text):
            code = column.words.index(value) if value in column.words else -1
            return self.select(column.codes == code)
        return self.select(column == value)

    def sort(self, by: str, *, descending: bool = False) -> Table:
        """The rows in order of column ``by``; equal ones stay in their order."""
        column = self._column(by)
        keys = column.order() if isinstance(column, Text) else column
        if descending:
            return self.select(len(keys) - 1 - np.argsort(keys[::-1], kind="stable")[::-1])
        return self.select(np.argsort(keys, kind="stable"))

    def top(self, n: int, by: str) -> Table:
        """The ``n`` rows with the largest ``by``, largest first."""
        return self.sort(by, descending=True).select(slice(n))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Row after row as plain Python values; for small tables and for printing."""
        lists = {name: self[name].tolist() for name in self.names}
        for i in range(len(self)):
            yield {name: values[i] for name, values in lists.items()}

    def append(self, **row: Any) -> Table:
        """A table with one more row.

        Raises:
            InvalidOptionError: ``row`` names a column that there is not, or leaves one out.
        """
        for name in row:
            self._column(name)
        missing = [name for name in self.names if name not in row]
        if missing:
            raise InvalidOptionError(f"the new row lacks {', '.join(missing)}")
        return Table({name: _extended(column, row[name]) for name, column in self.columns.items()})

    def to_lists(self) -> dict[str, list[Any]]:
        """Column name to list of plain Python values."""
        return {name: self[name].tolist() for name in self.names}

    def __repr__(self) -> str:
        return f"Table({counted(len(self), 'row')}: {', '.join(self.names)})"

    def _repr_html_(self) -> str:
        from abele.report.display import table_card

        return table_card(self)


def _num_picked(rows: Any, num_rows: int) -> int:
    """Number of rows, of ``num_rows``, that a mask, an index array or a slice picks."""
    if isinstance(rows, slice):
        return len(range(*rows.indices(num_rows)))
    which = np.asarray(rows)
    return int(which.sum()) if which.dtype == bool else len(which)


def _extended(column: Column, value: Any) -> Column:
    if isinstance(column, Text):
        words = column.words if value in column.words else (*column.words, str(value))
        return Text(np.append(column.codes, np.int32(words.index(value))), words)
    return np.append(column, np.asarray(value, dtype=column.dtype))
