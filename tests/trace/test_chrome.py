"""Chrome traces: what PyTorch's profiler writes, other tools', and hostile ones."""

from __future__ import annotations

import gzip
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from abele import trace
from abele.errors import FileFormatError
from abele.trace import Trace

Load = Callable[[Any], Trace]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def written(document: Any) -> Trace:
        path = tmp_path / "t.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
        return Trace.load(path)

    return written


def x(ts: Any, dur: Any, name: Any = "n", **more: Any) -> dict[str, Any]:
    return {"ph": "X", "ts": ts, "dur": dur, "name": name, "pid": 1, "tid": 2, **more}


def short(loaded: Trace) -> list[tuple[str, int, int, int]]:
    return [(r["label"], r["begin_ns"], r["duration_ns"], r["depth"]) for r in loaded.rows()]


def test_complete_events__nested__are_columns(load: Load) -> None:
    events = [x(10, 5, "inner", cat="op", args={"k": [1]}), x(8, 10, "outer"), x(8.25, 1.5, "first"), x(100, 0, "dot")]
    loaded = load({"traceEvents": events, "displayTimeUnit": "ms", "other": {"deep": [[[]]]}})
    assert short(loaded) == [
        ("outer", 0, 10000, 0),
        ("first", 250, 1500, 1),
        ("inner", 2000, 5000, 1),
        ("dot", 92000, 0, 0),
    ]
    row = next(r for r in loaded.rows() if r["label"] == "inner")
    assert (row["channel"], row["detail"], row["thread"], row["process"]) == ("op", {"k": [1]}, "2", "1")
    assert (loaded.note, loaded.origin_unix_ns) == ("", None)


def test_begins_and_ends__on_several_threads__are_matched(load: Load) -> None:
    def be(ph: str, ts: int, tid: int, name: str = "") -> dict[str, Any]:
        return {"ph": ph, "ts": ts, "pid": 1, "tid": tid, "name": name}

    loaded = load(
        [
            be("B", 0, 1, "a"),
            be("B", 1, 2, "x"),
            be("B", 2, 1, "b"),
            be("E", 4, 1),
            be("E", 5, 2),
            be("E", 9, 1),
            be("E", 9, 1),
            be("B", 6, 2, "never ends"),
            be("B", 7, 2, "nor this"),
        ]
    )
    assert short(loaded) == [
        ("a", 0, 9000, 0),
        ("b", 2000, 2000, 1),
        ("x", 1000, 4000, 0),
        ("never ends", 6000, 3000, 0),
        ("nor this", 7000, 2000, 1),
    ]
    assert loaded.events.is_open.tolist() == [False, False, False, True, True]
    assert loaded.note == "t.json: 1 event left out: ends without beginnings"


def test_other_events__have_their_place(load: Load) -> None:
    loaded = load(
        [
            {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "main"}},
            {"ph": "M", "name": "thread_sort_index", "pid": 1, "tid": 2, "args": {"sort_index": 3}},
            {"ph": "i", "name": "mark", "ts": 5, "pid": 1, "tid": 2, "s": "t"},
            {"ph": "C", "name": "memory", "ts": 7, "pid": 1, "args": {"used": 3, "free": 4.5, "text": "x", "on": True}},
            {"ph": "C", "name": "memory", "ts": 6, "pid": 1, "args": {"used": 2}},
            {"ph": "b", "cat": "net", "id": "0x1", "name": "get", "ts": 5, "pid": 1, "tid": 2},
            {"ph": "b", "cat": "net", "id": "0x2", "name": "get", "ts": 6, "pid": 1, "tid": 2},
            {"ph": "e", "cat": "net", "id": "0x1", "name": "get", "ts": 8, "pid": 1, "tid": 2},
            {"ph": "e", "cat": "net", "id": "0x2", "name": "get", "ts": 9, "pid": 1, "tid": 2},
            {"ph": "s", "id": 1, "ts": 5, "pid": 1, "tid": 2},
            {"ph": "t", "id": 1, "ts": 5, "pid": 1, "tid": 2},
        ]
    )
    assert loaded.processes.name == ("python",)
    assert loaded.threads.name[:1] == ("main",)
    assert [(row["label"], row["time_ns"]) for row in loaded.rows("instants")] == [("mark", 0)]
    assert [(s.graph, s.name, s.time_ns.tolist(), s.values.tolist()) for s in loaded.series] == [
        ("memory", "used", [1000, 2000], [2.0, 3.0]),
        ("memory", "free", [2000], [4.5]),
    ]
    assert short(loaded) == [("get", 0, 3000, 0), ("get", 1000, 3000, 0)]
    assert {row["thread"] for row in loaded.rows()} == {"get 0x1", "get 0x2"}
    assert "1 event left out: of phase 's'" in loaded.note


