"""Allowed contents of a report's parts, checked on loading so that every later question has an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from abele.errors import InvalidOptionError, MachineError
from abele.report.archive import part
from abele.report.column_spec import ColumnSpec
from abele.report.loading import loading_of
from abele.report.memory import Memory
from abele.report.table import Table
from abele.report.text_column import Column, Text

_MOST = 1 << 62
"""Sums of counts stay below, so that none wraps."""

_LONGEST_WORD = 1 << 16
_MOST_TILES = 1 << 22
"""Most tiles of a file: 44 Pod64s; bounds the memory that a short file can make its reader allocate."""
TILES = "tiles"
"""Reference of a column that gives tiles."""

Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
Word = Annotated[str, msgspec.Meta(max_length=_LONGEST_WORD)]
Number = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Scalar = str | Number | float | bool | None
_Level1 = Scalar | list[Scalar] | dict[str, Scalar]
_Level2 = Scalar | list[_Level1] | dict[str, _Level1]
Plain = Scalar | list[_Level2] | dict[str, _Level2]
"""Entries of ``meta``: numbers and text, in lists and mappings three deep."""


class MemoryHead(msgspec.Struct):
    """Memory as the document describes it."""

    categories: list[Word]
    available_bytes: Annotated[int, msgspec.Meta(ge=1, le=_MOST)]


class ReportDocument(msgspec.Struct):
    """The document of a report file."""

    format: str
    version: int
    target: dict[str, Scalar]
    graph: dict[str, Count]
    meta: dict[str, Plain]
    memory: MemoryHead
    words: dict[str, dict[str, list[Word]]] = {}


class _Target(msgspec.Struct):
    name: Word
    title: Word
    ipu: Word
    num_ipus: Annotated[int, msgspec.Meta(ge=1, le=_MOST)]
    num_tiles: Annotated[int, msgspec.Meta(ge=1, le=_MOST)]
    clock_hz: Annotated[float, msgspec.Meta(ge=1, le=1e18)]
    tiles_per_ipu: Annotated[int, msgspec.Meta(ge=1, le=_MOST)] = 1
    num_workers: Annotated[int, msgspec.Meta(ge=1, le=_MOST)] = 1
    num_replicas: Annotated[int, msgspec.Meta(ge=1, le=_MOST)] = 1
    whole_system: Word = ""
    whole_system_num_ipus: Annotated[int, msgspec.Meta(ge=1, le=_MOST)] = 1
    exchange_bytes_per_second: Annotated[float, msgspec.Meta(ge=0, le=1e24)] = 0.0
    host_bytes_per_second: Annotated[float, msgspec.Meta(ge=0, le=1e24)] = 0.0


class _Host(msgspec.Struct):
    clock: Literal["wall", "processor"] = "wall"
    threads: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 1
    runs: Count = 0
    run_seconds: Annotated[float, msgspec.Meta(ge=0, le=1e12)] = 0.0
    host: Word = ""
    rates: dict[str, Annotated[float, msgspec.Meta(ge=0, le=1e24)]] = {}


class _Meta(msgspec.Struct):
    name: Word = ""
    abele_version: Word = ""
    created: Word = ""
    sample_name: Word = ""
    step_name: Word = ""
    programs: list[Word] = []
    figures_of: list[Word] = []
    compile_seconds: Annotated[float, msgspec.Meta(ge=0, le=1e12)] = 0.0
    samples_per_run: Annotated[float, msgspec.Meta(ge=0, le=1e18)] | None = None
    steps_per_run: Count = 0
    host: _Host = msgspec.field(default_factory=_Host)
    loading: dict[str, Any] | None = None


def check_document(document: ReportDocument) -> None:
    """Check the known entries of a document.

    Raises:
        msgspec.ValidationError: One is not.
    """
    with part("target"):
        msgspec.convert(document.target, _Target)
    check_meta(document.meta)


def check_meta(meta: Mapping[str, Any]) -> None:
    """Check the known entries of ``meta``.

    Raises:
        msgspec.ValidationError: One is not.
    """
    with part("meta"):
        known = msgspec.convert(meta, _Meta)
        try:
            loading_of({"loading": known.loading})
        except MachineError as error:
            raise msgspec.ValidationError(f"{error.message} - at `$.loading`") from error


def check_column(name: str, spec: ColumnSpec, column: Column, limits: Mapping[str, int]) -> None:
    """Check a column against its specification, and its references against the tables.

    Args:
        name: Name of the column in errors.
        spec: Its specification.
        column: The column.
        limits: Rows of each table, and tiles, by the names that ``spec.refers`` may have.

    Raises:
        InvalidOptionError: It does not; it is named.
    """
    if isinstance(column, Text):
        values = column.codes
        if len(values) and (values.min() < 0 or values.max() >= len(column.words)):
            raise InvalidOptionError(f"{name} points outside its words")
        odd = sorted(set(column.words) - {"", *spec.choices}) if spec.choices else []
        if odd:
            raise InvalidOptionError(f"{name} holds {odd[0]!r:.50}, which is none of {', '.join(spec.choices)}")
        if any(len(word) > _LONGEST_WORD for word in column.words):
            raise InvalidOptionError(f"{name} holds a word of more than {_LONGEST_WORD:,} characters")
        return
    if not np.isfinite(column).all():
        raise InvalidOptionError(f"{name} is no column of finite numbers")
    if len(column) and column.min() < spec.low:
        raise InvalidOptionError(f"{name} holds {column.min()}, and none may be below {spec.low}")
    if spec.refers and len(column) and column.max() >= limits[spec.refers]:
        outside = "machine" if spec.refers == TILES else f"{spec.refers} table"
        raise InvalidOptionError(f"{name} points outside the {outside}")
    if spec.beyond and len(column):
        own = np.arange(len(column))
        astray = (column >= own) if spec.beyond < 0 else (column >= 0) & (column <= own)
        if astray.any():
            raise InvalidOptionError(f"{name} goes round")
    if spec.ascends and (column[1:] < column[:-1]).any():
        raise InvalidOptionError(f"{name} does not ascend")
    _check_sum(name, column)


def check_beside(table: str, key: str, column: Column, columns: Table, limits: Mapping[str, int]) -> None:
    """Check a column together with another one of its table.

    Raises:
        InvalidOptionError: It does not; it is named.
    """
    if isinstance(column, Text):
        return
    if table == "steps" and key.endswith("cycles"):
        _check_sum(f"steps/{key} times executions", columns["executions"].astype(float) * column)
    if key == "num_groups" and len(columns):
        if (columns["first_group"].astype(np.int64) + column).max() > limits["groups"]:
            raise InvalidOptionError(f"{table}/num_groups.npy points outside the groups table")
    elif key == "num_steps" and len(columns):
        rows = columns["first_step"].astype(np.int64)
        if (np.where(column > 0, rows + column, 0) > limits["steps"]).any() or ((column > 0) & (rows < 0)).any():
            raise InvalidOptionError(f"{table}/num_steps.npy points outside the steps table")
    elif key == "num_tiles":
        if len(columns) and (columns["first_tile"].astype(np.int64) + column).max() > limits[TILES]:
            raise InvalidOptionError(f"{table}/num_tiles.npy points outside the machine")
    elif "num_tiles" in columns and key != "first_tile":
        _check_sum(f"{table}/{key} times num_tiles", columns["num_tiles"].astype(float) * column)


def _check_sum(name: str, values: Any) -> None:
    if np.abs(values.astype(float)).sum() > _MOST:
        raise InvalidOptionError(f"the sum of {name} is too large to be one")


def check_memory(memory: Memory) -> None:
    """Check that there is a tile, and that the bytes on tiles have a sum.

    Raises:
        InvalidOptionError: It is not so.
    """
    runs = memory.run_tiles
    if not len(runs) or runs.min() < 1 or len(set(memory.categories)) != len(memory.categories):
        raise InvalidOptionError("the memory describes no tile, or a category twice")
    if runs.astype(float).sum() > _MOST_TILES:
        raise InvalidOptionError(f"the memory describes more than {_MOST_TILES:,} tiles")
    if (memory.run_bytes < 0).any():
        raise InvalidOptionError("the memory holds negative sizes")
    _check_sum("the memory", memory.run_bytes * runs.astype(float))


def check_cycles(compute_cycles_by_tile: npt.NDArray[np.int64]) -> None:
    """Check that the cycles of the tiles are no negative numbers and have a sum.

    Raises:
        InvalidOptionError: It does not.
    """
    if (compute_cycles_by_tile < 0).any():
        raise InvalidOptionError("compute_cycles_by_tile.npy holds negative cycles")
    _check_sum("compute_cycles_by_tile.npy", compute_cycles_by_tile)
