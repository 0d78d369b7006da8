"""The report file: a zip of plain arrays and one JSON document, read without executing anything.

``report.json`` holds ``format`` ("abele-report"), ``version``, the mappings ``target``, ``graph`` and ``meta``, and the
memory's ``categories`` and ``available_bytes``. Every array is an ``.npy`` member: ``<table>/<column>.npy``, where text
columns hold codes and have their distinct words beside them (``<column>_words.npy``, UTF-8, and
``<column>_ends.npy``), and ``memory/bytes.npy`` with ``memory/run_tiles.npy``. Arrays lie in the file uncompressed and
aligned, so that a reader maps them: a large report costs what is asked of it. Files of versions 1 and 2 are compressed
and read whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.report import archive as container
from abele.report import contents
from abele.report.column_spec import ColumnSpec, Schema
from abele.report.memory import Memory
from abele.report.report import Report
from abele.report.schema import PROGRAM_TILES, STEP_GROUPS, TABLES
from abele.report.table import DeferredColumns, Table
from abele.report.text_column import Column, Text, packed_words, unpacked_words
from abele.report.tiles import dense_runs

# Portable names of source files: without the folders that only their author has.

_PACKAGE = Path(__file__).resolve().parent.parent
_LIBRARIES = ("site-packages", "dist-packages")
_PROJECT_MARKS = ("pyproject.toml", "setup.py", "setup.cfg", ".git", ".hg")


@cache
def portable_path(file: str) -> str:
    """Path of a source file from the root of its project, with forward slashes.

    The root is that of this package (``abele/…``), else the folder of installed packages that holds the file, else the
    nearest folder above it with a ``pyproject.toml``, ``setup.py``, ``setup.cfg``, ``.git`` or ``.hg``, else the
    working folder. A file outside all of these keeps its name alone. Relative paths and names such as ``<stdin>`` are
    kept as they are.
    """
    path = Path(file)
    if not path.is_absolute():
        return file
    root = _root(path)
    return path.relative_to(root).as_posix() if root else path.name


def _root(path: Path) -> Path | None:
    if path.is_relative_to(_PACKAGE):
        return _PACKAGE.parent
    libraries = next((p for p in path.parents if p.name in _LIBRARIES), None)
    project = next((p for p in path.parents if any((p / mark).exists() for mark in _PROJECT_MARKS)), None)
    return libraries or project or next((p for p in (Path.cwd(),) if path.is_relative_to(p)), None)


def told(full_paths: bool) -> Callable[[str], str]:
    """Function that gives the path of a file: the whole path, or its portable part."""
    return str if full_paths else portable_path


# Files of versions 1 and 2, with other names for some parts of a report.


def program_tiles_of(compute_cycles: npt.NDArray[np.int64]) -> Table:
    """Relation of programs and tiles of a file with the cycles of each tile in program 0, int64[tiles]."""
    first, count, values = dense_runs(compute_cycles=compute_cycles)
    return PROGRAM_TILES.table(program=np.zeros(len(first)), first_tile=first, num_tiles=count, **values)


def step_groups_of(spans: Table) -> Table:
    """The relation of steps and sync groups of a file that has the first executions of steps, group by group."""
    pairs = np.unique(np.stack([spans["step"], spans["group"]], axis=1), axis=0)
    return STEP_GROUPS.table(step=pairs[:, 0], first_group=pairs[:, 1])


KIND = container.Kind(
    noun="report",
    version=12,
    max_bytes=4 << 30,
    free_bytes=64 << 20,
    ratio=250,
    again="write the report again: the program that made it can, with Report.save",
    schema=contents.ReportDocument,
    mapped=True,
)
"""Version 2: sync groups and spans; start, groups, block and basis of steps. Version 3: relations with tiles and sync
groups, and arrays that can be mapped. Version 4: the profile of the host. Version 5: what the host
does before and after runs. Version 6: the critical path, and partners of steps. Version 7: the program tree, supersteps
with their vertices and variables, and where variables come from. Version 8: what operations compute with, and
histograms of exponents. Version 9: state and code of operations, addresses. Version 10:
shares that end before vertices. Version 11: products of the host, and instructions on elements of its leaves.
Version 12: sparse operands."""

_WITH_FILES = (
    "ops",
    "host_leaves",
    "host_functions",
    "variables",
    "program_tree",
    "supersteps",
    "codelets",
    "vertices",
)
"""Tables that name source files."""
SMALL_BYTES = 16 << 20
"""Bytes below which a file is read and checked whole on loading; columns of a larger one are read on first use."""


def save(report: Report, path: Path, *, full_paths: bool = False) -> None:
    """Write ``report`` to ``path``: to a temporary file beside it, then moved into place.

    Args:
        report: The report.
        path: The file.
        full_paths: Keep the full paths of source files; otherwise they are told as ``portable_path`` gives them.

    Raises:
        FileFormatError: The folder cannot be written.
    """
    shown = report
    if not full_paths:
        tables: dict[str, Any] = {name: _with_portable_paths(getattr(report, name)) for name in _WITH_FILES}
        shown = replace(report, **tables)
    container.write(path, KIND, lambda archive: _write(shown, archive))


def _with_portable_paths(table: Table) -> Table:
    files = table.columns["file"]
    assert isinstance(files, Text)
    return Table({**table.columns, "file": Text(files.codes, tuple(map(portable_path, files.words)))})


def _write(report: Report, archive: container.ArchiveWriter) -> None:
    for name in TABLES:
        table: Table = getattr(report, name)
        for key, column in table.columns.items():
            _write_column(archive, f"{name}/{key}", column)
    container.write_array(archive, "memory/bytes.npy", report.memory.run_bytes)
    container.write_array(archive, "memory/run_tiles.npy", report.memory.run_tiles)
    container.write_document(archive, KIND, _document(report))


def _write_column(archive: container.ArchiveWriter, name: str, column: Column) -> None:
    if isinstance(column, Text):
        letters, ends = packed_words(column.words)
        container.write_array(archive, f"{name}.npy", column.codes)
        container.write_array(archive, f"{name}_words.npy", letters)
        container.write_array(archive, f"{name}_ends.npy", ends)
    else:
        container.write_array(archive, f"{name}.npy", column)


def _document(report: Report) -> dict[str, Any]:
    return {
        "target": report.target,
        "graph": report.graph,
        "meta": report.meta,
        "memory": {
            "categories": list(report.memory.categories),
            "available_bytes": report.memory.available_bytes,
        },
    }


def load(path: Path, *, whole: bool | None = None) -> Report:
    """The report in the file ``path``.

    Args:
        path: The file.
        whole: Read and check all of it now; by default only where it is small.

    Raises:
        FileFormatError: The file is missing, damaged, cut short, written by a newer version, or no report. What is read
            later is checked when it is read, and raises the same.
    """

    def build(archive: container.Archive, document: contents.ReportDocument) -> Report:
        now = path.stat().st_size <= SMALL_BYTES if whole is None else whole
        return _read(archive, document, now)

    return container.read(path, KIND, build)


def _read(archive: container.Archive, document: contents.ReportDocument, whole: bool) -> Report:
    contents.check_document(document)
    version = document.version
    memory = _read_memory(archive, document)
    heads = {name: _read_heads(archive, schema, document) for name, schema in TABLES.items() if schema.since <= version}
    sizes = {name: _num_rows(name, columns) for name, columns in heads.items()}
    limits = {**dict.fromkeys(TABLES, 0), **sizes, contents.TILES: memory.num_tiles}
    tables = {name: TABLES[name].empty() for name in TABLES}
    for name, columns in heads.items():
        tables[name] = _table(archive, TABLES[name], columns, sizes[name], limits)
    if version < 3:
        cycles = archive.array("compute_cycles_by_tile.npy", "<i8", (memory.num_tiles,))
        contents.check_cycles(cycles)
        tables["program_tiles"] = program_tiles_of(cycles)
        tables["step_groups"] = step_groups_of(tables["spans"])
    if whole or version < 3:
        for name, table in tables.items():
            with container.part(f"table {name}"):
                for key in table.names:
                    table.columns[key]
    return Report(target=document.target, graph=document.graph, memory=memory, meta=document.meta, **tables)


def _read_memory(archive: container.Archive, document: contents.ReportDocument) -> Memory:
    head = document.memory
    if document.version < 3:
        memory = Memory(archive.array("memory.npy", "<i8"), head.available_bytes, tuple(head.categories))
    else:
        values, runs = (archive.stored(f"memory/{name}.npy", "<i8").load() for name in ("bytes", "run_tiles"))
        memory = Memory(values, head.available_bytes, tuple(head.categories), runs)
    contents.check_memory(memory)
    return memory


class _StoredText:
    """A text column of a file: its codes, and its words."""

    def __init__(self, codes: container.StoredArray, words: Any) -> None:
        self.codes = codes
        self.shape = codes.shape
        self._words = words

    def load(self) -> Text:
        """The column."""
        with container.part(self.codes.name):
            return Text(self.codes.load(), self._words())


_Stored = container.StoredArray | _StoredText


def _read_heads(archive: container.Archive, schema: Schema, document: contents.ReportDocument) -> dict[str, _Stored]:
    """The columns of a table as a file of some version holds them, by their heads."""
    version = document.version
    known = {key: spec for key, spec in schema.columns.items() if spec.since <= version}
    with container.part(f"table {schema.name}"):
        return {key: _read_head(archive, schema.name, key, spec, document) for key, spec in known.items()}


def _read_head(
    archive: container.Archive, table: str, key: str, spec: ColumnSpec, document: contents.ReportDocument
) -> _Stored:
    name = f"{table}/{key}"
    values = archive.stored(f"{name}.npy", "<i4" if spec.is_text else spec.dtype)
    if len(values.shape) != 1:
        raise ValueError(f"{name}.npy has {len(values.shape)} dimensions, expected 1")
    if not spec.is_text:
        return values
    if document.version < 3:
        words = tuple(document.words.get(table, {})[key])
        return _StoredText(values, lambda: words)
    letters, ends = archive.stored(f"{name}_words.npy", "|u1"), archive.stored(f"{name}_ends.npy", "<i8")
    return _StoredText(values, lambda: unpacked_words(letters.load(), ends.load()))


def _num_rows(name: str, columns: Mapping[str, _Stored]) -> int:
    sizes = {column.shape[0] for column in columns.values()}
    if len(sizes) != 1:
        raise ValueError(f"columns of the {name} table differ in length")
    return sizes.pop()


def _table(
    archive: container.Archive, schema: Schema, columns: Mapping[str, _Stored], rows: int, limits: Mapping[str, int]
) -> Table:
    """Table whose columns are read, and checked against the schema, on first use."""

    def make(key: str) -> Column:
        spec = schema.columns[key]
        if key not in columns:
            return schema.column(key, rows)
        with archive.reading(f"{schema.name}/{key}.npy"):
            column = columns[key].load()
            contents.check_column(f"{schema.name}/{key}.npy", spec, column, limits)
            contents.check_beside(schema.name, key, column, table, limits)
            return column

    table = Table(DeferredColumns(tuple(schema.columns), lambda: rows, make))
    return table
