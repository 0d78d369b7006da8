"""Whole runs in reports, against the first executions and the sums that other tables have."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import abele as ab
from abele.compiler import account
from abele.compiler.whole_run import whole_run
from abele.report import Report
from compiler.support import Reader, Update, small_system


@st.composite
def reports(draw: st.DrawFn) -> Report:
    """Random programs on two IPUs and a sync group."""
    graph = ab.Graph(small_system(num_ipus=2))
    graph.sync_group([6, 7], "io")
    tiles = {"first": [0, 1], "second": [8, 9], "io": [6, 7]}
    views = {n: graph.variable(ab.f32, (2, 8), n).map_rows(t) for n, t in tiles.items()}
    stream = graph.host_stream_in("in", ab.f32, (2, 8))

    def work(names: list[str]) -> ab.Program:
        compute_set = graph.compute_set("work " + " ".join(names))
        for name in names:
            compute_set.vertices(Reader, tile=np.repeat(tiles[name], 2), x=views[name].reshape((4, 4)))
        return ab.Execute(compute_set)

    names = st.sampled_from(list(tiles))
    leaf = st.one_of(
        st.lists(names, min_size=1, max_size=2, unique=True).map(work),
        st.builds(lambda a, b: ab.Copy(views[a], views[b]) if a != b else work([a]), names, names),
        st.builds(lambda: ab.Copy(stream, views["io"])),
    )
    program = st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(lambda steps: ab.Sequence(*steps)),
            st.builds(ab.Repeat, st.integers(0, 9), inner),
        ),
        max_leaves=6,
    )
    return ab.compile_program(graph, [draw(program), draw(program)]).report


def by_group(report: Report, program: int) -> np.ndarray:
    """Row of the group, step, start and cycles of all executions, in some order, int64[4, n]."""
    found = report.spans_between(0, 1 << 50, program=program)
    count = found["num_groups"].astype(np.int64)
    group = np.repeat(found["first_group"] - (np.cumsum(count) - count), count) + np.arange(count.sum())
    each = [np.repeat(found[name], count) for name in ("step", "start_cycle", "cycles")]
    return np.stack([group, *each]).astype(np.int64)


@given(reports())
def test_run_spans__all_unfolded__are_the_first_executions_and_add_up_to_busy_cycles(report: Report) -> None:
    for program in (0, 1):
        spans = report.spans.where("program", program)
        first = np.stack([spans[n] for n in ("group", "step", "start_cycle", "cycles")]).astype(np.int64)
        unfolded = by_group(report, program)
        assert (unfolded[1] >= 0).all()
        # Streams that take no cycles and the like are there, too.
        assert sorted(map(tuple, unfolded.T.tolist())) == sorted(map(tuple, first.T.tolist()))
        mine = np.flatnonzero(report.groups["program"] == program)
        busy = np.bincount(unfolded[0], weights=unfolded[3], minlength=len(report.groups))
        assert busy[mine].tolist() == report.groups["busy_cycles"][mine].tolist()


def test_run_spans__long_run__are_few_and_whole() -> None:
    graph = ab.Graph(small_system(num_ipus=2))
    x = graph.variable(ab.f32, (2, 8), "x").map_rows([0, 8])
    y = graph.variable(ab.f32, (2, 8), "y").map_rows([8, 0])
    work = graph.compute_set("work")
    work.vertices(Update, tile=np.array([0, 8]), x=y, y=x)
    body = ab.Sequence(ab.Execute(work), ab.Repeat(7, ab.Copy(x, y)))
    report = ab.compile_program(graph, ab.Repeat(1_000_000, body)).report
    assert len(report.run_spans) < 20
    assert len(report.spans) > 1000
    spans, loops = report.run_spans, report.run_loops
    times = np.ones(len(loops) + 1)
    for row in range(len(loops) - 1, -1, -1):
        times[row] = loops["trips"][row] * times[loops["parent"][row]]
    cycles = (times[spans["loop"]] * spans["cycles"]).astype(np.int64)
    per_step = np.bincount(spans["step"], weights=times[spans["loop"]], minlength=len(report.steps))
    assert per_step.tolist() == report.steps["executions"].tolist()
    busy = sum(
        np.bincount(
            (spans["first_group"] + k)[spans["num_groups"] > k],
            weights=cycles[spans["num_groups"] > k],
            minlength=len(report.groups),
        )
        for k in range(2)
    )
    assert busy.tolist() == report.groups["busy_cycles"].tolist()
    middle = report.total_cycles // 2
    part = report.spans_between(middle, middle + 1000)
    assert part["start_cycle"].min() <= middle < part["start_cycle"].max() < middle + 1000


def test_run_spans__more_than_there_is_room_for__say_from_when_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "whole_run", partial(whole_run, most=100))
    graph = ab.Graph(small_system())
    x = graph.variable(ab.f32, (8,), "x").map(0)
    y = graph.variable(ab.f32, (8,), "y").map(1)
    program = ab.Sequence(*(ab.Copy(x, y) for _ in range(200)))
    report = ab.compile_program(graph, program, allow_out_of_memory=True).report
    assert len(report.run_spans) == 101
    last = list(report.run_spans.rows())[-1]
    assert last["step"] == -1
    assert last["start_cycle"] + last["cycles"] == report.total_cycles
    assert (report.run_spans["start_cycle"][:-1] + report.run_spans["cycles"][:-1]).max() == last["start_cycle"]
