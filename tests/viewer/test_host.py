"""Host measurements: runs and tracepoints as traces, windows, level of detail, traces of files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import abele as ab
from abele.errors import FileFormatError, InvalidOptionError
from abele.report import Report
from abele.trace import Trace
from abele.viewer.answers import answer
from abele.viewer.host_data import host_data, make_host_data
from abele.viewer.open_reports import Opened, Shelf, is_trace
from abele.viewer.params import Params
from abele.viewer.wire import Answer


@pytest.fixture(scope="module")
def base() -> Report:
    return ab.compile_program(ab.Graph("bow-2000:1"), ab.Sequence()).report


def chrome(path: Path, seed: int = 0, *, events: int = 400) -> Path:
    """A trace of two threads in two processes, with random nested events, instants, and counters."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for thread in range(2):
        at = 0.0
        for n in range(events // 8):
            length = float(rng.integers(20, 200))
            common = {"pid": 10 + thread, "tid": thread, "ph": "X", "cat": "part"}
            rows.append({**common, "name": f"outer {n % 5}", "ts": at, "dur": length, "args": {"n": n}})
            rows.append({**common, "name": "half", "ts": at, "dur": length / 2})
            rows.append({**common, "name": "inner", "ts": at + 1, "dur": length / 4})
            rows.append({**common, "name": "tiny", "ts": at + length / 2 + 1, "dur": 0.2})
            at += length + float(rng.integers(0, 20))
        rows.append({"pid": 10 + thread, "tid": thread, "ph": "i", "s": "t", "name": "mark", "ts": at / 2})
        for n in range(3_000):
            rows.append(
                {"pid": 10, "ph": "C", "name": "loss", "ts": at * n / 3_000, "args": {"loss": float(rng.random())}}
            )
    path.write_text(json.dumps({"traceEvents": rows}))
    return path


@pytest.fixture(scope="module")
def traced(base: Report, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    folder = tmp_path_factory.mktemp("traces")
    base.save(folder / "a.abele-report")
    return next(iter(Shelf([folder / "a.abele-report", chrome(folder / "t.json")])))


def ask(held: Opened | Report, question: str, **params: object) -> Answer:
    opened = held if isinstance(held, Opened) else next(iter(Shelf([held])))
    return answer(opened, question, Params({name: str(value) for name, value in params.items()}))


def test_outline__nothing_measured__says_so(base: Report) -> None:
    told = ask(base, "host.outline").head
    assert (told["sources"], told["duration"], told["runs"], told["leaves"]) == ([], 0, 0, 0)
    assert ask(base, "host.window").head["names"] == []
    with pytest.raises(InvalidOptionError, match="no source 0"):
        ask(base, "host.events", source=0)


def test_runs__of_a_report__follow_one_another_with_their_parts(base: Report) -> None:
    report = base
    seconds = [(0.5, 0.25, 1.0, 0.125), (0.0, 0.25, 2.0, 0.0)]
    for waiting, sending, wall, reading in seconds:
        report = report.with_run(
            name="main",
            waiting_seconds=waiting,
            sending_seconds=sending,
            wall_seconds=wall,
            reading_seconds=reading,
        )
    (source,) = make_host_data(report).sources
    rows = [
        (source.columns.labels[label], begin, length, depth)
        for label, begin, length, depth in zip(
            source.columns.events.label,
            source.columns.events.begin_ns.tolist(),
            source.columns.events.duration_ns.tolist(),
            source.columns.events.depth.tolist(),
            strict=True,
        )
    ]
    assert rows == [
        ("run 1 of main", 0, 1_875_000_000, 0),
        ("waiting", 0, 500_000_000, 1),
        ("sending", 500_000_000, 250_000_000, 1),
        ("running", 750_000_000, 1_000_000_000, 1),
        ("reading", 1_750_000_000, 125_000_000, 1),
        ("run 2 of main", 1_875_000_000, 2_250_000_000, 0),
        ("sending", 1_875_000_000, 250_000_000, 1),
        ("running", 2_125_000_000, 2_000_000_000, 1),
    ]
    held = next(iter(Shelf([report])))
    assert ask(held, "host.event", source=0, row=7).head["program"] == 0


def test_tracepoints__of_a_report__nest_by_thread(base: Report) -> None:
    points = [
        {"channel": "c", "name": "inner", "begin_seconds": 5.25, "seconds": 0.5, "thread": "main"},
        {"channel": "c", "name": "outer", "begin_seconds": 5.0, "seconds": 1.0, "thread": "main"},
        {"channel": "d", "name": "other", "begin_seconds": 5.1, "seconds": 2.0, "thread": "worker"},
    ]
    (source,) = make_host_data(base.with_meta(tracepoints=points)).sources
    events = source.columns.events
    told = {source.columns.labels[code]: depth for code, depth in zip(events.label, events.depth.tolist(), strict=True)}
    assert told == {"outer": 0, "inner": 1, "other": 0}
    assert int(events.begin_ns.min()) == 0
    assert source.columns.threads.name == ("main", "worker")


@pytest.mark.parametrize(
    "points",
    [
        "no list",
        {"a": 1},
        [None, 3, "x"],
        [{"begin_seconds": "soon", "seconds": 1}],
        [{"begin_seconds": 1e300, "seconds": 1}],
        [{"begin_seconds": 1, "seconds": -1}],
        [{"begin_seconds": float("nan"), "seconds": 1}],
    ],
)
def test_tracepoints__that_are_none__are_left_out(base: Report, points: Any) -> None:
    assert make_host_data(base.with_meta(tracepoints=points)).sources == ()


def test_events__few__are_all_there_as_the_trace_has_them(traced: Opened) -> None:
    columns = host_data(traced).sources[0].columns
    seen: Counter[str] = Counter()
    for thread in range(len(columns.threads)):
        found = ask(traced, "host.events", source=0, thread=thread)
        assert set(found.arrays["count"].tolist()) <= {1}
        seen.update(found.head["names"][n] for n in found.arrays["node"])
        row = found.arrays["row"]
        assert found.arrays["start"].tolist() == columns.events.begin_ns[row].tolist()
        assert found.arrays["cycles"].tolist() == columns.events.duration_ns[row].tolist()
        assert len(found.arrays["marks"]) == np.count_nonzero(columns.instants.thread == thread)
    assert seen["inner"] == seen["half"] == seen["tiny"] == 100
    assert sum(seen.values()) == len(columns.events)


def test_events__many__every_column_has_something_where_the_trace_has(base: Report, tmp_path: Path) -> None:
    base.save(tmp_path / "a.abele-report")
    held = next(iter(Shelf([tmp_path / "a.abele-report", chrome(tmp_path / "t.json", 3, events=20_000)])))
    data = host_data(held)
    found = ask(held, "host.events", source=0, thread=0)
    events = data.sources[0].columns.events
    assert len(found.arrays["depth"]) < 3 * 513
    edges = np.linspace(0, data.duration_ns, 513)
    for depth in range(3):
        mine = (events.thread == 0) & (events.depth == depth)
        shown = found.arrays["depth"] == depth
        start, end = found.arrays["start"][shown], (found.arrays["start"] + found.arrays["cycles"])[shown]
        for low, high in zip(edges[:-1:16], edges[1::16], strict=True):
            there = (events.begin_ns[mine] < high) & (events.end_ns[mine] > low)
            assert ((start < high) & (end > low)).any() == there.any()


def test_window__any_part__figures_are_those_of_events_one_by_one(traced: Opened) -> None:
    trace = host_data(traced).sources[0].columns
    low, high = 1_000_000, 2_700_000
    told = ask(traced, "host.window", **{"from": low, "to": high}).head
    events = trace.events
    inside = [
        (row, max(0, min(int(events.end_ns[row]), high) - max(int(events.begin_ns[row]), low)))
        for row in range(len(events))
        if events.begin_ns[row] < high and events.end_ns[row] > low
    ]
    total: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    for row, cut in inside:
        total[trace.labels[events.label[row]]] += cut
        alone[trace.labels[events.label[row]]] += cut
        if events.parent[row] >= 0:
            alone[trace.labels[events.label[events.parent[row]]]] -= cut
    assert {entry["name"]: entry["total"] for entry in told["names"]} == total
    assert {entry["name"]: entry["self"] for entry in told["names"]} == alone
    tree = told["tree"]
    assert sum(node["count"] for node in tree) == len(inside)
    assert all(node["parent"] < n for n, node in enumerate(tree))
    outer = [node for node in tree if node["name"] == "inner"]
    assert all(tree[node["parent"]]["name"] == "half" for node in outer)


def test_find__words__in_names_and_channels_in_order_of_time(traced: Opened) -> None:
    found = ask(traced, "host.find", text="tin part")
    assert found.head["total"] == 100
    assert (np.diff(found.arrays["start"]) >= 0).all()
    assert ask(traced, "host.find", text="").head["total"] == 0


def test_series__many_points__no_peak_is_lost(traced: Opened) -> None:
    series = host_data(traced).sources[0].columns.series[0]
    found = ask(traced, "host.series", source=0, series=0)
    assert len(found.arrays["time"]) <= 514
    assert found.arrays["high"].max() == series.values.max()
    assert found.arrays["low"].min() == series.values.min()
    deep = ask(traced, "host.series", source=0, series=0, level=5, index=7)
    assert np.isin(deep.arrays["time"], series.time_ns).all()


def test_event__that_there_is_not__is_refused(traced: Opened) -> None:
    with pytest.raises(InvalidOptionError, match="no row 999999"):
        ask(traced, "host.event", source=0, row=999_999)
    told = ask(traced, "host.event", source=0, row=2).head
    assert [parent["name"] for parent in told["parents"]] == ["half", "outer 0"]


def test_heatmap__of_a_recording__counts_are_those_that_were_added(base: Report, tmp_path: Path) -> None:
    from abele import trace

    path = tmp_path / "t.abele-trace"
    with trace.recording(path):
        heat = trace.Channel("test of heat maps").heatmap("values", np.arange(5))
        for n in range(4):
            heat.add([n + 0.5] * (n + 1))
    assert is_trace(path)
    held = next(iter(Shelf([base, path])))
    found = ask(held, "host.heatmap", source=0, heatmap=0)
    assert np.array_equal(found.arrays["counts"], np.diag([1, 2, 3, 4]))
    assert found.arrays["edges"].tolist() == [0, 1, 2, 3, 4]
    assert (found.arrays["until"] >= found.arrays["time"]).all()


def test_shelf__traces_alone__asks_for_a_report(tmp_path: Path) -> None:
    path = chrome(tmp_path / "t.json")
    with pytest.raises(InvalidOptionError, match="no report is named"):
        Shelf([path])


def test_shelf__several_traces__are_on_one_axis_beside_every_report(base: Report, tmp_path: Path) -> None:
    shelf = Shelf([base, chrome(tmp_path / "a.json"), base, chrome(tmp_path / "b.pt.trace.json", 1)])
    assert len(shelf) == 2
    traces = [opened.traces for opened in shelf]
    assert traces[0] == traces[1]
    assert isinstance(traces[0][0], Trace)
    assert set(traces[0][0].processes.file) == {"a.json", "b.pt.trace.json"}


def test_shelf__a_trace_that_grows__is_told_and_read_again_under_another_stamp(base: Report, tmp_path: Path) -> None:
    base.save(tmp_path / "a.abele-report")
    trace = chrome(tmp_path / "t.json")
    shelf = Shelf([tmp_path / "a.abele-report", base, trace])
    assert shelf.changed() == []
    before = {opened.key: opened.stamp for opened in shelf}
    few = [ask(opened, "host.outline").head["sources"][0]["events"] for opened in shelf]
    chrome(trace, events=800)
    keys = [opened.key for opened in shelf]
    assert shelf.changed() == keys
    for key in keys:
        shelf.reload(key)
    assert shelf.changed() == []
    assert all(opened.stamp != before[opened.key] for opened in shelf)
    many = [ask(opened, "host.outline").head["sources"][0]["events"] for opened in shelf]
    assert many == [2 * n for n in few]


def test_shelf__a_damaged_trace__is_refused_in_words(base: Report, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("{ no trace")
    with pytest.raises(FileFormatError):
        Shelf([base, path])
