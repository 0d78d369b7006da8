"""Variables of a compiled program."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from abele.arrays import Int64
from abele.pva.sequences import LazySequence
from abele.report import Report, Text
from abele.report.text_column import Column

# Places in source code.


class Location:
    """A line of source code.

    Attributes:
        fileName: The file; empty when it is not known.
        lineNumber: The line; 0 when it is not known.
    """

    __slots__ = ("fileName", "lineNumber")

    def __init__(self, file_name: str, line_number: int) -> None:
        self.fileName = file_name
        self.lineNumber = line_number

    def __repr__(self) -> str:
        return f"Location({self.fileName}:{self.lineNumber})"


# Text columns row by row, without decoding the others.


def text_at(columns: Mapping[str, Column], name: str, row: int) -> str:
    """The string that a text column holds in a row; empty where the table has no such column."""
    column = columns.get(name)
    return column.words[int(column.codes[row])] if isinstance(column, Text) else ""


class Variable:
    """A variable: one row of the report's variables table."""

    __slots__ = ("_report", "row")

    def __init__(self, report: Report, row: int) -> None:
        self._report = report
        self.row = row

    @property
    def name(self) -> str:
        """Name with scopes."""
        return text_at(self._report.variables.columns, "name", self.row)

    @property
    def size(self) -> int:
        """Bytes over all tiles."""
        return int(self._report.variables["bytes"][self.row])

    @property
    def bytes(self) -> int:
        """Bytes over all tiles."""
        return self.size

    @property
    def type(self) -> str:
        """Element type of the variable."""
        return text_at(self._report.variables.columns, "type", self.row)

    @property
    def numTiles(self) -> int:
        """Tiles that hold part of it."""
        return int(self._report.variables["tiles"][self.row])

    @property
    def alwaysLive(self) -> bool:
        """True if it lives through the whole program."""
        return bool(self._report.variables["always_live"][self.row])

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions; empty for a scalar, and where the report does not say."""
        parts = text_at(self._report.variables.columns, "shape", self.row).split(" x ")
        return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()

    @property
    def role(self) -> str:
        """Why it lives: ``temporary``, ``constant``, what a handle is for, …; empty where the report does not say."""
        return text_at(self._report.variables.columns, "role", self.row)

    @property
    def location(self) -> Location:
        """The user's line that made it."""
        columns = self._report.variables
        return Location(text_at(columns.columns, "file", self.row), int(columns["line"][self.row]))

    @property
    def bytesByTile(self) -> Int64:
        """Bytes that each tile holds of it, int64[tiles]."""
        return self._report.variable_by_tile(self.row)

    def __repr__(self) -> str:
        return f"Variable({self.name!r}, {self.size:,} B)"


class Variables(LazySequence[Variable]):
    """Variables of a program: objects one by one, or all at once as arrays.

    Args:
        report: The report.
        rows: Rows of the variables table: how many from 0 on, or int64[n].
    """

    def __init__(self, report: Report, rows: int | Int64) -> None:
        super().__init__(rows, lambda row: Variable(report, row), "variable")
        self._report = report

    @property
    def bytes(self) -> Int64:
        """Bytes of each over all tiles, int64[n]."""
        return np.asarray(self._report.variables["bytes"][self.rows], dtype=np.int64)

    @property
    def sizes(self) -> Int64:
        """Bytes of each over all tiles, int64[n]."""
        return self.bytes

    @property
    def names(self) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
        """Name of each, an array of n strings; equal names are one string."""
        column = self._report.variables.columns["name"]
        assert isinstance(column, Text)
        return column[self.rows].decode()

    def named(self, part: str) -> Variables:
        """Variables whose name contains a text."""
        column = self._report.variables.columns["name"]
        assert isinstance(column, Text)
        hits = np.array([part in word for word in column.words] or [False], dtype=bool)
        rows = self.rows
        return self._picked(rows[hits[column.codes[rows]]])
