"""Traces of the host under libpva's names: processes, their threads, and on these events in each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from abele import trace
from abele.arrays import Int64
from abele.pva.sequences import LazySequence


class Event:
    """A span of time that a program marked."""

    __slots__ = ("_row", "_trace")

    def __init__(self, trace: Trace, row: int) -> None:
        self._trace = trace
        self._row = row

    @property
    def label(self) -> str:
        """Name that the program gave the event."""
        return self._trace.columns.labels[int(self._trace.columns.events.label[self._row])]

    @property
    def channel(self) -> str:
        """The channel that it was recorded on."""
        return self._trace.columns.channels[int(self._trace.columns.events.channel[self._row])]

    @property
    def timestamp(self) -> float:
        """Begin of the event, in microseconds from the trace's time zero on."""
        return int(self._trace.columns.events.begin_ns[self._row]) / 1000

    @property
    def duration(self) -> float:
        """Duration of the event, in microseconds."""
        return int(self._trace.columns.events.duration_ns[self._row]) / 1000

    @property
    def details(self) -> dict[str, Any]:
        """Details that the program told of it; empty for none.

        Raises:
            FileFormatError: It is no JSON object.
        """
        columns = self._trace.columns
        return columns.detail(int(columns.events.detail[self._row]))

    def children(self) -> Events:
        """The events directly inside it, in order."""
        return Events(self._trace, self._trace.children(self._row))

    def __repr__(self) -> str:
        return f"Event({self.label!r}, {self.duration:,} µs)"


class Events(LazySequence[Event]):
    """Events: objects one by one, or arrays of all."""

    def __init__(self, trace: Trace, rows: Int64) -> None:
        super().__init__(rows, lambda row: Event(trace, row), "event")
        self._trace = trace

    @property
    def timestamps(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Begin of each event, float64[n], in microseconds."""
        return self._trace.columns.events.begin_ns[self.rows] / 1000

    @property
    def durations(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Duration of each event, float64[n], in microseconds."""
        return self._trace.columns.events.duration_ns[self.rows] / 1000


class Thread:
    """A thread.

    Attributes:
        tid: The system's number for it.
    """

    __slots__ = ("_row", "_trace", "tid")

    def __init__(self, trace: Trace, row: int) -> None:
        self._trace = trace
        self._row = row
        self.tid = int(trace.columns.threads.id[row])

    @property
    def events(self) -> Events:
        """Its outermost events, in order; ``children()`` leads inside."""
        threads, events = self._trace.columns.threads, self._trace.columns.events
        first = int(threads.first_event[self._row])
        rows = np.arange(first, first + int(threads.num_events[self._row]))
        return Events(self._trace, rows[events.parent[rows] < 0])


class Process:
    """A process.

    Attributes:
        pid: The system's number for it.
    """

    __slots__ = ("_row", "_trace", "pid")

    def __init__(self, trace: Trace, row: int) -> None:
        self._trace = trace
        self._row = row
        self.pid = int(trace.columns.processes.id[row])

    @property
    def threads(self) -> LazySequence[Thread]:
        """Threads of the process."""
        rows = np.flatnonzero(self._trace.columns.threads.process == self._row)
        return LazySequence(rows, lambda row: Thread(self._trace, row), "thread")


class Trace:
    """A trace under libpva's names.

    Args:
        columns: The trace.

    Attributes:
        columns: The same, with all that libpva has no name for: instants, series, heat maps.
    """

    def __init__(self, columns: trace.Trace) -> None:
        self.columns = columns
        parent = np.asarray(columns.events.parent)
        # Events by what encloses them; those of one parent stay in order.
        self._by_parent = np.argsort(parent, kind="stable")
        self._parents = parent[self._by_parent]

    @property
    def processes(self) -> LazySequence[Process]:
        """The processes that it is of."""
        return LazySequence(len(self.columns.processes.id), lambda row: Process(self, row), "process")

    def children(self, event: int) -> Int64:
        """Rows of the events directly inside one, int64[n]."""
        first, last = np.searchsorted(self._parents, [event, event + 1])
        return self._by_parent[first:last]


def openTrace(file: str | Path | trace.Trace) -> Trace:
    """A trace under libpva's names.

    Args:
        file: A file or folder as :meth:`abele.trace.Trace.load` takes it, or a trace that is in memory.

    Raises:
        FileFormatError: The file is missing, damaged so that nothing can be read of it, or no trace.
    """
    return Trace(file if isinstance(file, trace.Trace) else trace.Trace.load(file))
