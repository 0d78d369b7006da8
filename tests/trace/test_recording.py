"""A reader finds everything that a program records."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest

from abele import trace
from abele.errors import FileFormatError, InvalidOptionError
from abele.trace import Trace
from abele.trace.channel import NOTHING

CHANNEL = trace.Channel("tests")


def texts(loaded: Trace) -> list[str]:
    return [loaded.labels[code] for code in loaded.events.label]


def test_tracepoints__nested__have_their_depth_and_parent(tmp_path: Path) -> None:
    with trace.recording(tmp_path / "a.abele-trace") as path, CHANNEL.tracepoint("outer"):
        for _ in range(2):
            with CHANNEL.tracepoint("middle"), CHANNEL.tracepoint("inner"):
                pass
    loaded = Trace.load(path)
    events = loaded.events
    assert texts(loaded) == ["outer", "middle", "inner", "middle", "inner"]
    assert events.depth.tolist() == [0, 1, 2, 1, 2]
    assert events.parent.tolist() == [-1, 0, 1, 0, 3]
    assert not events.is_open.any()
    assert (events.duration_ns >= 0).all()
    inside = events.parent >= 0
    assert (events.begin_ns[inside] >= events.begin_ns[events.parent[inside]]).all()
    assert (events.end_ns[inside] <= events.end_ns[events.parent[inside]]).all()
    assert loaded.note == ""
    assert loaded.channels == ("tests",)
    assert loaded.threads.name == ("MainThread",)
    assert loaded.processes.id.tolist() == [os.getpid()]


def test_tracepoint__duration__is_that_of_the_clock(tmp_path: Path) -> None:
    with trace.recording(tmp_path) as path:
        before = time.time_ns()
        with CHANNEL.tracepoint("sleep"):
            time.sleep(0.02)
        after = time.time_ns()
    loaded = Trace.load(path)
    assert 0.02e9 <= loaded.events.duration_ns[0] < after - before + 1e6
    assert loaded.origin_unix_ns is not None
    begin = loaded.origin_unix_ns + int(loaded.events.begin_ns[0])
    # The two clocks are read one after the other, and one of them may be set meanwhile.
    assert before - 5e6 <= begin <= after


def test_tracepoint__with_metadata__keeps_it(tmp_path: Path) -> None:
    told = {"step": 3, "loss": 0.5, "name": "a\nb", "shape": [1, 2], "nan": float("nan"), "path": tmp_path}
    with trace.recording(tmp_path) as path:
        with CHANNEL.tracepoint("step", told):
            pass
        with CHANNEL.tracepoint("plain"):
            pass
        CHANNEL.instant("mark", {"k": "v"})
        CHANNEL.instant("mark")
    loaded = Trace.load(path)
    found = {row["label"]: row["detail"] for row in loaded.rows()}
    assert found == {"step": {**told, "nan": None, "path": str(tmp_path)}, "plain": {}}
    assert [row["detail"] for row in loaded.rows("instants")] == [{"k": "v"}, {}]


def test_tracepoint__that_raises__is_recorded_and_the_error_goes_on(tmp_path: Path) -> None:
    with trace.recording(tmp_path) as path, pytest.raises(ZeroDivisionError), CHANNEL.tracepoint("fails"):
        _ = 1 / 0
    assert texts(Trace.load(path)) == ["fails"]
    with pytest.raises(ZeroDivisionError), CHANNEL.tracepoint("not recorded"):
        _ = 1 / 0


def test_decorator__and_instrumented_methods__are_recorded_when_a_recording_begins_later(tmp_path: Path) -> None:
    class Work:
        def run(self, x: int) -> int:
            return x + 1

        @staticmethod
        def helper(x: int) -> int:
            return 2 * x

        @classmethod
        def make(cls) -> Work:
            return cls()

    @CHANNEL.traced()
    def function(x: int) -> int:
        """Doc."""
        return x

    CHANNEL.instrument(Work, ["run", "helper", "make"])
    CHANNEL.instrument(Work, ["run"])
    one = Work()
    CHANNEL.instrument(one, "run")
    assert (function.__doc__, function(1)) == ("Doc.", 1)
    with trace.recording(tmp_path) as path:
        assert (function(3), Work().run(1), Work.helper(4), Work.make().helper(5), one.run(2)) == (3, 2, 8, 10, 3)
    names = [text.split(".")[-1] for text in texts(Trace.load(path))]
    assert names == ["function", "run", "helper", "make", "helper", "run"]
    with pytest.raises(InvalidOptionError, match="Work has no method 'walk'"):
        CHANNEL.instrument(Work, ["walk"])


def test_series_and_heatmaps__values__come_back(tmp_path: Path) -> None:
    with trace.recording(tmp_path) as path:
        graph = CHANNEL.graph("loss", "nats")
        train, test = graph.series("train"), graph.series("test")
        for k in range(5):
            train.add(k / 3)
        test.add(math.nan)
        test.add(np.float32(2))
        heat = CHANNEL.heatmap("weights", [-1, 0, 1, 2], "bit")
        heat.add(np.array([[-1, -0.5, 0.25], [1.5, 2, math.nan]]))
        heat.add([5, -7])
        heat.add_counts([1, 2, 3])
    loaded = Trace.load(path)
    first, second = loaded.series
    assert (first.graph, first.name, first.unit, second.name) == ("loss", "train", "nats", "test")
    assert first.values.tolist() == [k / 3 for k in range(5)]
    assert (np.diff(first.time_ns) > 0).all()
    assert math.isnan(second.values[0])
    assert second.values[1] == 2
    (data,) = loaded.heatmaps
    assert (data.name, data.unit, data.edges.tolist()) == ("weights", "bit", [-1, 0, 1, 2])
    assert data.counts.tolist() == [[2, 1, 2], [0, 0, 0], [1, 2, 3]]
    for bad in ([1, 2], [1, 2, -3], [[1, 2, 3]]):
        with trace.recording(tmp_path), pytest.raises(InvalidOptionError, match="has 3 bins"):
            heat.add_counts(bad)


@pytest.mark.parametrize("edges", [[1], [1, 1], [2, 1], [0, math.nan], [0, math.inf], [[0, 1]], range(5000)])
def test_heatmap__edges_that_are_no_bins__are_refused(edges: list[float]) -> None:
    with pytest.raises(InvalidOptionError, match="has edges that are no bins"):
        CHANNEL.heatmap("bad", edges)


def test_channels__only_those_asked_for__are_recorded(tmp_path: Path) -> None:
    other, late = trace.Channel("other"), "late"
    with trace.recording(tmp_path, ["tests", late]) as path:
        assert (CHANNEL.is_on, other.is_on) == (True, False)
        assert other.tracepoint("x") is NOTHING
        with CHANNEL.tracepoint("a"), other.tracepoint("b"), trace.Channel(late).tracepoint("c"):
            other.instant("d")
            other.graph("g").series("s").add(1)
            other.heatmap("h", [0, 1]).add([0.5])
    loaded = Trace.load(path)
    assert texts(loaded) == ["a", "c"]
    assert (len(loaded.instants), loaded.series, loaded.heatmaps) == (0, (), ())
    assert not CHANNEL.is_on


def test_threads__many_that_end__each_has_its_events(tmp_path: Path) -> None:
    def work(number: int) -> None:
        for _ in range(200):
            with CHANNEL.tracepoint("outer"), CHANNEL.tracepoint(f"thread {number}"):
                pass

    with trace.recording(tmp_path, flush_seconds=0.001) as path:
        for first in range(0, 60, 6):
            threads = [threading.Thread(target=work, args=(k,), name=f"w{k}") for k in range(first, first + 6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        trace.flush()
        from abele.trace.channel import _STATE

        assert _STATE.recorder is not None
        assert len(_STATE.recorder._buffers) <= 1, "buffers of threads that ended go"
    loaded = Trace.load(path)
    assert len(loaded.events) == 60 * 400
    assert sorted(loaded.threads.name) == sorted(f"w{k}" for k in range(60))
    for row, name in enumerate(loaded.threads.name):
        first, count = int(loaded.threads.first_event[row]), int(loaded.threads.num_events[row])
        mine = loaded.events.label[first : first + count]
        assert {loaded.labels[code] for code in mine} == {"outer", f"thread {name[1:]}"}
        assert loaded.events.depth[first : first + count].tolist() == [0, 1] * 200


def test_recording__faster_than_it_is_written__keeps_little_in_memory(tmp_path: Path) -> None:
    from abele.trace.channel import _STATE

    most = 0
    with trace.recording(tmp_path, flush_seconds=1000) as path:
        recorder = _STATE.recorder
        assert recorder is not None
        for k in range(200_000):
            with CHANNEL.tracepoint("e"):
                pass
            if k % 1000 == 0:
                most = max(most, len(recorder.local.buffer.events))
        for _ in range(50_000):
            CHANNEL.instant("i")
            assert len(recorder.local.buffer.instants) <= 1 << 14
    assert 100_000 < most <= 3 * (1 << 16) + 3
    loaded = Trace.load(path)
    assert (len(loaded.events), len(loaded.instants), loaded.note) == (200_000, 50_000, "")


def test_file__while_it_is_written__is_read_and_reloaded(tmp_path: Path) -> None:
    with trace.recording(tmp_path / "a.abele-trace", flush_seconds=1000) as path:
        empty = Trace.load(path)
        assert len(empty.events) == 0
        with CHANNEL.tracepoint("long"):
            with CHANNEL.tracepoint("short"):
                pass
            trace.flush()
            first = Trace.load(path)
            assert (texts(first), first.events.is_open.tolist()) == (["long", "short"], [True, False])
            assert first.events.depth.tolist() == [0, 1]
            assert "still being written" in first.note
            assert not first.grown()
            assert first.events.end_ns[0] >= first.events.end_ns[1]
        with CHANNEL.tracepoint("next"):
            pass
        trace.flush()
        assert first.grown()
        second = first.reload()
        assert (texts(second), second.events.is_open.any()) == (["long", "short", "next"], False)
        assert len(first.events) == 2, "the one before stays as it was"
    assert second.grown()
    third = second.reload()
    assert (third.note, texts(third)) == ("", texts(second))
    assert not third.grown()
    with trace.recording(path), CHANNEL.tracepoint("anew"):
        pass
    assert third.grown()
    assert texts(third.reload()) == ["anew"]


def test_folder__new_files_in_it__are_found(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="holds no"):
        Trace.load(tmp_path)
    paths = []
    for k in range(2):
        with trace.recording(tmp_path) as path, CHANNEL.tracepoint(f"run {k}"):
            pass
        paths.append(path)
        if k == 0:
            loaded = Trace.load(tmp_path)
    assert len(set(paths)) == 2
    assert loaded.grown()
    both = loaded.reload()
    assert (len(both.processes), sorted(texts(both))) == (2, ["run 0", "run 1"])
    # One axis: the second begins after the first.
    assert both.events.begin_ns[1] > both.events.end_ns[0]


def test_start__twice__is_refused(tmp_path: Path) -> None:
    trace.start(tmp_path)
    with pytest.raises(InvalidOptionError, match="a recording is on already"):
        trace.start(tmp_path)
    trace.stop()
    trace.stop()
    assert trace.recording_path() is None


def test_start__where_nothing_can_be_written__says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileFormatError, match="cannot be written"):
        trace.start(tmp_path / "file" / "deeper")
    assert not trace.is_recording()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
def test_recording__disk_is_full__the_program_goes_on_and_the_end_says_so(tmp_path: Path) -> None:
    from abele.trace.channel import _STATE

    trace.start(tmp_path / "a.abele-trace", flush_seconds=1000)
    writer = _STATE.recorder._writer  # type: ignore[union-attr]
    assert writer is not None
    os.close(writer._handle)
    writer._handle = os.open("/dev/full", os.O_WRONLY)
    for _ in range(10):
        with CHANNEL.tracepoint("e"):
            CHANNEL.instant("i")
        trace.flush()
    with pytest.raises(FileFormatError, match="No space left"):
        trace.stop()
    assert not trace.is_recording()


def test_fork__while_others_record__does_not_hang(tmp_path: Path) -> None:
    program = (
        "import os, sys, threading\n"
        "from abele import trace\n"
        "c = trace.Channel('c')\n"
        "trace.start(sys.argv[1], flush_seconds=0.0001)\n"
        "done = threading.Event()\n"
        "def work():\n"
        "    while not done.is_set():\n"
        "        with c.tracepoint('busy'): pass\n"
        "thread = threading.Thread(target=work)\n"
        "thread.start()\n"
        "for k in range(40):\n"
        "    with c.tracepoint('forks'):\n"
        "        child = os.fork()\n"
        "        if not child:\n"
        "            with c.tracepoint('child'): pass\n"
        "            trace.flush()\n"
        "            break\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "if not child:\n"
        "    trace.stop()\n"
        "    os._exit(0)\n"
        "done.set()\n"
        "thread.join()\n"
    )
    ignored = ("-W", "error", "-W", "ignore::DeprecationWarning")
    subprocess.run([sys.executable, *ignored, "-c", program, str(tmp_path)], check=True, timeout=120)
    loaded = Trace.load(tmp_path)
    found = texts(loaded)
    assert (len(loaded.processes), found.count("forks"), found.count("child"), loaded.note) == (41, 40, 40, "")


def test_series__of_one_name_from_many_threads__is_one(tmp_path: Path) -> None:
    def work() -> None:
        for k in range(100):
            CHANNEL.graph("g").series("s").add(k)
            CHANNEL.heatmap("h", [0, 1]).add([0.5])

    with trace.recording(tmp_path) as path:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    loaded = Trace.load(path)
    assert [len(series) for series in loaded.series] == [400]
    assert [heat.counts.sum() for heat in loaded.heatmaps] == [400]
    assert (np.diff(loaded.series[0].time_ns) >= 0).all()


def test_fork__child__has_a_file_of_its_own(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from abele import trace\n"
        "c = trace.Channel('c')\n"
        "trace.start(sys.argv[1])\n"
        "with c.tracepoint('parent'):\n"
        "    for k in range(2):\n"
        "        child = os.fork()\n"
        "        if not child:\n"
        "            if k:\n"
        "                with c.tracepoint('child'): pass\n"
        "            trace.stop()\n"
        "            os._exit(0)\n"
        "        assert os.waitpid(child, 0)[1] == 0\n"
    )
    # Newer Pythons warn of any fork of a process with threads.
    ignored = ("-W", "error", "-W", "ignore::DeprecationWarning")
    subprocess.run([sys.executable, *ignored, "-c", program, str(tmp_path)], check=True)
    loaded = Trace.load(tmp_path)
    assert (len(loaded.processes), sorted(texts(loaded)), loaded.note) == (2, ["child", "parent"], "")
    child = texts(loaded).index("child")
    row = int(loaded.events.process[child])
    assert loaded.processes.parent[row] == loaded.processes.id[1 - row]


@pytest.mark.parametrize("ending", ["os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(0)"])
def test_process__that_is_killed_or_just_ends__leaves_a_file(tmp_path: Path, ending: str) -> None:
    program = (
        "import os, signal, sys, time\n"
        "from abele import trace\n"
        "c = trace.Channel('c')\n"
        "trace.start(sys.argv[1], flush_seconds=0.01)\n"
        "with c.tracepoint('done'): pass\n"
        "point = c.tracepoint('open')\n"
        "point.__enter__()\n"
        "time.sleep(0.2)\n" + ending
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program, str(tmp_path)], check=False)
    killed = "kill" in ending
    assert done.returncode == (-signal.SIGKILL if killed else 0)
    loaded = Trace.load(tmp_path)
    assert texts(loaded) == (["done", "open"] if killed else ["done"])
    assert ("has no end" in loaded.note) == killed


def test_coroutines__events_that_cross__have_lanes(tmp_path: Path) -> None:
    async def one(name: str, go: asyncio.Event, leave: asyncio.Event) -> None:
        await go.wait()
        with CHANNEL.tracepoint(name):
            await leave.wait()

    async def several() -> None:
        moments = {name: (asyncio.Event(), asyncio.Event()) for name in "abc"}
        tasks = [asyncio.create_task(one(name, *both)) for name, both in moments.items()]
        for name, which in (("a", 0), ("b", 0), ("a", 1), ("c", 0), ("b", 1), ("c", 1)):
            moments[name][which].set()
            for _ in range(3):
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    with trace.recording(tmp_path) as path:
        asyncio.run(several())
    loaded = Trace.load(path)
    found = dict(zip(texts(loaded), loaded.events.depth.tolist(), strict=True))
    assert found == {"a": 0, "b": 1, "c": 0}
    assert "3 events lie in stretches where events of one thread overlap" in loaded.note


def test_labels__long_odd_and_many__are_kept_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("abele.trace.recorder._MOST_LABELS", 50)
    with trace.recording(tmp_path) as path:
        with CHANNEL.tracepoint("x" * 5000), CHANNEL.tracepoint("\ud800 \x1b[31m <b>"):
            pass
        for k in range(100):
            with CHANNEL.tracepoint(f"label {k}"):
                pass
        with CHANNEL.tracepoint("big", {"k": "v" * 100_000}):
            pass
    loaded = Trace.load(path)
    assert len(loaded.events) == 103
    assert texts(loaded)[0] == "x" * 999 + "…"
    assert texts(loaded)[1] == "? \x1b[31m <b>"
    assert texts(loaded)[2:50] == [f"label {k}" for k in range(48)]
    assert set(texts(loaded)[50:]) == {"(one of many more names)"}
    assert "left out" in loaded.detail(int(loaded.events.detail[-1]))


def test_metadata__that_is_no_mapping__is_refused(tmp_path: Path) -> None:
    with trace.recording(tmp_path), pytest.raises(InvalidOptionError, match="metadata of an event is a list"):
        CHANNEL.tracepoint("x", ["a"])  # type: ignore[arg-type]


def test_tracepoint__open_when_the_recording_ends__harms_nothing(tmp_path: Path) -> None:
    with trace.recording(tmp_path) as path:
        point = CHANNEL.tracepoint("open")
        point.__enter__()
    point.__exit__(None, None, None)
    with trace.recording(tmp_path) as other:
        point = CHANNEL.tracepoint("left by another thread")
        thread = threading.Thread(target=point.__enter__, name="w")
        thread.start()
        thread.join()
        point.__exit__(None, None, None)
    assert len(Trace.load(path).events) == 0
    loaded = Trace.load(other)
    assert (texts(loaded), loaded.threads.name) == (["left by another thread"], ("w",))


class _Bare:
    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> _Bare:
        return self

    def __exit__(self, *caught: object) -> None:
        pass


def _cost_ns(make: Callable[[str], AbstractContextManager[object]]) -> float:
    begin = time.thread_time_ns()
    for _ in range(5000):
        with make("x"):
            pass
    return (time.thread_time_ns() - begin) / 5000


def test_disabled_tracepoint__cost__is_below_a_python_context_manager() -> None:
    # A ratio, in turns: the speed of the machine and what else runs there fall out.
    turns = [(_cost_ns(CHANNEL.tracepoint), _cost_ns(_Bare)) for _ in range(20)]
    assert min(off for off, _ in turns) < 0.8 * min(bare for _, bare in turns)
