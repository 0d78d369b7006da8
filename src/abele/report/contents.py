"""What the parts of a report may hold: checked when one is loaded, so that whatever is asked of it has an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from abele.errors import InvalidOptionError
from abele.report.archive import part
from abele.report.memory import Memory
from abele.report.schema import TABLES, ColumnSpec
from abele.report.table import Column, Table, Text

_MOST = 1 << 62
"""Sums of counts stay below, so that none wraps."""

Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
Word = Annotated[str, msgspec.Meta(max_length=1 << 16)]
Number = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Scalar = str | Number | float | bool | None
_Level1 = Scalar | list[Scalar] | dict[str, Scalar]
_Level2 = Scalar | list[_Level1] | dict[str, _Level1]
Plain = Scalar | list[_Level2] | dict[str, _Level2]
"""What an entry of ``meta`` may be: numbers and text, in lists and mappings three deep."""


class MemoryHead(msgspec.Struct):
    """What the document says of the memory."""

    categories: list[Word]
    available_bytes: Annotated[int, msgspec.Meta(ge=1, le=_MOST)]


class Document(msgspec.Struct):
    """The document of a report file."""

    format: str
    version: int
    target: dict[str, Scalar]
    graph: dict[str, Count]
    meta: dict[str, Plain]
    memory: MemoryHead
    words: dict[str, dict[str, list[Word]]]


class _Target(msgspec.Struct):
    name: Word
    title: Word
    ipu: Word
    num_ipus: Annotated[int, msgspec.Meta(ge=1, le=_MOST)]
    num_tiles: Annotated[int, msgspec.Meta(ge=1, le=_MOST)]
    clock_hz: Annotated[float, msgspec.Meta(ge=1, le=1e18)]


class _Meta(msgspec.Struct):
    name: Word = ""
    abele_version: Word = ""
    created: Word = ""
    sample_name: Word = ""
    step_name: Word = ""
    programs: list[Word] = []
    compile_seconds: Annotated[float, msgspec.Meta(ge=0, le=1e12)] = 0.0
    samples_per_run: Annotated[float, msgspec.Meta(ge=0, le=1e18)] | None = None
    steps_per_run: Count = 0


def check_document(document: Document) -> None:
    """The entries that are known are what they should be.

    Raises:
        msgspec.ValidationError: One is not.
    """
    with part("target"):
        msgspec.convert(document.target, _Target)
    check_meta(document.meta)


def check_meta(meta: Mapping[str, Any]) -> None:
    """The entries of ``meta`` that are known are what they should be.

    Raises:
        msgspec.ValidationError: One is not.
    """
    with part("meta"):
        msgspec.convert(meta, _Meta)


def check_tables(tables: Mapping[str, Table]) -> None:
    """Every column holds what its specification says, and points into the tables that there are.

    Raises:
        InvalidOptionError: One does not; it is named.
    """
    for name, schema in TABLES.items():
        for key, column in tables[name].columns.items():
            _check_column(f"{name}/{key}.npy", schema.columns[key], column, tables)
    steps = tables["steps"]
    times = steps["executions"].astype(float)
    for key in (k for k in steps.names if k.endswith("cycles")):
        _check_sum(f"steps/{key} times executions", times * steps[key])


def _check_column(name: str, spec: ColumnSpec, column: Column, tables: Mapping[str, Table]) -> None:
    if isinstance(column, Text):
        values = column.codes
        if len(values) and (values.min() < 0 or values.max() >= len(column.words)):
            raise InvalidOptionError(f"{name} points outside its words")
        odd = sorted(set(column.words) - {"", *spec.choices}) if spec.choices else []
        if odd:
            raise InvalidOptionError(f"{name} holds {odd[0]!r:.50}, which is none of {', '.join(spec.choices)}")
        return
    if column.ndim != 1 or not np.isfinite(column).all():
        raise InvalidOptionError(f"{name} is no column of finite numbers")
    if len(column) and column.min() < spec.low:
        raise InvalidOptionError(f"{name} holds {column.min()}, and none may be below {spec.low}")
    if spec.refers and len(column) and column.max() >= len(tables[spec.refers]):
        raise InvalidOptionError(f"{name} points outside the {spec.refers} table")
    _check_sum(name, column)


def _check_sum(name: str, values: Any) -> None:
    if np.abs(values.astype(float)).sum() > _MOST:
        raise InvalidOptionError(f"the sum of {name} is too large to be one")


def check_memory(memory: Memory) -> None:
    """There is a tile, and what the tiles hold adds up.

    Raises:
        InvalidOptionError: It is not so.
    """
    if memory.num_tiles < 1 or len(set(memory.categories)) != len(memory.categories):
        raise InvalidOptionError("memory.npy describes no tile, or a category twice")
    if (memory.bytes < 0).any():
        raise InvalidOptionError("memory.npy holds negative sizes")
    _check_sum("memory.npy", memory.bytes)


def check_cycles(compute_cycles_by_tile: npt.NDArray[np.int64]) -> None:
    """What the tiles compute adds up.

    Raises:
        InvalidOptionError: It does not.
    """
    if (compute_cycles_by_tile < 0).any():
        raise InvalidOptionError("compute_cycles_by_tile.npy holds negative cycles")
    _check_sum("compute_cycles_by_tile.npy", compute_cycles_by_tile)
