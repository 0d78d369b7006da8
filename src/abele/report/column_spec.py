"""Specifications of a table's columns: the type, meaning and limits of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.errors import InvalidOptionError, nearest
from abele.report.table import Table, computed
from abele.report.text_column import Column, Text


@dataclass(frozen=True)
class ColumnSpec:
    """One column of a table.

    Attributes:
        dtype: NumPy type character string, or ``text``.
        doc: Meaning and unit.
        default: Value of rows for which none is given, and of all rows in files older than the column.
        since: Version of the file format that has it first.
        low: Smallest value that a file may hold.
        refers: The table that it gives rows of, or ``tiles``, if it does.
        ascends: True where no row may hold less than the one before.
        choices: The words that it may hold, where they are few.
        beyond: For a column that refers to its own table: −1 where it gives rows before its own, 1 where it gives rows
            after it, so that nothing that follows it goes round.
    """

    dtype: str
    doc: str
    default: Any = 0
    since: int = 1
    low: int = 0
    refers: str = ""
    ascends: bool = False
    choices: tuple[str, ...] = ()
    beyond: int = 0

    @property
    def is_text(self) -> bool:
        """True if the column holds strings."""
        return self.dtype == "text"


@dataclass(frozen=True)
class Schema:
    """The columns that a table of a report has.

    Attributes:
        name: Name of the table.
        columns: Its columns in order.
        since: Version of the file format that has it first.
    """

    name: str
    columns: Mapping[str, ColumnSpec]
    since: int = 1

    def table(self, **columns: Any) -> Table:
        """The table with these columns; those not given are filled with their defaults.

        Args:
            columns: Arrays, sequences, or one value for all rows.

        Raises:
            InvalidOptionError: A column is unknown, or lengths differ.
        """
        for name in columns:
            if name not in self.columns:
                close = nearest(name, self.columns)
                raise InvalidOptionError(
                    f"the {self.name} table has no column {name!r}",
                    remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(self.columns),
                )
        num_rows = max((len(value) for value in columns.values() if not _is_scalar(value)), default=0)
        return Table(
            {name: _column(spec, columns.get(name, spec.default), num_rows) for name, spec in self.columns.items()}
        )

    def column(self, name: str, num_rows: int) -> Column:
        """A column that holds its default in each row."""
        return _column(self.columns[name], self.columns[name].default, num_rows)

    def empty(self) -> Table:
        """The table without rows."""
        return self.table()

    def deferred(self, make: Callable[[], Table]) -> Table:
        """Table of ``make``, made on first use."""
        return Table(computed(tuple(self.columns), lambda: make().columns))


def _is_scalar(value: Any) -> bool:
    if isinstance(value, Text | list | tuple):
        return False
    return isinstance(value, str) or np.ndim(value) == 0


def _column(spec: ColumnSpec, value: Any, num_rows: int) -> Column:
    if isinstance(value, Text):
        return value
    if spec.is_text:
        return Text(np.zeros(num_rows, np.int32), (str(value),)) if _is_scalar(value) else Text.of(value)
    dtype = np.dtype(spec.dtype)
    return np.full(num_rows, value, dtype) if _is_scalar(value) else np.ascontiguousarray(value, dtype=dtype)


def text_column(doc: str, since: int = 1, choices: tuple[str, ...] = ()) -> ColumnSpec:
    """A column of strings."""
    return ColumnSpec("text", doc, "", since, choices=choices)


def count_column(doc: str, default: int = 0, since: int = 1, low: int = 0) -> ColumnSpec:
    """A column of whole numbers."""
    return ColumnSpec("<i8", doc, default, since, low)


def row_column(of: str, doc: str, default: int = 0, since: int = 1, low: int = 0) -> ColumnSpec:
    """A column of rows of another table."""
    return ColumnSpec("<i4", doc, default, since, low, refers=of)


def owner_column(doc: str, of: str = "", since: int = 3) -> ColumnSpec:
    """The first column of a relation, by which it is sorted."""
    return ColumnSpec("<i4", doc, since=since, refers=of, ascends=True)
