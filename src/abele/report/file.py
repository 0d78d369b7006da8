"""The report file: a zip of plain arrays and one JSON document, read without executing anything.

``report.json`` holds ``format`` ("abele-report"), ``version``, the mappings ``target``, ``graph`` and ``meta``, the
memory's ``categories`` and ``available_bytes``, and for each text column its distinct ``words``. Every array is an
``.npy`` member: ``<table>/<column>.npy``, ``memory.npy`` and ``compute_cycles_by_tile.npy``; text columns hold codes.
"""

from __future__ import annotations

import io
import json
import os
import struct
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from abele.errors import FileFormatError, InvalidOptionError
from abele.report.memory import Memory
from abele.report.report import Report
from abele.report.schema import TABLES, ColumnSpec, Schema
from abele.report.table import Array, Column, Table, Text

FORMAT = "abele-report"
VERSION = 2
"""Version that is written. 2: sync groups and spans; start, groups, block and basis of steps."""
MAX_BYTES = 4 << 30
"""Most that the members of a file may unpack to."""

_UNREADABLE = (zlib.error, struct.error, EOFError, LookupError, TypeError, ValueError, OverflowError, RuntimeError)
"""What Python's readers of zip, JSON and .npy raise on damaged bytes; our own errors about columns are ValueErrors."""

_TARGET: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "title": str,
    "ipu": str,
    "num_ipus": int,
    "num_tiles": int,
    "clock_hz": (int, float),
}
_AGAIN = "write the report again: the program that made it can, with Report.save"


def save(report: Report, path: Path) -> None:
    """Write ``report`` to ``path``: to a temporary file beside it, then moved into place.

    Raises:
        FileFormatError: The folder cannot be written.
    """
    try:
        handle, temporary = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=path.absolute().parent)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as stream:
            _write(report, stream)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def _write(report: Report, stream: Any) -> None:
    words: dict[str, dict[str, list[str]]] = {}
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=4) as archive:
        for name in TABLES:
            table: Table = getattr(report, name)
            texts = {key: column for key, column in table.columns.items() if isinstance(column, Text)}
            words[name] = {key: list(column.words) for key, column in texts.items()}
            for key, column in table.columns.items():
                _write_array(archive, f"{name}/{key}.npy", column.codes if isinstance(column, Text) else column)
        _write_array(archive, "memory.npy", report.memory.bytes)
        _write_array(archive, "compute_cycles_by_tile.npy", report.compute_cycles_by_tile)
        archive.writestr("report.json", json.dumps(_header(report, words), default=_plain))


def _header(report: Report, words: dict[str, dict[str, list[str]]]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
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


def _write_array(archive: zipfile.ZipFile, name: str, array: Array) -> None:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
    archive.writestr(name, buffer.getvalue())


def load(path: Path) -> Report:
    """The report in the file ``path``.

    Raises:
        FileFormatError: The file is missing, damaged, cut short, written by a newer version, or no report.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive, path)
    except FileFormatError:
        raise
    except OSError as error:
        raise FileFormatError(f"{path}: {error.strerror or error}", remedy="give the path of a report file") from error
    except zipfile.BadZipFile as error:
        raise FileFormatError(_not_readable(path), because=str(error), remedy=_AGAIN) from error
    except _UNREADABLE as error:
        raise FileFormatError(f"{path}: the report is damaged", because=str(error), remedy=_AGAIN) from error


def _not_readable(path: Path) -> str:
    with path.open("rb") as stream:
        start = stream.read(4)
    cut_short = start == b"PK\x03\x04"
    return f"{path}: the report is damaged or cut short" if cut_short else f"{path}: not an Abele report"


def _read(archive: zipfile.ZipFile, path: Path) -> Report:
    sizes = {info.filename: info.file_size for info in archive.infolist()}
    if "report.json" not in sizes:
        raise FileFormatError(f"{path}: not an Abele report", because="the archive holds no report.json")
    if sum(sizes.values()) > MAX_BYTES:
        raise FileFormatError(
            f"{path}: unpacks to {sum(sizes.values()):,} B, more than the {MAX_BYTES:,} B that a report may hold"
        )
    header = json.loads(archive.read("report.json"))
    _check_version(header, path)
    memory = header["memory"]
    version, words = header["version"], header["words"]
    tables = {name: _read_table(archive, schema, words.get(name, {}), version) for name, schema in TABLES.items()}
    _check_spans(tables)
    return Report(
        target=_target(header),
        graph=dict(header["graph"]),
        memory=Memory(
            _read_array(archive, "memory.npy", np.dtype("<i8")),
            int(memory["available_bytes"]),
            tuple(memory["categories"]),
        ),
        compute_cycles_by_tile=_read_array(archive, "compute_cycles_by_tile.npy", np.dtype("<i8")),
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


def _check_version(header: Any, path: Path) -> None:
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise FileFormatError(f"{path}: not an Abele report", because="report.json does not say so")
    version = header.get("version")
    if not isinstance(version, int) or version < 1:
        raise FileFormatError(f"{path}: the report is damaged", because=f"format version {version!r}", remedy=_AGAIN)
    if version > VERSION:
        raise FileFormatError(
            f"{path}: the report is of format version {version}; this Abele reads up to version {VERSION}",
            remedy="install a newer Abele: pip install --upgrade abele",
        )


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
        return _read_array(archive, name, np.dtype(spec.dtype))
    codes = _read_array(archive, name, np.dtype("<i4"))
    vocabulary = tuple(str(word) for word in words[Path(name).stem])
    if len(codes) and (codes.min() < 0 or codes.max() >= len(vocabulary)):
        raise InvalidOptionError(f"{name} points outside its words")
    return Text(codes, vocabulary)


def _read_array(archive: zipfile.ZipFile, name: str, dtype: np.dtype[Any]) -> Array:
    stream = io.BytesIO(archive.read(name))
    np.lib.format.read_magic(stream)
    shape, fortran_order, stored = np.lib.format.read_array_header_1_0(stream)
    data = stream.read()
    count = int(np.prod(shape, dtype=object))
    if stored != dtype or fortran_order or count * dtype.itemsize != len(data):
        raise InvalidOptionError(f"{name} holds {stored} of shape {shape} in {len(data):,} B, expected {dtype}")
    return np.frombuffer(data, dtype).reshape(shape).copy()
