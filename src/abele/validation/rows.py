"""Published operator benchmarks: rows of a CSV file."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from abele.errors import AbeleError, FileFormatError
from abele.validation.parameters import Parameters

CHIPS = {"mk1": "gc2", "mk2": "gc200"}
"""Systems by the prefix of their columns."""
_COLUMNS = "name", "tool", "params"


@dataclass(frozen=True)
class Reference:
    """Published figures of one operator on one chip.

    Attributes:
        cycles: Cycles of all its programs, or None.
        total_bytes: Bytes over all tiles, gaps left out; or None.
    """

    cycles: int | None
    total_bytes: int | None


@dataclass(frozen=True)
class BenchmarkRow:
    """One operator benchmark.

    Attributes:
        name: Its name.
        tool: Kind of operator.
        parameters: Parameters of the benchmark.
        references: Published figures by name of the system; a chip without figures is left out.
        unread: Why the parameters could not be read; empty where they could.
    """

    name: str
    tool: str
    parameters: Parameters
    references: dict[str, Reference]
    unread: str = ""


def read_rows(path: str | Path) -> list[BenchmarkRow]:
    """The rows of a CSV file: ``name``, ``tool``, ``params``, and where published cycles and bytes for each chip.

    Raises:
        FileFormatError: There is no such file, a column is missing, or a figure is no number.
    """
    path = Path(path)
    if not path.is_file():
        raise FileFormatError(f"there is no file {path}")
    with path.open(newline="", encoding="utf-8-sig") as file:
        table = csv.DictReader(file, skipinitialspace=True)
        for column in _COLUMNS:
            if column not in (table.fieldnames or ()):
                raise FileFormatError(f"{path.name} has no column {column!r}", at="line 1")
        return [_row(path.name, table.line_num, fields) for fields in table if fields["name"]]


def _row(file: str, line: int, fields: dict[str, str | None]) -> BenchmarkRow:
    name, kind, given = (fields[column] or "" for column in _COLUMNS)
    references = {}
    for chip, system in CHIPS.items():
        try:
            cycles, held = (_figure(fields.get(f"{chip}_{what}")) for what in ("cycles", "total_mem_bytes"))
        except ValueError as wrong:
            raise FileFormatError(f"{file}: {wrong}", at=f"line {line}") from None
        if cycles is not None or held is not None:
            references[system] = Reference(cycles, held)
    # Solvers say the side of the matrix in the row's name alone.
    if kind == "matrix_solver" and name.endswith("_right") and "--left-side" not in given:
        given = f"--left-side false {given}"
    try:
        return BenchmarkRow(name, kind, Parameters.parse(given), references)
    except AbeleError as wrong:
        return BenchmarkRow(name, kind, Parameters({}), references, unread=f"{type(wrong).__name__}: {wrong}")


def _figure(text: str | None) -> int | None:
    """A whole number, or None where nothing stands."""
    return int(float(text)) if text and text.strip() else None
