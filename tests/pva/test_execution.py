"""Runs, the executions of their steps, and blocks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import abele as ab
from abele import pva
from abele.errors import InvalidOptionError, MissingDatumError
from abele.machine import systems
from abele.pva.program_nodes import ProgramNodes
from abele.pva.steps import Executions
from abele.report import GROUPS, RUNS, SPANS, STEPS
from abele.report.block_runs import block_runs
from pva.conftest import ROUNDS
from pva.kit import bare_report

span = st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 20), st.integers(0, 5))


@given(st.lists(span, max_size=30))
def test_executions__of_any_spans__are_those_counted_one_by_one(spans: list[tuple[int, int, int, int]]) -> None:
    group, step, begin, cycles = zip(*spans, strict=True) if spans else ((), (), (), ())
    report = bare_report(
        steps=STEPS.table(name=list("abc"), kind="compute"),
        groups=GROUPS.table(name=["IPU 0", "io"], tiles=[6, 2]),
        spans=SPANS.table(
            group=list(group), step=list(step), start_cycle=list(begin), cycles=list(cycles), program=[0] * len(spans)
        ),
    )
    found = Executions(ProgramNodes(report), 0)
    seen: dict[tuple[int, int], int] = defaultdict(int)
    members: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in sorted(range(len(spans)), key=lambda k: spans[k][2]):
        owner = (spans[row][1], spans[row][0])
        members[spans[row][1], seen[owner]].append(row)
        seen[owner] += 1
    begins = {key: min(spans[row][2] for row in rows) for key, rows in members.items()}
    ends = {key: max(spans[row][2] + spans[row][3] for row in rows) for key, rows in members.items()}
    expected = sorted(members, key=lambda key: (begins[key], key[0]))
    assert found.step.tolist() == [key[0] for key in expected]
    assert found.begin.tolist() == sorted(begins.values())
    # Executions of one step that start at once are alike to the reader: compare what they are made of, whatever order.
    told = sorted(zip(found.step.tolist(), found.begin.tolist(), found.end.tolist(), strict=True))
    assert told == sorted((key[0], begins[key], ends[key]) for key in members)
    assert sorted(found.spans.tolist()) == list(range(len(spans)))
    sizes = np.diff(found.first_span)
    assert sizes.sum() == len(spans)
    assert (sizes <= 2).all()


def test_steps__of_a_run__follow_each_other_as_modelled(dense: pva.Report) -> None:
    run = dense.execution.runs[0]
    steps = dense.columns.steps.where("program", 0)
    assert run.steps.isWhole
    assert len(run.steps) == ROUNDS * len(steps)
    assert run.steps.stepRows.tolist() == list(range(len(steps))) * ROUNDS
    assert run.steps.cyclesFrom[1:].tolist() == run.steps.cyclesTo[:-1].tolist()
    assert [step.cycles for step in run.steps] == run.steps.cycles.tolist() == steps["cycles"].tolist() * ROUNDS
    assert [step.program.row for step in run.steps] == run.steps.stepRows.tolist()


def test_steps__of_all_runs__go_on_where_the_run_before_ended(dense: pva.Report) -> None:
    train, tidy, again = dense.execution.runs
    steps = dense.execution.steps
    assert len(steps) == 2 * len(train.steps) + len(tidy.steps)
    assert steps[len(train.steps)].program.name == tidy.steps[0].program.name
    assert steps[len(train.steps)].cyclesFrom == train.cyclesTo == tidy.cyclesFrom
    assert steps[-1].cyclesTo == dense.execution.totalCycles.total == again.cyclesTo
    assert [s.cyclesFrom for s in steps[-len(train.steps) :]] == again.steps.cyclesFrom.tolist()


def test_cycles_by_tile__of_a_step__are_the_reports(dense: pva.Report) -> None:
    step = next(s for s in dense.execution.steps if s.program.name.endswith("halves"))
    assert np.array_equal(step.cyclesByTile, dense.columns.step_by_tile("compute_cycles", step.row))
    assert (step.cyclesByTile > 0).sum() == 64
    assert step.cyclesByTile.max() <= step.ipus[0].cycles


def test_step__on_sync_groups__says_when_on_which(overlapped: pva.Report) -> None:
    steps = overlapped.execution.runs[0].steps
    assert [g.name for g in steps[0].groups] == ["io"]
    meeting = next(s for s in steps if len(s.groups) == 2)
    assert sorted(g.name for g in meeting.groups) == ["IPU 0", "io"]
    for step in steps:
        assert min(g.begin for g in step.groups) == step.cyclesFrom
        assert max(g.end for g in step.groups) == step.cyclesTo


def test_blocks__of_a_tile__are_those_of_its_group(dense: pva.Report) -> None:
    blocks = dense.execution.blocks(5)
    names = [block.program.name for block in blocks]
    assert names == ["round", "product"] * ROUNDS * 2
    assert np.array_equal(blocks.cyclesFrom, [b.cyclesFrom for b in blocks])
    whole = [b for b in blocks if b.program.name == "round"]
    train, tidy, again = dense.execution.runs
    assert whole[0].cyclesFrom == train.cyclesFrom
    assert whole[ROUNDS - 1].cyclesTo == train.cyclesTo
    assert whole[ROUNDS].cyclesFrom == again.cyclesFrom
    assert len(tidy.blocks()) == 0


def test_blocks__of_one_depth__are_the_runs_that_the_report_tells(overlapped: pva.Report) -> None:
    run = overlapped.execution.runs[0]
    columns = overlapped.columns
    group = columns.groups["name"].tolist().index("IPU 0")
    expected = [(r.block, r.start_cycle, r.end_cycle) for r in block_runs(columns, group)]
    found = [(b.program.name, b.cyclesFrom, b.cyclesTo) for b in run.blocksOfGroup("IPU 0")]
    assert found == expected
    assert [name for name, _, _ in found] == ["work"] * 10


def test_blocks__of_streams_alone__are_those_of_the_group_that_streams(overlapped: pva.Report) -> None:
    run = overlapped.execution.runs[0]
    found = run.blocksOfGroup("io")
    assert [b.program.name for b in found] == ["load"] * 10
    streams = [s for s in run.steps if s.program.kind == "stream"]
    assert found.cyclesFrom.tolist() == [s.cyclesFrom for s in streams]
    assert found.cyclesTo.tolist() == [s.cyclesTo for s in streams]


def test_blocks__of_streams_at_which_groups_meet__are_those_of_none() -> None:
    report = bare_report(
        steps=STEPS.table(name=["s", "c"], kind=["stream", "compute"], block=["load", "work"]),
        groups=GROUPS.table(name=["IPU 0", "io"], tiles=[6, 2]),
        spans=SPANS.table(step=[0, 0, 1], group=[0, 1, 0], start_cycle=[0, 0, 10], cycles=10),
    )
    run = pva.openReport(report).execution.modelled[0]
    assert [b.program.name for b in run.blocksOfGroup("IPU 0")] == ["work"]
    assert len(run.blocksOfGroup("io")) == 0


blocks = st.lists(st.sampled_from(["", "a", "b"]), min_size=1, max_size=5)


@given(blocks, st.lists(st.integers(0, 4), max_size=20))
def test_blocks__of_any_spans__are_the_runs_that_the_report_tells(names: list[str], order: list[int]) -> None:
    which = [k % len(names) for k in order]
    report = bare_report(
        steps=STEPS.table(name=[f"s{k}" for k in range(len(names))], kind="compute", block=names),
        groups=GROUPS.table(name=["IPU 0"], tiles=[8]),
        spans=SPANS.table(step=which, start_cycle=[10 * k for k in range(len(which))], cycles=10),
    )
    run = pva.openReport(report).execution.modelled[0]
    found = [(b.program.name, b.cyclesFrom, b.cyclesTo) for b in run.blocksOfGroup("IPU 0")]
    assert found == [(r.block, r.start_cycle, r.end_cycle) for r in block_runs(report, 0)]


def test_blocks__tile_in_one_of_several_groups__is_said_to_be_unknown(overlapped: pva.Report) -> None:
    with pytest.raises(MissingDatumError, match=r"to which of the sync groups 'IPU 0', 'io' tile 3 belongs") as error:
        overlapped.execution.blocks(3)
    assert error.value.remedy == "run.blocksOfGroup(name)"


def test_blocks__no_such_tile_or_group__is_refused(dense: pva.Report) -> None:
    run = dense.execution.runs[0]
    with pytest.raises(InvalidOptionError, match="no tile 1,472") as error:
        run.blocks(1472)
    assert error.value.remedy == "tiles are numbered 0 to 1,471"
    with pytest.raises(InvalidOptionError, match="no sync group of the program is called 'IPU1'"):
        run.blocksOfGroup("IPU1")


def looping(times: list[int]) -> pva.Report:
    """A loop that data ends, run as often as there are numbers of trips."""
    graph = ab.Graph("bow-2000:1")
    left = graph.variable(ab.i32, (), "left").map(0)
    flag = graph.variable(ab.bool_, (), "flag").map(0)
    one = graph.constant(ab.i32, (), 1).map(0)
    zero = graph.constant(ab.i32, (), 0).map(0)
    test, body = ab.Sequence(), ab.Sequence()
    test.add(ab.Copy(ab.popops.gt(graph, left, zero, test), flag))
    ab.popops.sub_in_place(graph, left, one, body)
    with ab.Engine(graph, ab.RepeatWhileTrue(test, flag, body), threads=1) as engine:
        for trips in times:
            engine["left"] = np.int32(trips)
            engine.run()
        return pva.openReport(engine.report)


def test_steps__of_an_earlier_run_that_data_made_shorter__are_said_to_be_missing() -> None:
    execution = looping([2, 2, 5]).execution
    assert execution.runs[0].cycles < execution.runs[2].cycles
    with pytest.raises(MissingDatumError, match="the steps of run 1: data decides") as error:
        execution.runs[0].steps  # noqa: B018
    assert error.value.remedy == "the last run of each program has its steps"
    with pytest.raises(MissingDatumError):
        execution.steps  # noqa: B018
    last = execution.runs[2]
    assert last.steps[-1].cyclesTo == last.cyclesTo


def test_steps__of_an_earlier_run_where_data_decides__are_missing_although_it_took_as_long() -> None:
    execution = looping([4, 4]).execution
    assert execution.runs[0].cycles == execution.runs[1].cycles
    with pytest.raises(MissingDatumError, match="the steps of run 1: data decides"):
        execution.runs[0].steps  # noqa: B018
    assert len(execution.runs[1].steps) > 4


def test_steps__of_a_run_that_did_not_end__are_said_to_be_missing(dense: pva.Report) -> None:
    runs = RUNS.table(name=["train"], cycles=[0])
    run = pva.openReport(replace(dense.columns, runs=runs)).execution.runs[0]
    with pytest.raises(MissingDatumError, match="run 1, which did not end"):
        run.steps  # noqa: B018


def test_ipus__of_several__have_zeros_where_one_takes_no_part() -> None:
    report = two_ipus("IPU 1")
    step = report.execution.modelled[0].steps[0]
    assert [(ipu.id, ipu.cycles) for ipu in step.ipus] == [(0, 0), (1, 30)]
    assert step.ipus[1].activeCycles.cyclesFrom.min == 5
    assert len(report.execution.modelled[0].blocks(3)) == 0
    assert [b.program.name for b in report.execution.modelled[0].blocks(4)] == ["b"]


@pytest.mark.parametrize("name", ["io", "IPU 7", "IPU -1", "IPU 99999999999999999999", "IPU \N{SUPERSCRIPT TWO}", ""])
def test_ipus__of_a_group_of_unknown_place__are_said_to_be_missing(name: str) -> None:
    report = two_ipus(name)
    step = report.execution.modelled[0].steps[0]
    with pytest.raises(MissingDatumError, match="on which IPUs the tiles of sync group") as error:
        step.ipus  # noqa: B018
    assert error.value.remedy == "step.groups"
    assert [g.end for g in step.groups] == [35]


def two_ipus(name: str) -> pva.Report:
    """A step in a block on one group of a machine of two IPUs of four tiles."""
    return pva.openReport(
        bare_report(
            target={**systems.bow_2000().with_ipus(2).figures(), "num_tiles": 8},
            steps=STEPS.table(name=["a"], kind="compute", block=["b"]),
            groups=GROUPS.table(name=[name], tiles=[4]),
            spans=SPANS.table(step=[0], start_cycle=[5], cycles=[30]),
        )
    )


def test_steps__report_with_the_first_spans_alone__says_so(dense: pva.Report) -> None:
    cut = dense.columns.spans.select(slice(4))
    run = pva.openReport(replace(dense.columns, spans=cut)).execution.runs[0]
    assert not run.steps.isWhole
    assert len(run.steps) == 4


def test_execution__of_an_empty_report__has_nothing() -> None:
    execution = pva.openReport(bare_report()).execution
    assert list(execution.runs) == []
    assert list(execution.steps) == []
    assert list(execution.blocks()) == []
    assert execution.totalCycles.total == 0
