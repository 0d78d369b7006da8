"""Operations and exchanges: columns, sums and groups are those that plain loops find."""

from __future__ import annotations

import numpy as np
import pytest

import abele as ab
from abele.errors import InvalidOptionError
from abele.poplibs import poplin, popops
from abele.report import Report
from abele.viewer.answers import answer
from abele.viewer.answers.exchange import exchanges_of
from abele.viewer.answers.operations import GROUPINGS, operations
from abele.viewer.open_reports import Opened, Shelf
from abele.viewer.params import Params


@pytest.fixture(scope="module")
def opened() -> Opened:
    """Two products in a loop, the second on data that comes from another IPU."""
    graph = ab.Graph("bow-2000:4")
    a, b = (graph.variable(ab.f32, (64, 64), name=name).map_linear() for name in "ab")
    moved = graph.variable(ab.f32, (64, 64), name="moved").map_linear(first_tile=3000)
    program = ab.Sequence()
    first = poplin.matmul(graph, a, b, program, name="first")
    program.add(ab.Copy(first, moved))
    second = poplin.matmul(graph, moved, b, program, name="second")
    popops.add(graph, second, first, program, name="sum")
    return next(iter(Shelf([ab.compile_program(graph, ab.Repeat(5, program)).report])))


def steps_of(report: Report, op: int) -> list[int]:
    return [s for s in range(len(report.steps)) if report.steps["op"][s] == op]


def test_operations__columns_beyond_the_table__are_sums_over_their_steps(opened: Opened) -> None:
    report, table = opened.report, operations(opened)
    for op in range(len(report.ops)):
        mine = steps_of(report, op)
        steps = report.steps
        assert table["num_steps"][op] == len(mine)
        assert table["moved_bytes"][op] == sum(
            int(steps["exchanged_bytes"][s]) * int(steps["executions"][s]) for s in mine
        )
        assert table["num_vertices"][op] == sum(
            int(steps["num_vertices"][s]) * int(steps["executions"][s]) for s in mine
        )
        touched = report.superstep_variables
        supersteps = {int(steps["superstep"][s]) for s in mine}
        for column in ("read_bytes", "written_bytes"):
            once = sum(int(touched[column][touched["superstep"] == s].sum()) for s in supersteps)
            assert table[column][op] == once * 5
        assert table["exchange_code_bytes"][op] == report.ops["exchange_code_bytes"][op]
        if table["moved_bytes"][op]:
            assert table["intensity"][op] == pytest.approx(report.ops["flops"][op] / table["moved_bytes"][op])
        assert 0 <= table["balance"][op] <= 1


def test_operations__filtered__sums_are_those_of_the_rows_that_are_left(opened: Opened) -> None:
    found = answer(opened, "operations", Params({"filter": "kind=poplin.matmul", "sort": "-cycles", "count": "1"}))
    rows = np.flatnonzero(opened.report.ops["kind"] == "poplin.matmul")
    assert found.head["found"] == len(rows) == 2
    assert len(found.arrays["row"]) == 1
    assert found.head["sums"]["cycles"] == opened.report.ops["cycles"][rows].sum()
    assert opened.report.ops["cycles"][found.arrays["row"][0]] == opened.report.ops["cycles"][rows].max()


@pytest.mark.parametrize("by", GROUPINGS)
def test_groups__any_grouping__sums_of_a_group_are_those_of_its_operations(opened: Opened, by: str) -> None:
    found = answer(opened, "operations.groups", Params({"by": by}))
    table, arrays = operations(opened), found.arrays
    for at in range(len(arrays["depth"])):
        inside = arrays["op"][at : at + arrays["size"][at]]
        ops = inside[inside >= 0]
        assert len(ops) == arrays["count"][at]
        for k, column in enumerate(found.head["columns"]):
            assert arrays["sums"][at, k] == pytest.approx(table[column][ops].sum())
    assert sorted(arrays["op"][arrays["op"] >= 0].tolist()) == list(range(len(table)))


