"""Timelines of updates: a pipeline of four stages, replicas, and reports that hold less."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from abele.cli.main import app
from abele.compiler import compile_program
from abele.errors import InvalidOptionError
from abele.graph import Block, Graph, Repeat, Sequence
from abele.machine import systems
from abele.network import Group, NetworkBuilder, Place, Schedule, Sgd
from abele.network.ops import build
from abele.poplibs import popops
from abele.report import Report
from abele.report.update import PARTS
from abele.session import Session, Settings


def trained(stages: int, *, replicas: int = 1, micro_batches: int = 6, long_stage: int = -1) -> Report:
    """The report of a run of equal stages of one linear layer, of which one may have three."""
    net = NetworkBuilder()
    hidden = net.input((4, 24), "f32", "x")
    for stage in range(stages):
        with net.at(place=Place(ipu=stage, pipeline_stage=stage)):
            for n in range(3 if stage == long_stage else 1):
                weight = net.parameter((24, 24), "f32", f"w{stage}.{n}")
                bias = net.parameter((24,), "f32", f"b{stage}.{n}")
                hidden = build.nonlinearity(net, "tanh", build.linear(net, hidden, weight, bias))
            net.loss = build.mean(net, hidden, [0, 1])
    net.output(net.loss)
    model = net.finish()
    weights = {p.name: np.ones(p.shape, np.float32) for p in model.parameters}
    session = Session.of(
        model,
        Schedule(accumulation=micro_batches, replicas=replicas),
        groups=[Group(Sgd(lr=0.1), model.parameters)],
        # A host near enough for stages of little work.
        settings=Settings(system=systems.get("bow-2000").evolve(ipu={"sync": {"host_seconds": 2e-6}})),
        weights=weights,
    )
    return session.report


@pytest.fixture(scope="module")
def pipeline() -> Report:
    return trained(4, long_stage=1)


@pytest.fixture(scope="module")
def replicated() -> Report:
    return trained(2, replicas=2)


def test_timeline__pipeline__tells_all_cycles_of_every_ipu(pipeline: Report) -> None:
    timeline = pipeline.timeline()
    assert [lane.title for lane in timeline.lanes] == ["IPU 0", "IPU 1", "IPU 2", "IPU 3"]
    groups = pipeline.groups
    for number, lane in enumerate(timeline.lanes):
        assert set(lane.cycles) == set(PARTS)
        assert sum(lane.cycles.values()) == groups["busy_cycles"][number]
        assert sum(lane.cycles.values()) + lane.bubble == timeline.total
        assert lane.bubble_share == pytest.approx(groups["idle_cycles"][number] / timeline.total)
    # Stage s and its backward stage 6 - s are on one IPU; the last stage is its own.
    assert [set(lane.stages) for lane in timeline.lanes] == [
        {"stage0", "stage6"}, {"stage1", "stage5"}, {"stage2", "stage4"}, {"stage3"}
    ]  # fmt: skip
    assert timeline.lanes[0].hidden is not None
    # All IPUs wait while one of them meets the host.
    assert timeline.lanes[1].hidden == 0


def test_critical_path__pipeline__adds_up_and_names_the_longest_stage(pipeline: Report) -> None:
    path = pipeline.timeline().critical_path
    assert sum(link.total for link in path) == pipeline.total_cycles
    assert [link.total for link in path] == sorted((link.total for link in path), reverse=True)
    longest = next(link for link in path if link.title.startswith("stage"))
    assert longest.title == "stage5 on IPU 1"
    assert longest.cycles["compute"] > 0


def test_spans__pipeline__hold_the_whole_run(pipeline: Report) -> None:
    spans = pipeline.spans.where("program", 0)
    assert int((spans["start_cycle"] + spans["cycles"]).max()) == pipeline.total_cycles
    assert "~" not in pipeline.timeline_text(100)


def test_timeline_text__pipeline__says_what_bounds_the_run(pipeline: Report) -> None:
    text = str(pipeline.timeline())
    assert text.startswith(f"one run: {pipeline.total_cycles:,} cycles = ")
    assert "of 4 sync groups" in text
    assert "critical path: the chain of steps that bounds the run" in text
    assert "stage5 on IPU 1: " in text
    lanes = pipeline.timeline().text(300).splitlines()[-10:]
    assert [line[:7] for line in lanes[::2]] == [*(f"IPU {n}  " for n in range(4)), lanes[-2][:7]]
    assert lanes[-1] == "below lanes: stage, and which time it runs: its micro-batch"
    assert all("|" in line for line in lanes[1::2][:4])
    assert re.search(r"\|\d:\d", "".join(lanes))


def test_runs__pipeline__name_stage_and_micro_batch_of_every_ipu(pipeline: Report) -> None:
    runs = pipeline.timeline().runs
    assert list(runs) == ["IPU 0", "IPU 1", "IPU 2", "IPU 3"]
    for number, each in enumerate(runs.values()):
        stages = {f"stage{number}", f"stage{6 - number}"}
        # Six micro-batches go through each stage in order, none before the one before it.
        for stage in stages:
            mine = [run for run in each if run.block == stage]
            assert [run.number for run in mine] == [1, 2, 3, 4, 5, 6]
        assert len(each) == 6 * len(stages)
        assert all(a.end_cycle <= b.start_cycle for a, b in itertools.pairwise(each))
        assert all(run.start_cycle < run.end_cycle <= pipeline.total_cycles for run in each)
    # Micro-batch m reaches the next stage only when the one before is done with it.
    for first, then in itertools.pairwise(f"stage{n}" for n in range(7)):
        ends = {r.number: r.end_cycle for each in runs.values() for r in each if r.block == first}
        starts = {r.number: r.start_cycle for each in runs.values() for r in each if r.block == then}
        assert all(ends[n] <= starts[n] for n in ends)


def test_runs__of_a_long_pipeline__go_on_through_its_loop() -> None:
    runs = trained(2, micro_batches=40).timeline().runs
    for each in runs.values():
        for block in {run.block for run in each}:
            numbers = [run.number for run in each if run.block == block]
            assert numbers == list(range(1, len(numbers) + 1))
    assert max(run.number for run in runs["IPU 0"]) == 40


def test_runs__of_a_loop_within_a_block__are_one() -> None:
    graph = Graph("bow-2000:1")
    x = graph.map_linear(graph.variable("f32", (1000,), name="x"))
    inner, tail, both = Sequence(), Sequence(), Sequence()
    popops.map_in_place(graph, lambda v: v * 2.0, [x], both, name="head")
    popops.map_in_place(graph, lambda v: v * 2.0, [x], inner, name="inner")
    popops.map_in_place(graph, lambda v: v + 1.0, [x], tail, name="tail")
    body = Sequence(*both, Repeat(3, inner), *tail)
    report = compile_program(graph, Repeat(4, Block(body, "part"))).report
    (runs,) = report.timeline().runs.values()
    assert [(run.block, run.number) for run in runs] == [("part", n) for n in (1, 2, 3, 4)]
    assert "|part:1" in report.timeline_text(100)
    assert "below lanes: block, and which time it runs" in report.timeline_text(100)


def test_timeline__replicas__are_told_once(replicated: Report) -> None:
    timeline = replicated.timeline()
    assert timeline.replicas == 2
    assert "each of 2 replicas does the same" in str(timeline)
    names = [name for lane in timeline.lanes for name in lane.names]
    assert names == ["IPU 0", "IPU 1"]
    assert all(lane.cycles["replicas"] > 0 for lane in timeline.lanes)
    assert sum(link.cycles.get("replicas", 0) for link in timeline.critical_path) > 0


def test_timeline__equal_groups__are_one_lane(pipeline: Report) -> None:
    groups = pipeline.groups
    double = {name: np.asarray(groups[name]) for name in groups.names if name != "name"}
    alike = replace(
        pipeline,
        groups=type(groups)({**groups.columns, **{k: np.repeat(v[:1], len(v)) for k, v in double.items()}}),
        steps=type(pipeline.steps)({**pipeline.steps.columns, "executions": np.zeros(len(pipeline.steps), np.int64)}),
    )
    assert [lane.title for lane in alike.timeline().lanes] == ["IPU 0 to 3"]


def test_timeline__report_without_the_path__says_so(pipeline: Report) -> None:
    old = replace(pipeline, critical=pipeline.critical.select(slice(0)))
    assert old.timeline().critical_path == ()
    assert "critical path: not recorded; compile again" in str(old.timeline())
    with pytest.raises(InvalidOptionError, match="holds no timeline of program 7"):
        pipeline.timeline(7).text()


def test_report_file__critical_path_and_partners__are_kept(pipeline: Report, tmp_path: Path) -> None:
    pipeline.save(tmp_path / "run.abele")
    again = Report.load(tmp_path / "run.abele")
    assert str(again.timeline()) == str(pipeline.timeline())
    assert set(again.steps["partner"].tolist()) == {"", "host"}


def test_cli__timeline__prints_and_draws(pipeline: Report, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file, picture = str(tmp_path / "run.abele"), tmp_path / "t.png"
    pipeline.save(file)
    run = CliRunner().invoke(app, ["report", file, "--timeline", "--plot-timeline", str(picture)])
    assert run.exit_code == 0
    assert "critical path" in run.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    found = json.loads(CliRunner().invoke(app, ["report", file, "--timeline", "--json"]).stdout)
    assert sum(link["share"] for link in found["critical_path"]) == pytest.approx(1)
    assert len(found["lanes"]) == 4
