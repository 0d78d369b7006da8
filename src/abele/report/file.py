"""The report file: a zip of plain arrays and one JSON document, read without executing anything.

``report.json`` holds ``format`` ("abele-report"), ``version``, the mappings ``target``, ``graph`` and ``meta``, the
memory's ``categories`` and ``available_bytes``, and for each text column its distinct ``words``. Every array is an
``.npy`` member: ``<table>/<column>.npy``, ``memory.npy`` and ``compute_cycles_by_tile.npy``; text columns hold codes.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from abele.errors import InvalidOptionError
from abele.report import archive as container
from abele.report.memory import Memory
from abele.report.report import Report
from abele.report.schema import TABLES, ColumnSpec, Schema
from abele.report.table import Column, Table, Text

KIND = container.Kind(
    noun="report",
    version=2,
    max_bytes=4 << 30,
    again="write the report again: the program that made it can, with Report.save",
)
"""Version 2: sync groups and spans; start, groups, block and basis of steps."""

_TARGET: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "title": str,
    "ipu": str,
    "num_ipus": int,
    "num_tiles": int,
    "clock_hz": (int, float),
}


def save(report: Report, path: Path) -> None:
    """Write ``report`` to ``path``: to a temporary file beside it, then moved into place.

    Raises:
        FileFormatError: The folder cannot be written.
    """
    container.write(path, lambda archive: _write(report, archive))


def _write(report: Report, archive: zipfile.ZipFile) -> None:
    words: dict[str, dict[str, list[str]]] = {}
    for name in TABLES:
        table: Table = getattr(report, name)
        texts = {key: column for key, column in table.columns.items() if isinstance(column, Text)}
        words[name] = {key: list(column.words) for key, column in texts.items()}
        for key, column in table.columns.items():
            values = column.codes if isinstance(column, Text) else column
            container.write_array(archive, f"{name}/{key}.npy", values)
    container.write_array(archive, "memory.npy", report.memory.bytes)
    container.write_array(archive, "compute_cycles_by_tile.npy", report.compute_cycles_by_tile)
    container.write_member(archive, KIND.member, json.dumps(_header(report, words), default=_plain))


def _header(report: Report, words: dict[str, dict[str, list[str]]]) -> dict[str, Any]:
    return {
        **KIND.head,
        "target": report.target,
        "graph": report.graph,
        "meta": report.meta,
        "memory": {
            "categories": list(report.memory.categories),
            "available_bytes": report.memory.available_bytes,
        },
        "words": words,
    }


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)


def load(path: Path) -> Report:
    """The report in the file ``path``.

    Raises:
        FileFormatError: The file is missing, damaged, cut short, written by a newer version, or no report.
    """
    return container.read(path, KIND, _read)


def _read(archive: zipfile.ZipFile, header: dict[str, Any]) -> Report:
    memory = header["memory"]
    version, words = header["version"], header["words"]
    tables = {name: _read_table(archive, schema, words.get(name, {}), version) for name, schema in TABLES.items()}
    _check_spans(tables)
    return Report(
        target=_target(header),
        graph=dict(header["graph"]),
        memory=Memory(
            container.read_array(archive, "memory.npy", "<i8"),
            int(memory["available_bytes"]),
            tuple(memory["categories"]),
        ),
        compute_cycles_by_tile=container.read_array(archive, "compute_cycles_by_tile.npy", "<i8"),
        meta=dict(header["meta"]),
        **tables,
    )


def _check_spans(tables: dict[str, Table]) -> None:
    for column, name in (("group", "groups"), ("step", "steps")):
        numbers = tables["spans"][column]
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(tables[name])):
            raise InvalidOptionError(f"spans/{column}.npy points outside the {name} table")


def _target(header: dict[str, Any]) -> dict[str, Any]:
    target = dict(header["target"])
    for name, kind in _TARGET.items():
        if not isinstance(target.get(name), kind):
            raise InvalidOptionError(f"the target's {name} is {target.get(name)!r}")
    return target


def _read_table(archive: zipfile.ZipFile, schema: Schema, words: dict[str, list[str]], version: int) -> Table:
    """A table as a file of some version holds it; what came later takes its defaults."""
    if schema.since > version:
        return schema.empty()
    known = {key: spec for key, spec in schema.columns.items() if spec.since <= version}
    return schema.table(
        **{key: _read_column(archive, f"{schema.name}/{key}.npy", spec, words) for key, spec in known.items()}
    )


def _read_column(archive: zipfile.ZipFile, name: str, spec: ColumnSpec, words: dict[str, list[str]]) -> Column:
    if not spec.is_text:
        return container.read_array(archive, name, spec.dtype)
    codes = container.read_array(archive, name, "<i4")
    vocabulary = tuple(str(word) for word in words[Path(name).stem])
    if len(codes) and (codes.min() < 0 or codes.max() >= len(vocabulary)):
        raise InvalidOptionError(f"{name} points outside its words")
    return Text(codes, vocabulary)