def test_operation__one__has_its_steps_and_the_tiles_that_compute(opened: Opened) -> None:
    report = opened.report
    op = int(report.ops["cycles"].argmax())
    found = answer(opened, "operation", Params({"op": str(op)}))
    mine = steps_of(report, op)
    assert [s["step"] for s in found.head["steps"]] == mine
    busy = sum(report.step_by_tile("compute_cycles", s) * int(report.steps["executions"][s]) for s in mine)
    spread = np.zeros_like(busy)
    for first, count, cycles in zip(*(found.arrays[n] for n in ("first", "count", "busy")), strict=True):
        spread[first : first + count] += cycles
    assert spread.tolist() == busy.tolist()
    assert found.arrays["cycles"].sum() == report.ops["cycles"][op]


def test_operation__that_there_is_not__is_refused(opened: Opened) -> None:
    with pytest.raises(InvalidOptionError, match="no operation 5000"):
        answer(opened, "operation", Params({"op": "5000"}))


def test_roofline__points__are_operations_that_compute(opened: Opened) -> None:
    found = answer(opened, "roofline", Params({}))
    ops = opened.report.ops
    assert sorted(found.arrays["op"].tolist()) == np.flatnonzero((ops["flops"] > 0) & (ops["cycles"] > 0)).tolist()
    clock = opened.report.target["clock_hz"]
    for op, rate in zip(found.arrays["op"], found.arrays["rate"], strict=True):
        assert rate == pytest.approx(ops["flops"][op] * clock / ops["cycles"][op])


def test_exchanges__rows__count_the_tiles_that_send_and_receive(opened: Opened) -> None:
    report, table = opened.report, exchanges_of(opened.report)
    names = ("exchange_cycles", "exchanged_bytes", "host_cycles")
    moving = [s for s in range(len(report.steps)) if any(report.steps[name][s] for name in names)]
    assert table["step"].tolist() == moving
    for row, step in enumerate(moving):
        sent, received = (report.step_by_tile(c, step) for c in ("sent_bytes", "received_bytes"))
        assert table["senders"][row] == np.count_nonzero(sent)
        assert table["receivers"][row] == np.count_nonzero(received)
        if received.max():
            expected = received[received > 0].mean() / report.steps["max_receive_bytes"][step]
            assert table["balance"][row] == pytest.approx(expected)


def test_exchange__one_over_ipus__tells_busiest_tiles_pairs_and_links(opened: Opened) -> None:
    report = opened.report
    step = next(s for s in range(len(report.steps)) if report.steps["name"][s].startswith("copy")
                and report.steps["kind"][s] == "exchange")  # fmt: skip
    found = answer(opened, "exchange", Params({"step": str(step)}))
    received = report.step_by_tile("received_bytes", step)
    assert found.arrays["receivers_bytes"].tolist() == sorted(received[received > 0].tolist(), reverse=True)[:24]
    assert received[found.arrays["receivers"]].tolist() == found.arrays["receivers_bytes"].tolist()
    per_ipu = found.head["tiles_per_ipu"]
    assert found.arrays["ipu_received"].tolist() == [
        int(received[i : i + per_ipu].sum()) for i in range(0, len(received), per_ipu)
    ]
    assert found.head["told"]
    assert found.arrays["block_bytes"].sum() == received.sum()
    assert len(found.arrays["pair_bytes"]) > 0
    assert len(found.arrays["link_bytes"]) > 0
    assert (np.diff(found.arrays["link_bytes"]) <= 0).all()


def test_exchange__of_a_step_that_moves_nothing__names_the_exchange_before_it(opened: Opened) -> None:
    report = opened.report
    kinds, supersteps = report.steps["kind"].tolist(), report.steps["superstep"].tolist()
    found = [answer(opened, "exchange", Params({"step": str(s)})).head["before"] for s in range(len(kinds))]
    for step, before in enumerate(found):
        mine = [s for s in range(step) if supersteps[s] == supersteps[step] and kinds[s] == "exchange"]
        if kinds[step] == "compute" and mine:
            assert before in range(mine[-1], step)
        if kinds[step] == "exchange":
            assert before == -1
