"""Traces: events of a program on the host over time, read from files."""

from __future__ import annotations

import contextlib
import heapq
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import FileFormatError, InvalidOptionError
from abele.trace.chrome import ChromeFile
from abele.trace.columns import Events, HeatmapData, Instants, Processes, SeriesData, Threads
from abele.trace.format import ENDING, MAGIC
from abele.trace.recorded import RecordedFile
from abele.trace.source import TraceSource
from abele.words import counted, visible

# Nesting of events, from their begins and ends.


@dataclass(frozen=True)
class Nesting:
    """Events in order, with the parent of each.

    Attributes:
        order: int64[n], the events by thread, then by when they begin; what encloses an event comes before it.
        depth: int32[n], in that order: how many events of its thread each lies in.
        parent: int64[n], in that order: place of the innermost of these, -1 for none.
        first: int64[threads + 1], place of the first event of each thread.
        num_crossing: Events of threads where some begin in another and end after it, as those of coroutines do. They
            have lanes in place of depths: no two events of one thread and depth overlap.
    """

    order: Int64
    depth: npt.NDArray[np.int32]
    parent: Int64
    first: Int64
    num_crossing: int


def nested(thread: npt.NDArray[np.int32], begin: Int64, duration: Int64, num_threads: int) -> Nesting:
    """Parents and depths of events.

    The depth of an event is the number of those that began before it and have not ended, so it takes two sorts and no
    walk. Where events of a thread cross, that number leaves overlaps, and lanes are dealt out one by one.

    Args:
        thread: int32[n], thread of each event, below ``num_threads``.
        begin: int64[n], begin of each, in ns.
        duration: int64[n], duration of each, in ns. Events that are equal enclose those given before them.
        num_threads: Number of threads.
    """
    size = len(begin)
    end = begin + duration
    # A stable sort of the reversed events puts the later of two equal ones, which ended later, first.
    order = size - 1 - np.lexsort((-end[::-1], begin[::-1], thread[::-1]))
    first = np.searchsorted(thread[order], np.arange(num_threads + 1)).astype(np.int64)
    depth, parent = np.zeros(size, np.int32), np.full(size, -1, np.int64)
    num_crossing = 0
    # Doubled, an event without length still ends after it begins.
    begins = 2 * begin[order]
    ends = np.maximum(2 * end[order], begins + 1)
    for low, high in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
        if high - low > 1:
            found, owner, crossing = _of_thread(begins[low:high], ends[low:high])
            depth[low:high] = found
            parent[low:high] = np.where(owner < 0, -1, owner + low)
            num_crossing += crossing
    return Nesting(order, depth, parent, first, num_crossing)


def _of_thread(begin: Int64, end: Int64) -> tuple[Int64, Int64, int]:
    """Depth and parent of events of one thread in order, and how many had to be dealt out to lanes."""
    places = np.arange(len(begin))
    depth = places - np.searchsorted(np.sort(end), begin, side="right")
    parent = _parents(depth)
    crossing = (parent >= 0) & (end[parent] < end)
    if not crossing.any():
        return depth, parent, 0
    stretch = np.cumsum(depth == 0) - 1  # Stretches of time in which something is open throughout.
    starts = np.append(np.flatnonzero(depth == 0), len(depth))
    dealt = 0
    for number in np.unique(stretch[crossing]).tolist():
        low, high = int(starts[number]), int(starts[number + 1])
        lanes, owners = _lanes(begin[low:high].tolist(), end[low:high].tolist())
        depth[low:high] = lanes
        parent[low:high] = np.where(np.array(owners) < 0, -1, np.array(owners) + low)
        dealt += high - low
    return depth, parent, dealt


def _parents(depth: Int64) -> Int64:
    """The last event before each that is one less deep, -1 for events of depth 0."""
    size = len(depth)
    by_depth = np.argsort(depth, kind="stable")
    keys = depth[by_depth] * size + by_depth
    found = np.searchsorted(keys, (depth - 1) * size + np.arange(size)) - 1
    return np.where(depth == 0, -1, by_depth[np.maximum(found, 0)])


def _lanes(begin: list[int], end: list[int]) -> tuple[list[int], list[int]]:
    """The lowest free lane for each event, and the event in the lane below if it encloses it, else -1."""
    lanes, owners = [], []
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    latest: list[int] = []
    for place, (start, stop) in enumerate(zip(begin, end, strict=True)):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane = len(latest)
            latest.append(place)
        latest[lane] = place
        heapq.heappush(busy, (stop, lane))
        below = latest[lane - 1] if lane else -1
        lanes.append(lane)
        owners.append(below if below >= 0 and end[below] >= stop else -1)
    return lanes, owners


# Sources put together on one axis of time, their events nested.

T = TypeVar("T", SeriesData, HeatmapData)
_APART_NS = 1 << 58
"""Files whose clocks are further apart (nine years) are not put on one axis by them."""


@dataclass(frozen=True, eq=False)
class TraceParts:
    """Columns of a trace; :class:`abele.trace.Trace` describes each."""

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
    notes: tuple[str, ...]


