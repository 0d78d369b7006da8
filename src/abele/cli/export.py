"""``abele export``: a report or a trace in formats of other tools."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abele.errors import InvalidOptionError, nearest
from abele.writing import writing, writing_whole

if TYPE_CHECKING:
    from abele.report import Report
    from abele.trace import Trace

FORMATS = ("perfetto", "csv", "json")
_ROWS_AT_A_TIME = 1 << 16
Columns = Mapping[str, Any]


def export(
    file: Annotated[Path, typer.Argument(help="A report, a trace, or what PyTorch's profiler exported.")],
    format: Annotated[str, typer.Option("--format", "-f", help="perfetto, csv or json.")],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="The file to write; with csv and without --table the folder of all tables."
        ),
    ],
    table: Annotated[str, typer.Option("--table", help="With csv: this table alone, as one file.")] = "",
    cycles: Annotated[
        bool, typer.Option("--cycles", help="With perfetto, of a report: a cycle is a nanosecond; nothing is rounded.")
    ] = False,
) -> None:
    """Write the report or trace in FILE in another format: for ui.perfetto.dev, for spreadsheets, for programs."""
    if format not in FORMATS:
        close = nearest(format, FORMATS)
        raise InvalidOptionError(
            f"there is no format {format!r} to export to",
            remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(FORMATS),
        )
    if table and format != "csv":
        raise InvalidOptionError(f"--table chooses a file of csv; {format} is one file", remedy="--format csv")
    if is_trace(file):
        from abele.trace import Trace

        if cycles:
            raise InvalidOptionError("--cycles needs a report: a trace of the host is in nanoseconds")
        loaded = Trace.load(file)
        export_trace(loaded, format, output, table)
        if loaded.note:
            typer.echo(loaded.note, err=True)
    else:
        from abele.report import Report

        export_report(Report.load(file), format, output, table, cycles=cycles)
    typer.echo(f"written: {output}", err=True)


def is_trace(file: Path) -> bool:
    """True for traces and folders of them, False for reports and anything else."""
    from abele.trace import ENDING

    name = file.name.lower()
    return file.is_dir() or name.endswith((ENDING, ".json", ".json.gz"))


def export_report(report: Report, format: str, output: Path, table: str, *, cycles: bool) -> None:
    """Write a report in a format.

    Raises:
        InvalidOptionError: It has no such table.
        FileFormatError: The file or folder cannot be written.
    """
    if format == "perfetto":
        from abele.report.perfetto import write_perfetto

        write_perfetto(report, output, unit="cycles" if cycles else "seconds")
    elif format == "csv":
        from abele.report.schema import TABLES

        write_tables({name: getattr(report, name).columns for name in TABLES}, output, table)
    else:
        write_json(report.to_json(), output)


def export_trace(trace: Trace, format: str, output: Path, table: str) -> None:
    """Write a trace in a format; errors as of :func:`export_report`."""
    if format == "perfetto":
        from abele.trace.perfetto import write_perfetto

        write_perfetto(trace, output)
        return
    tables = trace_tables(trace)
    if format == "csv":
        write_tables(tables, output, table)
    else:
        lists = {name: {key: _list(column) for key, column in columns.items()} for name, columns in tables.items()}
        write_json(
            {"format": "abele-trace", "origin_unix_ns": trace.origin_unix_ns, "note": trace.note, **lists}, output
        )


def trace_tables(trace: Trace) -> dict[str, Columns]:
    """The tables of a trace, with texts for codes."""
    import numpy as np

    def words(codes: Any, texts: Iterable[str]) -> Any:
        return np.array([*texts, ""], dtype=object)[codes]

    def named(columns: Mapping[str, Any]) -> Columns:
        found = dict(columns)
        found["process"] = words(found["process"], trace.processes.name)
        if "thread" in found:
            found["thread"] = words(found["thread"], trace.threads.name)
            found["label"] = words(found["label"], trace.labels)
            found["detail"] = words(found["detail"], trace.details)
        found["channel"] = words(found["channel"], trace.channels)
        return found

    def joined(parts: list[Any], empty: Any) -> Any:
        return np.concatenate(parts) if parts else np.zeros(0, empty)

    samples = [(s, np.arange(len(s)) * 0) for s in trace.series]
    heats = [(h, np.repeat(np.arange(len(h)), h.counts.shape[1])) for h in trace.heatmaps]
    series = {
        "graph": joined([words(rows, [s.graph]) for s, rows in samples], object),
        "series": joined([words(rows, [s.name]) for s, rows in samples], object),
        "unit": joined([words(rows, [s.unit]) for s, rows in samples], object),
        "process": joined([rows + s.process for s, rows in samples], np.int64),
        "channel": joined([rows + s.channel for s, rows in samples], np.int64),
        "time_ns": joined([s.time_ns for s, _ in samples], np.int64),
        "value": joined([s.values for s, _ in samples], np.float64),
    }
    heatmaps = {
        "heatmap": joined([words(rows * 0, [h.name]) for h, rows in heats], object),
        "unit": joined([words(rows * 0, [h.unit]) for h, rows in heats], object),
        "process": joined([rows * 0 + h.process for h, rows in heats], np.int64),
        "channel": joined([rows * 0 + h.channel for h, rows in heats], np.int64),
        "time_ns": joined([h.time_ns[rows] for h, rows in heats], np.int64),
        "from": joined([np.tile(h.edges[:-1], len(h)) for h, _ in heats], np.float64),
        "to": joined([np.tile(h.edges[1:], len(h)) for h, _ in heats], np.float64),
        "count": joined([h.counts.reshape(-1) for h, _ in heats], np.int64),
    }
    return {
        "events": named(vars(trace.events)),
        "instants": named(vars(trace.instants)),
        "series": named(series),
        "heatmaps": named(heatmaps),
        "threads": vars(trace.threads),
        "processes": vars(trace.processes),
    }


def _list(column: Any) -> list[Any]:
    """A column as plain values, in which JSON's NaN is null."""
    values = column.tolist() if hasattr(column, "tolist") else list(column)
    return [None if isinstance(value, float) and value * 0 != 0 else value for value in values]


