"""Traces: events of a program on the host over time, read from files."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from abele.errors import FileFormatError, InvalidOptionError
from abele.trace.assemble import assembled
from abele.trace.chrome import ChromeFile
from abele.trace.columns import Events, HeatmapData, Instants, Processes, SeriesData, Threads
from abele.trace.format import ENDING, MAGIC
from abele.trace.recorded import RecordedFile
from abele.trace.source import TraceSource
from abele.words import counted, visible

_TABLES = ("events", "instants")
File = RecordedFile | ChromeFile


class Trace:
    """Events of programs on the host, from one or several files, as columns.

    Attributes:
        events: Spans of time, nested; by thread, then by begin.
        instants: Marked moments, by time.
        series: Numeric series.
        heatmaps: Histograms over time.
        threads: The threads, in the order of ``events``.
        processes: The processes.
        channels: Names that ``channel`` columns give by index.
        labels: Texts that ``label`` columns give by index.
        details: Further facts about single events, as JSON objects, that ``detail`` columns give by index.
        origin_unix_ns: Origin of times, in nanoseconds since 1970 began; None when no file says. A time of the trace
            and this make a time of day.
        note: Remarks for readers of the files: that one is still being written, or is damaged. Empty for none.
    """

    events: Events
    instants: Instants
    series: tuple[SeriesData, ...]
    heatmaps: tuple[HeatmapData, ...]
    threads: Threads
    processes: Processes
    channels: tuple[str, ...]
    labels: tuple[str, ...]
    details: tuple[str, ...]
    origin_unix_ns: int | None

    def __init__(self, paths: Sequence[Path], files: Sequence[File]) -> None:
        self.paths = tuple(paths)
        self._files = tuple(files)
        sources, problems = _read(self.paths, files)
        parts = assembled(sources)
        self.events, self.instants = parts.events, parts.instants
        self.series, self.heatmaps = parts.series, parts.heatmaps
        self.threads, self.processes = parts.threads, parts.processes
        self.channels, self.labels, self.details = parts.channels, parts.labels, parts.details
        self.origin_unix_ns = parts.origin_unix_ns
        self.note = "\n".join(visible(note) for note in (*problems, *parts.notes))

    @classmethod
    def load(cls, path: str | Path, *more: str | Path) -> Self:
        """The trace in some files, on one axis of time.

        Args:
            path: A file that a recording wrote or is writing; one that PyTorch's profiler exported, or another Chrome
                trace, as JSON or packed JSON; or a folder, of which all recordings are read. ``note`` names those of a
                folder that cannot be.
            *more: Others to put beside it.

        Raises:
            FileFormatError: A file is missing, damaged so that nothing can be read of it, or no trace.
        """
        paths = [Path(p) for p in (path, *more)]
        return cls(paths, [opened(p) for p in _files_of(paths)])

    def grown(self) -> bool:
        """True if a file holds other than it did when it was read, or a folder has a new one."""
        if any(file.grown() for file in self._files):
            return True
        try:
            return {file.path for file in self._files} != set(_files_of(self.paths))
        except FileFormatError:
            return False

    def reload(self) -> Self:
        """Trace with the files' present content; of recordings only new parts are read. This one does not change.

        Raises:
            FileFormatError: As :meth:`load`.
        """
        known = {file.path: file for file in self._files}
        files = [known[p] if p in known else opened(p) for p in _files_of(self.paths)]
        return type(self)(self.paths, files)

    @property
    def duration_ns(self) -> int:
        """From time zero to the last event, instant or value."""
        ends = [int(self.events.end_ns.max())] if len(self.events) else []
        ends += [int(self.instants.time_ns[-1])] if len(self.instants) else []
        times = [*(data.time_ns for data in self.series), *(data.time_ns for data in self.heatmaps)]
        ends += [int(time[-1]) for time in times if len(time)]
        return max(ends, default=0)

    def detail(self, code: int) -> dict[str, Any]:
        """Further facts about an event or instant, by its ``detail``; empty for -1.

        Raises:
            FileFormatError: It is no JSON object.
        """
        if code < 0:
            return {}
        try:
            return msgspec.json.decode(self.details[code], type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError) as error:
            raise FileFormatError(f"detail {code:,} of the trace is no JSON object", because=str(error)) from error

    def rows(self, table: str = "events") -> Iterator[dict[str, Any]]:
        """Events or instants one after the other as plain values, with the texts of their codes; for few.

        Args:
            table: ``events`` or ``instants``.

        Raises:
            InvalidOptionError: There is no such table.
        """
        if table not in _TABLES:
            raise InvalidOptionError(f"a trace has no rows of {table!r}", remedy="one of " + ", ".join(_TABLES))
        columns = {name: values.tolist() for name, values in vars(getattr(self, table)).items()}
        names = tuple(columns)
        for values in zip(*columns.values(), strict=True):
            row = dict(zip(names, values, strict=True))
            row["process"] = self.processes.name[row["process"]]
            row["thread"] = self.threads.name[row["thread"]]
            row["channel"] = self.channels[row["channel"]]
            row["label"] = self.labels[row["label"]]
            row["detail"] = self.detail(row["detail"])
            yield row

    def __repr__(self) -> str:
        parts = [counted(len(self.events), "event")]
        parts += [counted(len(self.instants), "instant")] if len(self.instants) else []
        parts += [f"{len(self.series):,} series"] if self.series else []
        parts += [counted(len(self.heatmaps), "heat map")] if self.heatmaps else []
        where = f"{counted(len(self.threads), 'thread')} of {counted(len(self.processes), 'process')}"
        return f"Trace({', '.join(parts)} in {where}, {self.duration_ns / 1e9:.6g} s)"


def opened(path: Path) -> File:
    """A file of some format, by how it begins.

    Raises:
        FileFormatError: It cannot be read.
    """
    try:
        # Of a pipe or a device nobody knows when it ends.
        is_plain = stat.S_ISREG(path.stat().st_mode)
        with contextlib.ExitStack() as stack:
            start = stack.enter_context(path.open("rb")).read(len(MAGIC)) if is_plain else b""
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not is_plain:
        raise FileFormatError(f"{path}: no plain file", remedy="copy what it gives into a file")
    return RecordedFile(path) if path.suffix == ENDING or start == MAGIC else ChromeFile(path)


def _read(paths: Sequence[Path], files: Sequence[File]) -> tuple[list[TraceSource], list[str]]:
    """Contents of files, and the errors of those of folders that cannot be read.

    Raises:
        FileFormatError: A file that was named cannot be read, or none can.
    """
    sources: list[TraceSource] = []
    problems: list[str] = []
    for file in files:
        try:
            sources.append(file.read())
        except FileFormatError as error:
            if file.path in paths or len(files) == 1:
                raise
            problems.append(error.message)
    if not sources:
        raise FileFormatError(problems[0], because=f"as {counted(len(problems) - 1, 'other file')} of the folder")
    return sources, problems


def _files_of(paths: Sequence[Path]) -> list[Path]:
    """The files in paths, of folders those that recordings wrote.

    Raises:
        FileFormatError: A folder has none.
    """
    found: list[Path] = []
    for path in paths:
        inside = [path]
        if path.is_dir():
            inside = sorted((p for p in path.glob(f"*{ENDING}") if p.is_file()), key=lambda found: found.stem)
        if not inside:
            raise FileFormatError(f"{path}: the folder holds no {ENDING} file")
        found += inside
    return list(dict.fromkeys(found))
