"""Traces of the host under libpva's names."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from abele import pva
from abele.errors import FileFormatError, ReportIndexError
from abele.trace import Channel, recording
from abele.trace import Trace as Recorded


@dataclass
class Events:
    """Two threads: a call with two parts inside, of which one has a part; and one event alone."""

    channel: np.ndarray = field(default_factory=lambda: np.array([0, 0, 1, 1, 0, 1], np.int32))
    label: np.ndarray = field(default_factory=lambda: np.array([0, 1, 2, 3, 0, 2], np.int32))
    begin_ns: np.ndarray = field(default_factory=lambda: np.array([0, 1000, 2000, 5000, 9000, 500]))
    duration_ns: np.ndarray = field(default_factory=lambda: np.array([8000, 3000, 500, 1500, 10, 700]))
    parent: np.ndarray = field(default_factory=lambda: np.array([-1, 0, 1, 0, -1, -1]))

    def __len__(self) -> int:
        return len(self.begin_ns)


@dataclass
class Threads:
    process: np.ndarray = field(default_factory=lambda: np.array([0, 1, 0], np.int32))
    id: np.ndarray = field(default_factory=lambda: np.array([11, 21, 12]))
    first_event: np.ndarray = field(default_factory=lambda: np.array([0, 5, 6]))
    num_events: np.ndarray = field(default_factory=lambda: np.array([5, 1, 0]))


@dataclass
class Processes:
    id: np.ndarray = field(default_factory=lambda: np.array([1, 2]))


@dataclass
class Columns:
    events: Events = field(default_factory=Events)
    threads: Threads = field(default_factory=Threads)
    processes: Processes = field(default_factory=Processes)
    channels: tuple[str, ...] = ("poptorch", "poplar")
    labels: tuple[str, ...] = ("call", "compile", "lower", "load")


Nested = tuple[str, str, list["Nested"]]


def nested(event: pva.Event) -> Nested:
    return event.label, event.channel, [nested(child) for child in event.children()]


def test_trace__processes_threads_and_events__nest() -> None:
    trace = pva.Trace(Columns())
    assert [(p.pid, [t.tid for t in p.threads]) for p in trace.processes] == [(1, [11, 12]), (2, [21])]
    outer = trace.processes[0].threads[0].events
    assert [nested(event) for event in outer] == [
        ("call", "poptorch", [("compile", "poptorch", [("lower", "poplar", [])]), ("load", "poplar", [])]),
        ("call", "poptorch", []),
    ]
    assert [nested(event) for event in trace.processes[1].threads[0].events] == [("lower", "poplar", [])]
    assert len(trace.processes[0].threads[1].events) == 0


def test_trace__times__are_microseconds() -> None:
    outer = pva.Trace(Columns()).processes[0].threads[0].events
    assert (outer[0].timestamp, outer[0].duration) == (0.0, 8.0)
    assert (outer[1].timestamp, outer[1].duration) == (9.0, 0.01)
    assert outer.timestamps.tolist() == [0.0, 9.0]
    assert outer[0].children().durations.tolist() == [3.0, 1.5]


def test_trace__place_that_there_is_not__is_an_index_error() -> None:
    with pytest.raises(ReportIndexError, match="no process 2 among 2 processes"):
        pva.Trace(Columns()).processes[2]


def test_open__recording__has_its_threads_and_events(tmp_path: Path) -> None:
    outer, inner = Channel("poptorch"), Channel("poplar")

    def work() -> None:
        with outer.tracepoint("call"):
            for part in ("compile", "load"):
                with inner.tracepoint(part):
                    pass

    path = tmp_path / "a.abele-trace"
    with recording(path):
        work()
        other = threading.Thread(target=work)
        other.start()
        other.join()
    for trace in (pva.openTrace(path), pva.openTrace(str(tmp_path)), pva.openTrace(Recorded.load(path))):
        (process,) = trace.processes
        assert process.pid == os.getpid()
        assert len(process.threads) == 2
        for thread in process.threads:
            (call,) = thread.events
            assert (call.label, call.channel, call.details) == ("call", "poptorch", {})
            assert [(e.label, e.channel) for e in call.children()] == [("compile", "poplar"), ("load", "poplar")]
            first, second = call.children()
            assert call.timestamp <= first.timestamp <= first.timestamp + first.duration <= second.timestamp + 1e-3
            assert call.duration >= first.duration + second.duration - 1e-3


def test_open__no_trace__is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.pvti").write_bytes(b"SQLite format 3\x00" + bytes(100))
    with pytest.raises(FileFormatError):
        pva.openTrace(tmp_path / "x.pvti")
    with pytest.raises(FileFormatError):
        pva.openTrace(tmp_path / "none.abele-trace")
