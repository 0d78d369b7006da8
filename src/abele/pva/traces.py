"""Traces of the host under libpva's names: processes, their threads, and on these events in each other."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from abele.pva.sequences import Int64, LazySequence


class EventColumns(Protocol):
    """Events, by thread and then by when they begin; what encloses an event comes before it. One array per property."""

    @property
    def channel(self) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """Index into the trace's channels, int32[n]."""

    @property
    def label(self) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """Index into the trace's labels, int32[n]."""

    @property
    def begin_ns(self) -> Int64:
        """When each began, int64[n]."""

    @property
    def duration_ns(self) -> Int64:
        """How long each took, int64[n]."""

    @property
    def parent(self) -> Int64:
        """Row of the innermost event that each lies in, -1 for none, int64[n]."""

    def __len__(self) -> int: ...


class ThreadColumns(Protocol):
    """Threads."""

    @property
    def process(self) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """Row of the process of each, int32[n]."""

    @property
    def id(self) -> Int64:
        """What the system calls each, int64[n]."""

    @property
    def first_event(self) -> Int64:
        """Row of the first event of each, int64[n]."""

    @property
    def num_events(self) -> Int64:
        """How many rows from there, int64[n]."""


class ProcessColumns(Protocol):
    """Processes."""

    @property
    def id(self) -> Int64:
        """What the system calls each, int64[n]."""


class TraceColumns(Protocol):
    """What a reader of traces gives."""

    @property
    def events(self) -> EventColumns:
        """The events."""

    @property
    def threads(self) -> ThreadColumns:
        """The threads."""

    @property
    def processes(self) -> ProcessColumns:
        """The processes."""

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of channels."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of events."""


class Event:
    """A span of time that a program marked."""

    __slots__ = ("_row", "_trace")

    def __init__(self, trace: Trace, row: int) -> None:
        self._trace = trace
        self._row = row

    @property
    def label(self) -> str:
        """What the program calls it."""
        return self._trace.columns.labels[int(self._trace.columns.events.label[self._row])]

    @property
    def channel(self) -> str:
        """The channel that it was recorded on."""
        return self._trace.columns.channels[int(self._trace.columns.events.channel[self._row])]

    @property
    def timestamp(self) -> float:
        """When it began, in microseconds from the trace's time zero on."""
        return int(self._trace.columns.events.begin_ns[self._row]) / 1000

    @property
    def duration(self) -> float:
        """How long it took, in microseconds."""
        return int(self._trace.columns.events.duration_ns[self._row]) / 1000

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
        """When each began, float64[n], in microseconds."""
        return self._trace.columns.events.begin_ns[self.rows] / 1000

    @property
    def durations(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """How long each took, float64[n], in microseconds."""
        return self._trace.columns.events.duration_ns[self.rows] / 1000


class Thread:
    """A thread.

    Attributes:
        tid: What the system calls it.
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
        pid: What the system calls it.
    """

    __slots__ = ("_row", "_trace", "pid")

    def __init__(self, trace: Trace, row: int) -> None:
        self._trace = trace
        self._row = row
        self.pid = int(trace.columns.processes.id[row])

    @property
    def threads(self) -> LazySequence[Thread]:
        """Its threads."""
        rows = np.flatnonzero(self._trace.columns.threads.process == self._row)
        return LazySequence(rows, lambda row: Thread(self._trace, row), "thread")


class Trace:
    """A trace under libpva's names.

    Args:
        columns: What a reader gave.

    Attributes:
        columns: The same, with all that libpva has no name for.
    """

    def __init__(self, columns: TraceColumns) -> None:
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


def openTrace(columns: TraceColumns) -> Trace:
    """A trace under libpva's names.

    Args:
        columns: A trace that a reader gave: anything with the columns of :class:`TraceColumns`.
    """
    return Trace(columns)
