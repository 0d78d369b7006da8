"""Host measurements as traces: files of traces, tracepoints of a report, and the runs that it lists.

All of them have the same columns (:mod:`abele.trace`), so that one picture shows them. Runs have no time of day: they
are put one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from abele.arrays import Float64, Int32, Int64
from abele.report import Report
from abele.trace.columns import Events, HeatmapData, Instants, Processes, SeriesData, Threads
from abele.trace.trace import Trace, nested
from abele.viewer.bars import LaneBars
from abele.viewer.open_reports import Opened

MOST_DEPTH = 24
"""Rows of a thread; deeper events are not drawn."""
_PHASES = ("waiting", "sending", "running", "reading")
_MOST_NS = 1 << 52
_MOST_TRACEPOINTS = 200_000


@dataclass(frozen=True, eq=False)
class HostColumns:
    """Events of one process, with the columns of a trace and nothing beside them."""

    events: Events
    instants: Instants
    threads: Threads
    processes: Processes
    channels: tuple[str, ...]
    labels: tuple[str, ...]
    series: tuple[SeriesData, ...] = ()
    heatmaps: tuple[HeatmapData, ...] = ()
    details: tuple[str, ...] = ()
    origin_unix_ns: int | None = None


@dataclass(frozen=True, eq=False)
class HostSource:
    """One source of host events.

    Attributes:
        kind: ``trace``, ``tracepoints`` or ``runs``.
        columns: Events of the source.
        note: Note for its readers.
    """

    kind: str
    columns: Trace | HostColumns
    note: str = ""

    @cached_property
    def rows(self) -> dict[int, list[LaneBars]]:
        """Events of each thread by depth; bars have rows of the events table."""
        events, threads = self.columns.events, self.columns.threads
        found: dict[int, list[LaneBars]] = {}
        for thread in range(len(threads)):
            first = int(threads.first_event[thread])
            mine = slice(first, first + int(threads.num_events[thread]))
            depth = np.minimum(events.depth[mine], MOST_DEPTH)
            order = np.argsort(depth, kind="stable")
            ends = np.searchsorted(depth[order], np.arange(MOST_DEPTH + 1))
            deep = int(depth.max(initial=-1)) + 1
            found[thread] = []
            for a, b in zip(
                ends[:-1][:deep].tolist(), [*ends[1:][: deep - 1].tolist(), len(order)][:deep], strict=False
            ):
                at = order[a:b] + first
                begin = events.begin_ns[at]
                # Events that a file says to overlap at one depth end where the next begins.
                end = np.minimum(begin + events.duration_ns[at], np.append(begin[1:], _MOST_NS))
                found[thread].append(LaneBars(begin, np.maximum(end, begin), at))
        return found

    @cached_property
    def self_ns(self) -> Int64:
        """Time of each event that none inside it takes, int64[events]."""
        events = self.columns.events
        inner = np.bincount(events.parent + 1, events.duration_ns, len(events) + 1)[1:]
        return np.maximum(events.duration_ns - inner.astype(np.int64), 0)

    @cached_property
    def nodes(self) -> tuple[Int64, Int64, Int64]:
        """Call paths: the node of each event, int64[events], and the parent (−1) and label of each node."""
        events = self.columns.events
        node = np.full(len(events), -1, np.int64)
        parents: list[Int64] = [np.zeros(0, np.int64)]
        labels: list[Int64] = [np.zeros(0, np.int64)]
        count, size = 0, len(self.columns.labels) + 1
        for depth in range(int(events.depth.max(initial=-1)) + 1):
            at = np.flatnonzero(events.depth == depth)
            above = np.where(events.parent[at] >= 0, node[events.parent[at]], -1)
            keys, which = np.unique((above + 1) * size + events.label[at], return_inverse=True)
            key = keys.astype(np.int64)
            node[at] = which + count
            parents.append(key // size - 1)
            labels.append(key % size)
            count += len(key)
        return node, np.concatenate(parents), np.concatenate(labels)


@dataclass(frozen=True, eq=False)
class HostData:
    """All that was measured.

    Attributes:
        sources: Sources of the data.
        duration_ns: From time zero to behind the last of it.
    """

    sources: tuple[HostSource, ...]
    duration_ns: int


def host_data(opened: Opened) -> HostData:
    """Data measured on the host beside a report; worked out once."""
    return opened.once("host data", lambda: make_host_data(opened.report, opened.traces))


def make_host_data(report: Report, traces: Sequence[Trace] = ()) -> HostData:
    """As :func:`host_data`.

    Args:
        report: The report.
        traces: Traces that were opened beside it.
    """
    sources = [HostSource("trace", trace, trace.note) for trace in traces]
    points = _tracepoints(report.meta.get("tracepoints"))
    if points is not None:
        sources.append(HostSource("tracepoints", points))
    runs = _runs(report)
    if runs is not None:
        sources.append(HostSource("runs", runs, "The runs have no time of day: they follow one another."))
    last = max((_end(source.columns) for source in sources), default=-1)
    return HostData(tuple(sources), last + 1)


def _end(columns: Trace | HostColumns) -> int:
    ends = [int(columns.events.end_ns.max(initial=0)), int(columns.instants.time_ns.max(initial=0))]
    ends += [int(each.time_ns.max(initial=0)) for each in columns.series]
    ends += [int(each.time_ns.max(initial=0)) for each in columns.heatmaps]
    return max(ends)


def _tracepoints(told: Any) -> HostColumns | None:
    """Spans that ``poptorch.profiling`` recorded; other entries are left out."""
    if not isinstance(told, list | tuple):
        return None
    points = [point for point in told[:_MOST_TRACEPOINTS] if isinstance(point, Mapping)]
    begin = np.array([_seconds(point.get("begin_seconds")) for point in points])
    length = np.array([_seconds(point.get("seconds")) for point in points])
    kept = np.isfinite(begin) & np.isfinite(length) & (length >= 0) if len(points) else np.zeros(0, dtype=bool)
    points = [point for point, is_kept in zip(points, kept.tolist(), strict=True) if is_kept]
    if not points:
        return None
    begin, length = begin[kept] - begin[kept].min(), length[kept]
    threads: dict[str, int] = {}
    channels: dict[str, int] = {}
    labels: dict[str, int] = {}
    rows = [
        (
            threads.setdefault(str(point.get("thread", "")), len(threads)),
            channels.setdefault(str(point.get("channel", "")), len(channels)),
            labels.setdefault(str(point.get("name", "")), len(labels)),
        )
        for point in points
    ]
    thread, channel, label = np.array(rows, np.int32).T
    names = tuple(threads), tuple(channels), tuple(labels)
    return _columns(
        process="host program",
        file="tracepoints of the report",
        names=names,
        thread=thread,
        channel=channel,
        label=label,
        begin=begin,
        length=length,
    )


def _seconds(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and abs(value) < _MOST_NS / 1e9 else np.nan


def _runs(report: Report) -> HostColumns | None:
    """The runs of a report, each with what the host did before, during and after it."""
    runs = report.runs
    if not len(runs):
        return None
    columns = [f"{name}_seconds" for name in ("waiting", "sending", "wall", "reading")]
    times = np.stack([np.nan_to_num(np.clip(runs[name], 0, _MOST_NS / 1e10)) for name in columns], axis=1)
    whole = times.sum(axis=1)
    start = np.cumsum(whole) - whole
    begins = start[:, None] + np.cumsum(times, axis=1) - times
    names = [f"run {n + 1} of {name}" if name else f"run {n + 1}" for n, name in enumerate(runs["name"].tolist())]
    count = len(runs)
    shown = (times > 0).reshape(-1)
    begin = np.concatenate([start, begins.reshape(-1)[shown]])
    length = np.concatenate([whole, times.reshape(-1)[shown]])
    label = np.concatenate([np.arange(count) + len(_PHASES), np.tile(np.arange(len(_PHASES)), count)[shown]])
    zeros = np.zeros(len(begin), np.int32)
    return _columns(
        process="runs of the engine",
        file="runs of the report",
        names=(("runs, one after the other",), ("runs",), (*_PHASES, *names)),
        thread=zeros,
        channel=zeros,
        label=label.astype(np.int32),
        begin=begin,
        length=length,
    )


def _columns(
    process: str,
    file: str,
    names: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]],
    thread: Int32,
    channel: Int32,
    label: Int32,
    begin: Float64,
    length: Float64,
) -> HostColumns:
    """Events of a process, of which the report has begin and length in seconds, float64[n].

    Args:
        process: Its name.
        file: File that it is from.
        names: Those of threads, channels and labels, which these columns give by index.
        thread: int32[n].
        channel: int32[n].
        label: int32[n].
        begin: float64[n].
        length: float64[n].
    """
    threads, channels, labels = names
    # Ends are rounded, not lengths, so that what lies inside still does.
    first, last = np.rint(begin * 1e9).astype(np.int64), np.rint((begin + length) * 1e9).astype(np.int64)
    found = nested(thread, first, last - first, len(threads))
    order, count = found.order, len(first)
    events = Events(
        process=np.zeros(count, np.int32),
        thread=thread[order],
        channel=channel[order],
        label=label[order],
        begin_ns=first[order],
        duration_ns=(last - first)[order],
        depth=found.depth,
        parent=found.parent,
        detail=np.full(count, -1, np.int32),
        is_open=np.zeros(count, dtype=bool),
    )
    nothing = np.zeros(0, np.int32)
    return HostColumns(
        events=events,
        instants=Instants(nothing, nothing, nothing, nothing, np.zeros(0, np.int64), nothing),
        threads=Threads(
            process=np.zeros(len(threads), np.int32),
            id=np.arange(len(threads)),
            name=threads,
            first_event=found.first[:-1],
            num_events=np.diff(found.first),
        ),
        processes=Processes(
            id=np.zeros(1, np.int64), parent=np.zeros(1, np.int64), name=(process,), host=("",), file=(file,)
        ),
        channels=channels,
        labels=labels,
    )