def assembled(sources: Sequence[TraceSource]) -> TraceParts:
    """The columns of some files together.

    Args:
        sources: The files. Times of those that do not say when they were recorded begin where the others do.
    """
    origin = min((s.unix_ns for s in sources if s.unix_ns is not None), default=None)
    shifts, notes = _shifts(sources, origin)
    # Rows of a file follow those of the files before it: its numbers move by their counts.
    first_process = _firsts(len(s.processes) for s in sources)
    first_thread = _firsts(len(s.threads) for s in sources)
    first_detail = _firsts(len(s.details) for s in sources)
    # Names are merged instead: the same channel or label in two files is one row.
    channels, channel_codes = _shared([s.channels for s in sources])
    labels, label_codes = _shared([s.labels for s in sources])
    threads = [(first_process[k] + t.process, t) for k, s in enumerate(sources) for t in s.threads]
    thread_process = np.array([row for row, _ in threads], np.int32)

    def codes(pick: Callable[[TraceSource], npt.NDArray[np.int32]], tables: Sequence[npt.NDArray[np.int32]]) -> Any:
        return _joined([table[pick(s)] for s, table in zip(sources, tables, strict=True)], np.int32)

    def rows(pick: Callable[[TraceSource], npt.NDArray[np.int32]], firsts: Sequence[int]) -> Any:
        found = [np.where(pick(s) < 0, -1, pick(s) + first) for s, first in zip(sources, firsts, strict=True)]
        return _joined(found, np.int32)

    def times(pick: Callable[[TraceSource], npt.NDArray[np.int64]]) -> Any:
        return _joined([pick(s) + shift for s, shift in zip(sources, shifts, strict=True)], np.int64)

    # Nesting needs all spans on one axis of time, and gives the order of the table.
    span_thread = rows(lambda s: s.spans.thread, first_thread)
    begin = times(lambda s: s.spans.begin_ns)
    duration = _joined([s.spans.duration_ns for s in sources], np.int64)
    found = nested(span_thread, begin, duration, len(threads))
    order = found.order
    if found.num_crossing:
        notes.append(
            f"{counted(found.num_crossing, 'event')} lie in stretches where events of one thread overlap without "
            "enclosing each other, as those of coroutines do: there the depth is a lane"
        )
    events = Events(
        process=thread_process[span_thread[order]],
        thread=span_thread[order],
        channel=codes(lambda s: s.spans.channel, channel_codes)[order],
        label=codes(lambda s: s.spans.label, label_codes)[order],
        begin_ns=begin[order],
        duration_ns=duration[order],
        depth=found.depth,
        parent=found.parent,
        detail=rows(lambda s: s.spans.detail, first_detail)[order],
        is_open=_joined([s.spans.is_open for s in sources], np.bool_)[order],
    )
    # Instants do not nest: time alone orders them.
    mark_thread = rows(lambda s: s.marks.thread, first_thread)
    moments = times(lambda s: s.marks.time_ns)
    by_time = np.argsort(moments, kind="stable")
    instants = Instants(
        process=thread_process[mark_thread[by_time]],
        thread=mark_thread[by_time],
        channel=codes(lambda s: s.marks.channel, channel_codes)[by_time],
        label=codes(lambda s: s.marks.label, label_codes)[by_time],
        time_ns=moments[by_time],
        detail=rows(lambda s: s.marks.detail, first_detail)[by_time],
    )

    def moved(k: int, data: T) -> T:
        return replace(
            data,
            channel=int(channel_codes[k][data.channel]),
            process=data.process + first_process[k],
            time_ns=data.time_ns + shifts[k],
        )

    return TraceParts(
        events=events,
        instants=instants,
        series=tuple(moved(k, data) for k, s in enumerate(sources) for data in s.series),
        heatmaps=tuple(moved(k, data) for k, s in enumerate(sources) for data in s.heatmaps),
        threads=Threads(
            process=thread_process,
            id=np.array([t.id for _, t in threads], np.int64),
            name=tuple(t.name for _, t in threads),
            first_event=found.first[:-1],
            num_events=np.diff(found.first),
        ),
        processes=Processes(
            id=np.array([p.id for s in sources for p in s.processes], np.int64),
            parent=np.array([p.parent for s in sources for p in s.processes], np.int64),
            name=tuple(p.name for s in sources for p in s.processes),
            host=tuple(p.host for s in sources for p in s.processes),
            file=tuple(s.file for s in sources for _ in s.processes),
        ),
        channels=channels,
        labels=labels,
        details=tuple(text for s in sources for text in s.details),
        origin_unix_ns=origin,
        notes=(*(f"{s.file}: {note}" for s in sources for note in s.notes), *notes),
    )


def _shifts(sources: Sequence[TraceSource], origin: int | None) -> tuple[list[int], list[str]]:
    """Shift of each source's times, and notes about it."""
    shifts, notes = [], []
    for source in sources:
        apart = 0 if source.unix_ns is None or origin is None else source.unix_ns - origin
        if source.unix_ns is None and origin is not None:
            notes.append(
                f"{source.file}: does not say when it was recorded; its time zero is put where the others begin"
            )
        if apart > _APART_NS:
            notes.append(f"{source.file}: was recorded years after the others; its time zero is put where they begin")
            apart = 0
        shifts.append(apart)
    return shifts, notes


def _firsts(sizes: Iterable[int]) -> list[int]:
    firsts = [0]
    for size in sizes:
        firsts.append(firsts[-1] + size)
    return firsts[:-1]


def _shared(words: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], list[npt.NDArray[np.int32]]]:
    """Words of several sources as one table, and for each source the code that each of its words has there."""
    index: dict[str, int] = {}
    tables = [np.array([index.setdefault(word, len(index)) for word in some], np.int32) for some in words]
    return tuple(index), tables


def _joined(parts: Sequence[npt.NDArray[Any]], dtype: Any) -> npt.NDArray[Any]:
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.zeros(0, dtype)


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
