"""The report file: a zip of plain arrays and one JSON document, read without executing anything.

``report.json`` holds ``format`` ("abele-report"), ``version``, the mappings ``target``, ``graph`` and ``meta``, the
memory's ``categories`` and ``available_bytes``, and for each text column its distinct ``words``. Every array is an
``.npy`` member: ``<table>/<column>.npy``, ``memory.npy`` and ``compute_cycles_by_tile.npy``; text columns hold codes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from abele.report import archive as container
from abele.report.contents import Document, check_cycles, check_document, check_memory, check_tables
from abele.report.memory import Memory
from abele.report.paths import portable_path
from abele.report.report import Report
from abele.report.schema import TABLES, ColumnSpec, Schema
from abele.report.table import Column, Table, Text

KIND = container.Kind(
    noun="report",
    version=2,
    max_bytes=4 << 30,
    free_bytes=64 << 20,
    ratio=250,
    again="write the report again: the program that made it can, with Report.save",
    schema=Document,
)
"""Version 2: sync groups and spans; start, groups, block and basis of steps."""


def save(report: Report, path: Path, *, full_paths: bool = False) -> None:
    """Write ``report`` to ``path``: to a temporary file beside it, then moved into place.

    Args:
        report: The report.
        path: The file.
        full_paths: Keep the full paths of source files; otherwise they are told as ``portable_path`` gives them.

    Raises:
        FileFormatError: The folder cannot be written.
    """
    shown = report if full_paths else replace(report, ops=_with_portable_paths(report.ops))
    container.write(path, KIND, lambda archive: _write(shown, archive))


def _with_portable_paths(ops: Table) -> Table:
    files = ops.columns["file"]
    assert isinstance(files, Text)
    return Table({**ops.columns, "file": Text(files.codes, tuple(map(portable_path, files.words)))})


def _write(report: Report, archive: container.Target) -> None:
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
    container.write_document(archive, KIND, _document(report, words))


def _document(report: Report, words: dict[str, dict[str, list[str]]]) -> dict[str, Any]:
    return {
        "target": report.target,
        "graph": report.graph,
        "meta": report.meta,
        "memory": {
            "categories": list(report.memory.categories),
            "available_bytes": report.memory.available_bytes,
        },
        "words": words,
    }


def load(path: Path) -> Report:
    """The report in the file ``path``.

    Raises:
        FileFormatError: The file is missing, damaged, cut short, written by a newer version, or no report.
    """
    return container.read(path, KIND, _read)


def _read(archive: container.Archive, document: Document) -> Report:
    check_document(document)
    words, version = document.words, document.version
    tables = {name: _read_table(archive, schema, words.get(name, {}), version) for name, schema in TABLES.items()}
    check_tables(tables)
    memory = Memory(
        archive.array("memory.npy", "<i8"), document.memory.available_bytes, tuple(document.memory.categories)
    )
    check_memory(memory)
    cycles = archive.array("compute_cycles_by_tile.npy", "<i8", (memory.num_tiles,))
    check_cycles(cycles)
    return Report(
        target=document.target,
        graph=document.graph,
        memory=memory,
        compute_cycles_by_tile=cycles,
        meta=document.meta,
        **tables,
    )


def _read_table(archive: container.Archive, schema: Schema, words: dict[str, list[str]], version: int) -> Table:
    """A table as a file of some version holds it; what came later takes its defaults."""
    if schema.since > version:
        return schema.empty()
    known = {key: spec for key, spec in schema.columns.items() if spec.since <= version}
    with container.part(f"table {schema.name}"):
        return schema.table(**{k: _read_column(archive, schema.name, k, spec, words) for k, spec in known.items()})


def _read_column(
    archive: container.Archive, table: str, key: str, spec: ColumnSpec, words: dict[str, list[str]]
) -> Column:
    values = archive.vector(f"{table}/{key}.npy", "<i4" if spec.is_text else spec.dtype)
    return Text(values, tuple(words[key])) if spec.is_text else values
