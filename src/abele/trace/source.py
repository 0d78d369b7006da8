"""Contribution of one file to a trace, whatever its format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from abele.arrays import Int64
from abele.trace.columns import Codes, Flags, HeatmapData, SeriesData

MOST_EVENTS = 1 << 26
"""Most events that are taken of a file; later ones are left out, with a note."""
MOST_THREADS = 1 << 16
"""Threads, series and heat maps that are taken of a file."""


@dataclass(frozen=True)
class SourceProcess:
    """A process: its number, its parent's, its name and computer."""

    id: int
    name: str
    parent: int = 0
    host: str = ""


@dataclass(frozen=True)
class SourceThread:
    """Thread: the row of its process, its number in the system, its name."""

    process: int
    id: int
    name: str


@dataclass(frozen=True, eq=False)
class Spans:
    """Events with codes of their own file, in the order in which they ended.

    Attributes:
        thread: int32[n], row in the source's threads.
        channel: int32[n], index into the source's channels.
        label: int32[n], index into the source's labels.
        begin_ns: int64[n], from the source's time zero on.
        duration_ns: int64[n], at least 0.
        detail: int32[n], index into the source's details, -1 for none.
        is_open: bool[n].
    """

    thread: Codes
    channel: Codes
    label: Codes
    begin_ns: Int64
    duration_ns: Int64
    detail: Codes
    is_open: Flags


@dataclass(frozen=True, eq=False)
class Marks:
    """Instants with codes of their own file, in any order; columns as in :class:`Spans`."""

    thread: Codes
    channel: Codes
    label: Codes
    time_ns: Int64
    detail: Codes


@dataclass(frozen=True, eq=False)
class TraceSource:
    """The contents of one file.

    Attributes:
        file: Name of the file.
        unix_ns: Time of its time zero, in nanoseconds since 1970 began; None when it does not say.
        processes: Its processes.
        threads: Their threads, those of a process one after the other.
        channels: Names of channels.
        labels: Texts of labels.
        details: Further facts about single events, as JSON.
        spans: Events.
        marks: Instants.
        series: Numeric series, with rows and codes of this source.
        heatmaps: Heat maps, likewise.
        notes: Remarks for readers of the file.
    """

    file: str
    unix_ns: int | None
    processes: Sequence[SourceProcess]
    threads: Sequence[SourceThread]
    channels: Sequence[str]
    labels: Sequence[str]
    details: Sequence[str]
    spans: Spans
    marks: Marks
    series: Sequence[SeriesData] = ()
    heatmaps: Sequence[HeatmapData] = ()
    notes: Sequence[str] = field(default=())


def joined(parts: Sequence[Int64]) -> Int64:
    """Arrays one after the other, int64[n]."""
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