def test_times__with_a_base__are_absolute_and_beside_ours(tmp_path: Path) -> None:
    channel = trace.Channel("tests")
    with trace.recording(tmp_path / "ours.abele-trace") as path, channel.tracepoint("ours"):
        time.sleep(0.002)
    ours = Trace.load(path)
    assert ours.origin_unix_ns is not None
    other = tmp_path / "theirs.json.gz"
    document = {
        "traceEvents": [x(5_000_000, 1000, "theirs")],
        "baseTimeNanoseconds": ours.origin_unix_ns - 5_000_000_000 + 700,
    }
    other.write_bytes(gzip.compress(json.dumps(document).encode()))
    both = Trace.load(path, other)
    assert both.origin_unix_ns == ours.origin_unix_ns
    begins = {row["label"]: row["begin_ns"] for row in both.rows()}
    assert begins == {"ours": int(ours.events.begin_ns[0]), "theirs": 700}
    assert both.processes.file == ("ours.abele-trace", "theirs.json.gz")


def test_torch_profiler__its_export__has_the_events_that_it_counted(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    from torch.profiler import ProfilerActivity, profile, record_function

    def profiled(path: Path) -> Any:
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            for _ in range(3):
                with record_function("my step"):
                    torch.nn.functional.relu(torch.randn(64, 64) @ torch.randn(64, 64))
        profiler.export_chrome_trace(str(path))
        return profiler

    path, packed = tmp_path / "torch.json", tmp_path / "torch.json.gz"
    before = time.time_ns()
    profiler = profiled(path)
    after = time.time_ns()
    loaded = Trace.load(path)
    counts = {event.key: event.count for event in profiler.key_averages()}
    labels = np.array([loaded.labels[code] for code in loaded.events.label])
    for key in ("my step", "aten::randn", "aten::relu", "aten::mm"):
        assert (labels == key).sum() == counts[key] > 0
    steps = np.flatnonzero(labels == "my step")
    total = next(event.cpu_time_total for event in profiler.key_averages() if event.key == "my step")
    assert loaded.events.duration_ns[steps].sum() / 1000 == pytest.approx(total, rel=0.02, abs=2)
    inner = np.flatnonzero(labels == "aten::relu")
    assert set(loaded.events.parent[inner].tolist()) == set(steps.tolist())
    assert loaded.origin_unix_ns is not None
    begins = loaded.origin_unix_ns + loaded.events.begin_ns[steps]
    assert (begins > before - 1e8).all()
    assert (begins < after + 1e8).all()
    profiled(packed)
    again = Trace.load(packed)
    assert packed.read_bytes()[:2] == b"\x1f\x8b"
    assert [again.labels[code] for code in again.events.label].count("my step") == 3


BAD = {
    "a time that is NaN": '[{"ph":"X","ts":NaN,"dur":1},%s]',
    "a time that is infinite": '[{"ph":"X","ts":1,"dur":Infinity},%s]',
    "a time that is a list": '[{"ph":"X","ts":[1],"dur":1},%s]',
    "a time that is null": '[{"ph":"X","ts":null,"dur":1},%s]',
    "a time that is true": '[{"ph":"X","ts":true,"dur":1},%s]',
    "a time that is missing": '[{"ph":"X","dur":1},%s]',
    "a negative duration": '[{"ph":"X","ts":1,"dur":-1},%s]',
    "a huge time": '[{"ph":"X","ts":1e300,"dur":1},%s]',
    "a huge float": '[{"ph":"X","ts":1e999,"dur":1},%s]',
    "a huge integer": '[{"ph":"X","ts":1' + "0" * 400 + ',"dur":1},%s]',
    "a text that is no time": '[{"ph":"X","ts":"soon","dur":1},%s]',
    "a phase that is a number": '[{"ph":5,"ts":1,"dur":1},%s]',
    "a phase that is a list": '[{"ph":[],"ts":1,"dur":1},%s]',
    "a counter without numbers": '[{"ph":"C","ts":1,"args":{"x":"y"}},%s]',
    "a counter of a huge number": '[{"ph":"C","ts":1,"args":{"x":1' + "0" * 400 + "}},%s]",
    "a counter with a list": '[{"ph":"C","ts":1,"args":[1]},%s]',
    "an end without a beginning": '[{"ph":"E","ts":1,"pid":9,"tid":9},%s]',
}


@pytest.mark.parametrize("name", BAD)
def test_event__that_cannot_be__is_left_out_and_counted(load: Load, name: str) -> None:
    good = json.dumps(x(7, 2, "good"))
    loaded = load(BAD[name] % good)
    assert short(loaded)[-1][:1] == ("good",)
    assert loaded.events.duration_ns.tolist() == [2000]
    assert "1 event left out" in loaded.note


def test_events__of_odd_names_and_ids__are_shown_as_text(load: Load) -> None:
    odd = [{"a": 1}, [2], None, 1.5, True, -(2**63), 2**70, "\ud800", "<script>", "x" * 10_000, 10**400]
    loaded = load([x(k, 1, value, pid=value, tid=value, cat=value) for k, value in enumerate(odd)])
    assert len(loaded.events) == len(odd)
    assert max(len(label) for label in loaded.labels) <= 4096
    assert "<script>" in loaded.labels
    assert repr(loaded)


def test_numbers_as_text__as_some_tools_write_them__are_read(load: Load) -> None:
    assert short(load([x("7.5", "2", "a")])) == [("a", 0, 2000, 0)]


@pytest.mark.parametrize(
    "document", ["[%s", "[%s,", "[%s,\n", '[%s,{"ph":"X","ts":4', '{"traceEvents":[%s', '{"traceEvents":[%s, {"ph']
)
def test_file__that_is_cut_short__is_shown_up_to_there(load: Load, document: str) -> None:
    loaded = load(document % json.dumps(x(1, 2, "whole", args={"k": {}})))
    assert short(loaded) == [("whole", 0, 2000, 0)]
    assert "cut short" in loaded.note


@pytest.mark.parametrize(
    ("content", "because"),
    [
        (b"", "begins neither"),
        (b"PK\x03\x04 something", "begins neither"),
        (b'"a text"', "begins neither"),
        (b"{}", "traceEvents"),
        (b'{"traceEvents": 5}', "Expected `array`"),
        (b'{"traceEvents": [5]}', "Expected `object`"),
        (b"[1, 2, 3]", "Expected `object`"),
        (b"{ no json", "no trace"),
        (b"[" * 200_000, "no trace"),
        (b'{"traceEvents": [{"ph": "X", "args": ' + b"[" * 200_000, "no trace"),
        (b"\x1f\x8b" + b"x" * 50, "does not unpack"),
        (gzip.compress(b" " * (1 << 27)), "unpacks to more than"),
    ],
)
def test_file__that_is_no_trace__is_refused(tmp_path: Path, content: bytes, because: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    begin = time.perf_counter()
    with pytest.raises(FileFormatError, match=because):
        Trace.load(path)
    assert time.perf_counter() - begin < 5


def test_args__nested_deeply__harm_nothing(load: Load) -> None:
    deep = "[" * 900 + "]" * 900
    loaded = load(f'[{{"ph":"X","ts":1,"dur":1,"name":"a","args":{{"x":{deep}}}}}]')
    assert len(loaded.events) == 1
    big = json.dumps(x(1, 1, "b", args={"k": "v" * 200_000}))
    assert "left out" in json.dumps(load(f"[{big}]").detail(0))


def test_file__larger_than_is_read__is_refused(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("abele.trace.chrome._MOST_BYTES", 100)
    with pytest.raises(FileFormatError, match="more than 100 B"):
        load([x(1, 1)] * 10)


def test_threads_and_events__beyond_the_limit__are_bounded(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("abele.trace.chrome.MOST_THREADS", 4)
    monkeypatch.setattr("abele.trace.chrome.MOST_EVENTS", 10)
    monkeypatch.setattr("abele.trace.chrome._LONGEST_STACK", 3)
    loaded = load([x(k, 1, tid=k) for k in range(20)])
    assert (len(loaded.events), len(loaded.threads)) == (10, 4)
    assert "more than 10 events" in loaded.note
    loaded = load([{"ph": "B", "ts": k, "name": "n", "pid": 1, "tid": 1} for k in range(6)])
    assert len(loaded.events) == 3
    assert "3 events left out: more than 3 open at a time" in loaded.note


def test_random_documents__never_fail_otherwise(load: Load) -> None:
    drawn = random.Random(3)
    words: list[Any] = ["X", "B", "E", "i", "C", "M", "b", "e", "n", 1, -5, 2.5, None, True, "", "name", {}, [], 1e300]
    words += [{"name": "x"}, {"x": 3}, "thread_name", "process_name", 10**30]
    keys = ["ph", "ts", "dur", "pid", "tid", "name", "cat", "id", "args"]
    for _ in range(150):
        events = [{key: drawn.choice(words) for key in keys if drawn.random() < 0.9} for _ in range(30)]
        loaded = load({"traceEvents": events, "baseTimeNanoseconds": drawn.choice([*words, 10**18])})
        assert (loaded.events.duration_ns >= 0).all()
        assert (loaded.events.begin_ns >= 0).all()
        assert loaded.duration_ns >= 0


def test_file__that_changes__is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([x(1, 1)]))
    loaded = Trace.load(path)
    assert not loaded.grown()
    path.write_text(json.dumps([x(1, 1), x(5, 1)]))
    assert loaded.grown()
    assert len(loaded.reload().events) == 2