def write_tables(tables: Mapping[str, Columns], output: Path, table: str) -> None:
    """Write one table as a file, or all of them as files of a folder.

    Raises:
        InvalidOptionError: There is no such table.
        FileFormatError: The file or folder cannot be written.
    """
    if table and table not in tables:
        close = nearest(table, tables)
        raise InvalidOptionError(
            f"there is no table {table!r}",
            remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(tables),
        )
    if table:
        write_csv(tables[table], output)
        return
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
    for name, columns in tables.items():
        write_csv(columns, output / f"{name}.csv")


def write_csv(columns: Columns, path: Path) -> None:
    """Write columns as a file of comma-separated values: names first, UTF-8, lines ended by LF.

    Raises:
        FileFormatError: It cannot be written.
    """
    parts = {name: columns[name] for name in columns}
    rows = max((len(column) for column in parts.values()), default=0)
    with writing_whole(path) as part, part.open("w", encoding="utf-8", errors="replace", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(parts)
        for first in range(0, rows, _ROWS_AT_A_TIME):
            lists = [_plain(column[first : first + _ROWS_AT_A_TIME]) for column in parts.values()]
            writer.writerows(zip(*lists, strict=True))


def _plain(column: Any) -> list[Any]:
    if hasattr(column, "decode"):
        column = column.decode()
    return column.tolist() if hasattr(column, "tolist") else list(column)


def write_json(document: Any, path: Path) -> None:
    """Write one JSON document in ASCII.

    Raises:
        FileFormatError: It cannot be written.
    """
    with writing_whole(path) as part, part.open("w", encoding="ascii") as stream:
        json.dump(document, stream)
        stream.write("\n")
