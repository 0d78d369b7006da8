"""Published operator benchmarks: rows of a CSV file."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from abele.errors import FileFormatError
from abele.validation.parameters import Parameters

CHIPS = {"mk1": "gc2", "mk2": "gc200"}
"""Systems by the prefix of their columns."""


@dataclass(frozen=True)
class Reference:
    """What was published for one operator on one chip.

    Attributes:
        cycles: Cycles of all its programs.
        total_bytes: Bytes over all tiles, gaps left out.
    """

    cycles: int
    total_bytes: int


@dataclass(frozen=True)
class Row:
    """One operator benchmark.

    Attributes:
        name: Its name.
        tool: Kind of operator.
        parameters: What the benchmark was given.
        references: Published figures by name of the system; a chip without figures is left out.
    """

    name: str
    tool: str
    parameters: Parameters
    references: dict[str, Reference]


def read_rows(path: str | Path) -> list[Row]:
    """The rows of a CSV file: ``name``, ``tool``, ``params``, and cycles and bytes for each chip.

    Raises:
        FileFormatError: A column is missing, or a figure is no number.
    """
    with Path(path).open(newline="") as file:
        return [_row(Path(path).name, i, fields) for i, fields in enumerate(csv.DictReader(file), start=2)]


def _row(file: str, line: int, fields: dict[str, str]) -> Row:
    try:
        references = {
            system: Reference(int(fields[f"{chip}_cycles"]), int(fields[f"{chip}_total_mem_bytes"]))
            for chip, system in CHIPS.items()
            if fields[f"{chip}_cycles"]
        }
        # Solvers say the side of the matrix in the row's name alone.
        side = " --left-side false" if fields["tool"] == "matrix_solver" and fields["name"].endswith("_right") else ""
        return Row(fields["name"], fields["tool"], Parameters.parse(fields["params"] + side), references)
    except KeyError as missing:
        raise FileFormatError(f"{file} has no column {missing}", at=f"line {line}") from None
    except ValueError as wrong:
        raise FileFormatError(f"{file}: {wrong}", at=f"line {line}") from None
