"""Columns of a trace: NumPy arrays, no object per event."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64

Codes = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Events:
    """Spans of the host's time, in order of threads, then of begins; an event comes after the one around it.

    Attributes:
        process: int32[n], row in the trace's processes.
        thread: int32[n], row in the trace's threads.
        channel: int32[n], index into the trace's ``channels``.
        label: int32[n], index into the trace's ``labels``.
        begin_ns: int64[n], when it began, from the trace's origin on.
        duration_ns: int64[n], how long it took; of one that is still open, how long until the file was last written.
        depth: int32[n], how many events of its thread it lies in.
        parent: int64[n], row of the innermost event that it lies in, -1 for none.
        detail: int32[n], index into the trace's ``details``, -1 for none.
        is_open: bool[n], True for those whose end the file does not have.
    """

    process: Codes
    thread: Codes
    channel: Codes
    label: Codes
    begin_ns: Int64
    duration_ns: Int64
    depth: Codes
    parent: Int64
    detail: Codes
    is_open: Flags

    def __len__(self) -> int:
        return len(self.begin_ns)

    @property
    def end_ns(self) -> Int64:
        """int64[n], when each ended, from the trace's origin on."""
        return self.begin_ns + self.duration_ns


@dataclass(frozen=True, eq=False)
class Instants:
    """Moments that a program marked, in order of time.

    Attributes:
        process: int32[n], row in the trace's processes.
        thread: int32[n], row in the trace's threads.
        channel: int32[n], index into the trace's ``channels``.
        label: int32[n], index into the trace's ``labels``.
        time_ns: int64[n], from the trace's origin on.
        detail: int32[n], index into the trace's ``details``, -1 for none.
    """

    process: Codes
    thread: Codes
    channel: Codes
    label: Codes
    time_ns: Int64
    detail: Codes

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass(frozen=True, eq=False)
class SeriesData:
    """A number over time.

    Attributes:
        graph: Name of the graph that it is drawn in, with others of the same unit.
        name: Its name.
        unit: Unit of the number; empty for a plain one.
        channel: Index into the trace's ``channels``.
        process: Row in the trace's processes.
        time_ns: int64[n], ascending, from the trace's origin on.
        values: float64[n]; may hold NaN and infinities, as losses do.
    """

    graph: str
    name: str
    unit: str
    channel: int
    process: int
    time_ns: Int64
    values: Numbers

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass(frozen=True, eq=False)
class HeatmapData:
    """A histogram over time.

    Attributes:
        name: Its name.
        unit: Unit of the edges; empty for plain numbers.
        channel: Index into the trace's ``channels``.
        process: Row in the trace's processes.
        edges: float64[bins + 1], ascending: bin i is from ``edges[i]`` to below ``edges[i + 1]``, the last one closed.
        time_ns: int64[n], ascending, from the trace's origin on.
        counts: int64[n, bins], values in each bin at each time.
    """

    name: str
    unit: str
    channel: int
    process: int
    edges: Numbers
    time_ns: Int64
    counts: Int64

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass(frozen=True, eq=False)
class Threads:
    """The threads of a trace; events of one lie one after the other.

    Attributes:
        process: int32[n], row in the trace's processes.
        id: int64[n], what the system calls it.
        name: Their names.
        first_event: int64[n], row of its first event.
        num_events: int64[n], how many rows from there.
    """

    process: Codes
    id: Int64
    name: tuple[str, ...]
    first_event: Int64
    num_events: Int64

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True, eq=False)
class Processes:
    """The processes of a trace.

    Attributes:
        id: int64[n], number of the process.
        parent: int64[n], number of the process that started it, 0 when unknown.
        name: Their names.
        host: Names of the computers.
        file: Names of the files that they are read from.
    """

    id: Int64
    parent: Int64
    name: tuple[str, ...]
    host: tuple[str, ...]
    file: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.id)
