"""Histograms of lengths from a file: a column ``length``, and a column of counts for each set."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from abele.errors import FileFormatError, nearest
from abele.packing import SizeHistogram


def read_histograms(path: str | Path) -> dict[str, SizeHistogram]:
    """The histograms of a CSV file, by column; empty cells are zero, and so left out are columns without items.

    Raises:
        FileFormatError: The file cannot be read, has no column ``length``, a length twice, or a cell that is no
            whole number of at least 0.
    """
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            rows, columns = list(reader), list(reader.fieldnames or ())
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileFormatError(f"histograms cannot be read from {path}: {error}") from error
    if "length" not in columns:
        raise FileFormatError(f"{path} has no column length", remedy=f"its columns are {', '.join(columns) or 'none'}")
    table = {name: np.array([_number(path, name, i, row[name]) for i, row in enumerate(rows)]) for name in columns}
    lengths = table.pop("length")
    if len(np.unique(lengths)) != len(lengths):
        raise FileFormatError(f"{path} has a length twice", remedy="one row for each length")
    return {name: SizeHistogram.of_kinds(lengths, counts) for name, counts in table.items() if counts.any()}


def histogram_of(histograms: dict[str, SizeHistogram], column: str, path: str | Path) -> SizeHistogram:
    """The histogram of a column.

    Raises:
        FileFormatError: There is none.
    """
    if column not in histograms:
        close = nearest(column, histograms)
        raise FileFormatError(
            f"{path} has no histogram {column}", remedy=f"did you mean {close}?" if close else "add the column"
        )
    return histograms[column]


def _number(path: Path, column: str, row: int, text: str | None) -> int:
    # A row that ends early has None for what is missing.
    cell = (text or "0").strip() or "0"
    if not cell.isdecimal():
        raise FileFormatError(f"{path}, line {row + 2}: {column} is {text!r}, not a whole number of at least 0")
    return int(cell)
