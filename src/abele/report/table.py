"""Tables of named columns: NumPy arrays, no object a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.errors import InvalidOptionError, nearest
from abele.words import counted

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Text:
    """A column of strings, each distinct one stored once.

    Attributes:
        codes: int32[n], index into ``words``.
        words: The distinct strings.
    """

    codes: npt.NDArray[np.int32]
    words: tuple[str, ...]

    @classmethod
    def of(cls, values: Sequence[str] | Array) -> Text:
        """The column that holds ``values``, in order."""
        if len(values) == 0:
            return cls(np.zeros(0, np.int32), ())
        index: dict[str, int] = {}
        codes = np.fromiter((index.setdefault(str(value), len(index)) for value in values), np.int32, len(values))
        return cls(codes, tuple(index))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> Text:
        return Text(self.codes[rows], self.words)

    def decode(self) -> Array:
        """The strings as a NumPy array of n objects: a long one among many rows takes its own room alone."""
        return np.array(self.words, dtype=object)[self.codes] if self.words else np.full(len(self), "", dtype=object)

    def order(self) -> Array:
        """Rank of each row's string in alphabetical order, int64[n]."""
        rank = np.empty(len(self.words), np.int64)
        rank[np.argsort(np.array(self.words, dtype=object), kind="stable")] = np.arange(len(self.words))
        return rank[self.codes]


Column = Array | Text


class Table:
    """Named columns of equal length.

    ``table["cycles"]`` is a NumPy array; ``len(table)`` the number of rows.

    Raises:
        InvalidOptionError: Columns differ in length, or a column is asked for that there is not.
    """

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self.columns: dict[str, Column] = dict(columns)
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise InvalidOptionError(
                "columns of one table differ in length", because=", ".join(f"{n} has {k:,}" for n, k in lengths.items())
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def __getitem__(self, name: str) -> Array:
        column = self._column(name)
        return column.decode() if isinstance(column, Text) else column

    def _column(self, name: str) -> Column:
        if name not in self.columns:
            close = nearest(name, self.columns)
            raise InvalidOptionError(
                f"no column is called {name!r}",
                remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(self.columns),
            )
        return self.columns[name]

    def select(self, rows: Any) -> Table:
        """The rows that a boolean mask, an index array or a slice picks."""
        return Table({name: column[rows] for name, column in self.columns.items()})

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
        from abele.report.shown import table_card

        return table_card(self)


def _extended(column: Column, value: Any) -> Column:
    if isinstance(column, Text):
        words = column.words if value in column.words else (*column.words, str(value))
        return Text(np.append(column.codes, np.int32(words.index(value))), words)
    return np.append(column, np.asarray(value, dtype=column.dtype))
