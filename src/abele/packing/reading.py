"""Lengths from files in the forms that people have them."""

from __future__ import annotations

import csv
import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

import numpy as np

from abele.arrays import Int64
from abele.errors import FileFormatError, PackingError, nearest
from abele.packing.histogram import SizeHistogram
from abele.words import counted, shortened, visible

MOST_BYTES = 2**31
"""Larger files are refused: text of them has some 400 million lengths."""

_LENGTH_NAMES = ("length", "len", "size", "tokens", "num_tokens", "sequence_length")
"""Names of a column of lengths where other columns count."""

_SHOWN = 40
"""Characters of a wrong entry that a message shows."""


def read_lengths(
    source: str | os.PathLike[str] | BinaryIO | TextIO, *, column: str | None = None, name: str | None = None
) -> SizeHistogram:
    """The histogram of the lengths in a file.

    It may be a ``.npy`` array of integers, a length for each item; or text, with or without a line of names: one length
    a line; lines of a length and how many items have it; or a table, of which ``column`` names the one to read. In a
    table whose first column is called ``length`` (or ``len``, ``size``, ``tokens``), other columns count the items of
    each length; in others, a column has a length for each item. Columns are separated by commas, semicolons or tabs.

    Args:
        source: The path of the file, or a stream of bytes or of text.
        column: A name of the first line.
        name: Name of a stream in messages.

    Raises:
        FileFormatError: The file cannot be read, is neither text nor an array, or is larger than 2 GiB.
        PackingError: An entry is not a whole number, there is no such column, or there are no items.
        ItemSizeError: A length is not positive.
    """
    title = name or str(source)
    data = _read(source, title)
    if data.startswith(b"\x93NUMPY"):
        with _named(title):
            return SizeHistogram.of(_array(data, title))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise FileFormatError(f"{title}: neither text nor a NumPy array", remedy="a file of lengths, one a line")
    table = _Table(text, title)
    if column is None:
        unclear = table.num_columns == 2 and table.names and table.names[0].casefold() not in _LENGTH_NAMES
        if table.num_columns > 2 or unclear:
            raise PackingError(
                f"{title}: a table of {table.num_columns} columns",
                remedy="--column with the name of one" + (f": {', '.join(table.names[:8])}" if table.names else ""),
            )
        chosen, counting = 0, table.num_columns == 2
    else:
        chosen = table.place(column)
        counting = chosen > 0 and table.names[0].casefold() in _LENGTH_NAMES
    with _named(title):
        if not counting:
            return SizeHistogram.of(table.numbers(chosen)[:, 0])
        pairs = table.numbers(0, chosen or 1)
        return SizeHistogram.of_kinds(pairs[:, 0], pairs[:, 1])


@contextmanager
def _named(title: str) -> Iterator[None]:
    """Errors raised inside say which file they are of."""
    try:
        yield
    except PackingError as error:
        error.at = error.at or (None if title in error.message else title)
        raise


class _Table:
    """Text as a table of whole numbers."""

    def __init__(self, text: str, title: str) -> None:
        self.text, self.title = text, title
        first = next((line for line in io.StringIO(text) if line.strip()), "")
        if not first:
            raise PackingError(f"{title}: there are no lengths", because="the file is empty")
        self.delimiter = max(",;\t", key=first.count)
        try:
            cells = [cell.strip() for cell in next(csv.reader([first], delimiter=self.delimiter))]
        except csv.Error as error:
            raise PackingError(f"{title}: line 1: {error}") from None
        self.num_columns = len(cells)
        named = any(_is_name(cell) for cell in cells)
        self.names = cells if named else []
        self.skipped = text[: text.index(first)].count("\n") + 1 if named else 0

    def place(self, column: str) -> int:
        """Index of a column."""
        if column in self.names:
            return self.names.index(column)
        close = nearest(column, self.names)
        raise PackingError(
            f"{self.title}: no column is called {visible(shortened(column, _SHOWN))!r}",
            remedy=f"did you mean {close!r}?"
            if close
            else "one of " + (", ".join(self.names[:20]) or "none: no names"),
        )

    def numbers(self, lengths: int, counts: int | None = None) -> Int64:
        """A column of lengths and perhaps one of counts, int64[num_rows, 1 or 2]."""
        columns = [lengths] if counts is None else [lengths, counts]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # A table without rows is told of where it is counted.
                numbers: Int64 = np.loadtxt(
                    io.StringIO(self.text),
                    np.int64,
                    delimiter=self.delimiter,
                    skiprows=self.skipped,
                    usecols=columns,
                    ndmin=2,
                    comments=None,
                    quotechar='"',
                    converters=None if counts is None else {counts: _count},
                )
                return numbers
        except (ValueError, IndexError, OverflowError) as error:
            raise self._wrong_entry(columns) from error

    def _wrong_entry(self, columns: list[int]) -> PackingError:
        """Error that names the first entry other than a whole number."""
        rows = csv.reader(io.StringIO(self.text), delimiter=self.delimiter)
        try:
            for row in rows:
                if rows.line_num <= self.skipped or not row:
                    continue
                if len(row) <= max(columns):
                    return PackingError(f"{self.title}: line {rows.line_num:,} has {counted(len(row), 'column')}")
                for place, cell in enumerate(row[column] for column in columns):
                    if place and not cell.strip():
                        continue
                    if not _is_number(cell.strip()) or not -(2**63) <= int(cell) < 2**63:
                        shown = visible(shortened(cell, _SHOWN))
                        return PackingError(
                            f"{self.title}: line {rows.line_num:,} has {shown!r}",
                            remedy="lengths and counts are whole numbers below 2**63",
                        )
        except csv.Error as error:
            return PackingError(f"{self.title}: line {rows.line_num:,}: {error}")
        return PackingError(f"{self.title}: not a table of whole numbers")


_MOST_DIGITS = 20


def _is_name(cell: str) -> bool:
    """True if a cell is neither empty nor a number of any kind."""
    try:
        float(cell)
    except ValueError:
        return bool(cell)
    return False


def _count(cell: str) -> int:
    """A count of a table, where an empty cell is none."""
    return int(cell) if cell.strip() else 0


def _is_number(cell: str) -> bool:
    digits = cell.removeprefix("-").removeprefix("+")
    return digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS


def _read(source: str | os.PathLike[str] | BinaryIO | TextIO, title: str) -> bytes:
    try:
        if isinstance(source, str | os.PathLike):
            with Path(source).open("rb") as stream:
                data = stream.read(MOST_BYTES + 1)
        else:
            found = source.read(MOST_BYTES + 1)
            data = found.encode() if isinstance(found, str) else found
    except OSError as error:
        raise FileFormatError(f"{title}: cannot be read: {error.strerror or error}") from error
    if len(data) > MOST_BYTES:
        raise FileFormatError(f"{title}: more than {MOST_BYTES:,} B of lengths are not read")
    return data


def _array(data: bytes, title: str) -> Int64:
    try:
        found = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except (ValueError, OSError, EOFError, MemoryError, SyntaxError, TypeError) as error:
        raise FileFormatError(f"{title}: a damaged NumPy array: {visible(shortened(str(error), 120))}") from error
    if found.ndim != 1:
        raise PackingError(
            f"{title}: an array of shape {list(found.shape)}", remedy="a length for each item, [num_items]"
        )
    return found
