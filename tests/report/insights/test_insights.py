"""Insights of reports that lack something, hold something strange, or are of another program than the first."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.codelet import Input, Output, Vector, Vertex, codelet
from abele.compiler import compile_program
from abele.errors import InvalidOptionError
from abele.graph import Copy, Execute, Graph, If, Sequence
from abele.machine import systems
from abele.numerics import bool_, f16, f32, i32
from abele.poplibs import poplin
from abele.report import CRITICAL, GROUPS, OPS, STEP_GROUPS, STEPS, SUPERSTEP_VARIABLES, VARIABLES, Memory, Report
from abele.report.insights import KINDS, VIEWS, insights
from abele.report.insights.program_steps import SIDES, ProgramSteps
from abele.runtime import Engine
from support.earlier_reports import save_as
from support.examples import examples


@codelet
class Count(Vertex):
    n: Input[Vector[i32]]
    out: Output[Vector[i32]]

    def compute(self):
        for _ in range(self.n[0]):
            self.out[0] += 1


def numbers_of(data: Any) -> Iterator[float]:
    """All numbers in plain data."""
    if isinstance(data, dict):
        for value in data.values():
            yield from numbers_of(value)
    elif isinstance(data, list):
        for value in data:
            yield from numbers_of(value)
    elif isinstance(data, int | float):
        yield float(data)


def assert_sound(report: Report, program: int = 0) -> dict[str, Any]:
    """Assert the invariants of the insights of any report; returns its JSON."""
    found = insights(report, program)
    data: dict[str, Any] = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert all(math.isfinite(number) for number in numbers_of(data))
    assert found.text().startswith("limited by")
    for cost in (*found.costs, *found.memory_costs):
        assert cost.kind in KINDS
        assert cost.view in VIEWS
        assert cost.op < len(report.ops)
        assert cost.step < len(report.steps)
        assert cost.title
        assert cost.reason
        for lever in cost.levers:
            assert lever.title
            if lever.gain_cycles is not None:
                assert 0 <= lever.gain_cycles <= max(found.run_cycles, cost.cycles)
                assert lever.assumption
            if lever.gain_bytes is not None:
                assert 0 <= lever.gain_bytes <= found.memory.bytes
                assert lever.assumption
    return data


def test_insights__report_made_by_hand__are_reckoned_by_hand(report: Report) -> None:
    found = insights(report)
    # Four executions of 180 cycles of which the mean tile computes half, as the table says.
    balance = next(cost for cost in found.costs if cost.title == "compute of layer1/conv")
    assert (balance.kind, balance.cycles) == ("balance", 720)
    assert balance.share == pytest.approx(720 / 1400)
    assert balance.where is not None
    assert (balance.where.file, balance.where.line) == ("model.py", 12)
    exchange = next(cost for cost in found.costs if cost.kind == "exchange")
    assert (exchange.cycles, exchange.title) == (120, "exchange of layer1/conv")
    sync = next(cost for cost in found.costs if cost.kind == "sync")
    assert sync.cycles == 4 * (20 + 20 + 10)
    host = next(cost for cost in found.costs if cost.kind == "host")
    assert host.cycles == 200
    assert found.run_cycles == 1400
    assert found.parts["compute"] == pytest.approx((720 + 160) / report.steps_per_run)
    assert found.parts["loader"] is None
    assert_sound(report)


def test_insights__sides_of_steps__add_up_to_the_run(report: Report) -> None:
    steps = ProgramSteps(report, 0)
    assert sum(float(steps.on_path(side).sum()) for side in SIDES) == steps.run_cycles


def test_insights__roofline_by_hand__is_bound_by_what_takes_longer(report: Report) -> None:
    (conv, _) = report.insights().roofline.ops
    target = report.target
    seconds = report.seconds(1000)
    assert conv.flops_per_second == pytest.approx(1000 / seconds)
    assert conv.peak_flops_per_second == target["f32_flops_per_second"]
    assert conv.bound == "compute"
    assert conv.intensity is None
    assert conv.reached == pytest.approx(1000 / target["f32_flops_per_second"] / seconds)


def test_insights__second_program__are_its_own(report: Report) -> None:
    found = insights(report.with_meta(programs=["train", "evaluate"]), 1)
    assert (found.program_name, found.run_cycles, found.steps_per_run) == ("evaluate", 7, 1)
    assert [cost.kind for cost in found.costs] == ["sync"]
    assert found.roofline.ops == ()
    assert_sound(report, 1)


@pytest.mark.parametrize("program", [-1, 2, 10**9])
def test_insights__program_that_there_is_not__is_refused(report: Report, program: int) -> None:
    with pytest.raises(InvalidOptionError, match=rf"no program {program}\n.*numbered 0 to 1"):
        report.insights(program)


def test_insights__count_of_nothing__is_refused(report: Report) -> None:
    with pytest.raises(InvalidOptionError, match="count = 0"):
        insights(report, count=0)
    assert len(insights(report, count=1).costs) == 1


def empty_report(num_tiles: int = 4) -> Report:
    return Report(
        target=systems.bow_2000().figures(),
        graph={},
        steps=STEPS.empty(),
        ops=OPS.empty(),
        memory=Memory.of(num_tiles, 1000),
        variables=VARIABLES.empty(),
        liveness=STEPS.empty(),
    )


@pytest.mark.parametrize("num_tiles", [0, 1, 4])
def test_insights__program_without_steps__say_that_nothing_limits_it(num_tiles: int) -> None:
    data = assert_sound(empty_report(num_tiles))
    assert data["limit"] == "Nothing: it takes no cycles."
    assert data["costs"] == data["memory_costs"] == []
    assert data["memory"]["fits"]


def test_insights__compiled_program_of_no_cycles__are_sound() -> None:
    graph = Graph(systems.get("bow-2000").evolve(ipu={"num_tiles": 1}, num_ipus=1, name="one-tile", title="one tile"))
    data = assert_sound(compile_program(graph, Sequence()).report)
    assert data["cycles"]["run"] == 0


def test_insights__one_tile__never_speak_of_others() -> None:
    graph = Graph(systems.get("bow-2000").evolve(ipu={"num_tiles": 1}, num_ipus=1, name="one-tile", title="one tile"))
    a = graph.variable(f32, (32, 32), "a").map(0)
    program = Sequence()
    poplin.matmul(graph, a, a, program, "fc")
    data = assert_sound(compile_program(graph, program).report)
    titles = [lever["title"] for cost in data["costs"] for lever in cost["levers"]]
    assert not [title for title in titles if "spread" in title or "map it over" in title]


def counting(graph: Graph) -> Sequence:
    """A vertex that counts as far as it is told, and a decision."""
    n = graph.variable(i32, (1,), "n").map(0)
    out = graph.variable(i32, (1,), "out").map(0)
    cs = graph.compute_set("count")
    cs.vertices(Count, tile=[0], n=n.reshape((1, 1)), out=out.reshape((1, 1)))
    flag = graph.variable(bool_, (), "flag").map(0)
    other = graph.variable(i32, (1,), "other").map(1)
    return Sequence(Execute(cs), If(flag, Copy(n, other), Sequence()))


def test_insights__what_data_decides__is_said_until_a_run_counted_it() -> None:
    graph = Graph(systems.get("bow-2000").evolve(ipu={"num_tiles": 8}, num_ipus=1, name="small", title="small"))
    program = counting(graph)
    report = compile_program(graph, program).report
    assert any("no run has counted them" in note for note in report.insights().notes)
    engine = Engine(graph, program)
    engine["n"] = np.array([1000], np.int32)
    engine["flag"] = np.array(True)
    engine.run()
    counted = engine.report.insights()
    assert not any("no run has counted them" in note for note in counted.notes)
    assert not any("not run" in note for note in counted.notes)
    assert counted.run_cycles > report.insights().run_cycles
    assert counted.costs[0].title == "compute of count"


def test_insights__without_critical_path_and_groups__are_said_to_count_all_steps(report: Report) -> None:
    assert not len(report.critical)
    assert any("no critical path" in note for note in report.insights().notes)
    with_path = replace(
        report,
        critical=CRITICAL.table(step=np.arange(4), cycles=report.steps["cycles"][:4] * report.steps["executions"][:4]),
    )
    found = insights(with_path)
    assert not any("no critical path" in note for note in found.notes)
    assert [cost.cycles for cost in found.costs] == [cost.cycles for cost in report.insights().costs]


def test_insights__step_off_the_critical_path__costs_nothing(report: Report) -> None:
    on_path = CRITICAL.table(step=[0, 1, 3], cycles=[200, 200, 200])
    found = insights(replace(report, critical=on_path))
    assert not [cost for cost in found.costs if cost.title == "compute of layer1/conv"]


def test_insights__critical_path_that_lies__makes_no_more_cycles_than_there_are(report: Report) -> None:
    lying = CRITICAL.table(step=[2, 2, 2], cycles=[10**15, 10**15, 10**15])
    (cost,) = [c for c in insights(replace(report, critical=lying)).costs if c.title == "compute of layer1/conv"]
    assert cost.cycles == 720


def test_insights__groups_side_by_side__promise_no_more_than_the_busiest_other_leaves(report: Report) -> None:
    busy = replace(
        report,
        groups=GROUPS.table(name=["IPU 0", "IPU 1"], tiles=4, busy_cycles=[1400, 1350], end_cycle=1400),
        step_groups=STEP_GROUPS.table(step=np.arange(5), first_group=0, num_groups=1),
    )
    gains = [
        lever.gain_cycles or 0 for cost in insights(busy).costs for lever in cost.levers if cost.kind != "pipeline"
    ]
    assert max(gains) == 50


def test_insights__names_of_strangers__are_shown_as_text(report: Report) -> None:
    ops = OPS.table(
        **{name: report.ops[name] for name in report.ops.names if name not in ("name", "file")},
        name=["<script>\x1b[2J", "b\x00"],
        file=["<img src=x>\n", ""],
    )
    strange = replace(report, ops=ops)
    found = insights(strange)
    assert "\x1b" not in found.text()
    assert "\x00" not in json.dumps(found.to_json())
    assert "\x1b" not in json.dumps(found.to_json())
    assert "<script>" not in strange._repr_html_()


def test_insights__products_of_two_types__are_below_their_own_peaks() -> None:
    graph = Graph(systems.get("bow-2000").evolve(ipu={"num_tiles": 8}, num_ipus=1, name="small", title="small"))
    program = Sequence()
    for name, dtype in (("one", f32), ("two", f16)):
        a = graph.variable(dtype, (32, 32), f"{name}/a").map_linear()
        poplin.matmul(graph, a, a, program, name, options={"partialsType": "float"})
    report = compile_program(graph, program).report
    roofs = {roof.title: roof for roof in report.insights().roofline.ops}
    for roof in roofs.values():
        assert 0 < roof.reached < 1
    assert {title: roof.type for title, roof in roofs.items()} == {"one": "f32", "two": "f16"}
    assert roofs["two"].peak_flops_per_second == 4 * roofs["one"].peak_flops_per_second
    # Files of before told it by the names of variables.
    older = replace(report, superstep_variables=SUPERSTEP_VARIABLES.empty())
    assert [roof.type for roof in older.insights().roofline.ops] == [roof.type for roof in roofs.values()]


def test_insights__weights_that_replicas_hold_alike__may_be_sharded(report: Report) -> None:
    weights = VARIABLES.table(
        name=["w", "x", "c"], type="f32", bytes=[64, 32, 8], tiles=8, always_live=True, role=["weight", "constant", ""]
    )
    replicated = replace(report, variables=weights, target={**report.target, "num_replicas": 4})
    held = {cost.title: cost for cost in insights(replicated, count=20).memory_costs}
    titles = {lever.title: lever.gain_bytes for lever in held["variable w"].levers}
    # Eight bytes of it lie on the tile, of which two are a replica's part.
    assert titles["shard w over 4 replicas (replicated tensor sharding)"] == 6
    assert "keep w in streaming memory" in titles
    assert not [lever for lever in held["variable x"].levers if "streaming" in lever.title or "shard" in lever.title]
    alone = {cost.title: cost for cost in insights(replace(report, variables=weights), count=20).memory_costs}
    assert not [lever for lever in alone["variable w"].levers if "shard" in lever.title]


def test_insights__code_on_the_fullest_tile__tells_what_most_of_it_is_for() -> None:
    graph = Graph(systems.get("bow-2000").evolve(ipu={"num_tiles": 8}, num_ipus=1, name="small", title="small"))
    x = graph.variable(f32, (64, 64), "x").map_linear()
    y = graph.variable(f32, (64, 64), "y").map_linear()
    report = compile_program(graph, Copy(x.transpose(), y, name="turn")).report
    (code,) = [cost for cost in report.insights().memory_costs if cost.title == "exchange code"]
    held = int(report.code_by_tile("exchange_code", 0)[report.memory.fullest_tile])
    assert code.reason.endswith(f"most is that of turn, {held:,} B")
    assert code.where is not None
    assert code.where.file.endswith("test_insights.py")


def test_insights__same_line_many_times__is_one_cost(report: Report) -> None:
    ops = OPS.table(name="conv", kind="poplin.convolution", path=[f"layer{n}" for n in range(2)], file="m.py", line=7)
    found = insights(replace(report, ops=ops))
    titles = [cost.title for cost in found.costs]
    assert "compute of layer0/conv and 1 more" in titles
    (cost,) = [cost for cost in found.costs if cost.title == "compute of layer0/conv and 1 more"]
    assert cost.cycles == 4 * 180 + 4 * 40


def test_insights__after_a_file__are_the_same(report: Report, tmp_path: Path) -> None:
    report.save(tmp_path / "r")
    assert Report.load(tmp_path / "r").insights().to_json() == report.insights().to_json()


@pytest.mark.parametrize("version", [1, 2])
def test_insights__files_of_earlier_versions__are_sound(report: Report, tmp_path: Path, version: int) -> None:
    loaded = Report.load(save_as(report, tmp_path / "old", version))
    data = assert_sound(loaded)
    assert data["cycles"]["run"] == 1400
    assert any("no critical path" in note for note in data["notes"])


def test_insights__little_room__come_last_with_what_would_help(report: Report) -> None:
    full = replace(report, memory=Memory.of(8, 1000, variables=[950, 0, 0, 0, 0, 0, 0, 0]))
    found = insights(full)
    assert found.costs[-1].title == "little room on the fullest tile"
    assert len(found.costs) <= 5
    assert found.memory.headroom_bytes == 50


def test_insights__too_much_for_all_tiles__tell_how_many_ipus_it_needs() -> None:
    figures = systems.get("bow-2000").with_ipus(1).figures()
    too_much = replace(empty_report(), target=figures, memory=Memory.of(4, 1000, variables=2500))
    (cost,) = insights(too_much).costs
    assert cost.title == "does not fit"
    assert cost.levers[0].title == "at least 3 IPUs"
    assert "4 tiles are too full" in cost.reason
    assert "even evenly dealt it would not fit" in cost.reason


sizes = st.integers(0, 10**12)


@examples(15)
@given(st.data())
def test_insights__any_columns__are_sound(data: st.DataObject) -> None:
    """Reports of strangers may hold any numbers that a file may hold."""
    count, ops = data.draw(st.integers(0, 6)), data.draw(st.integers(0, 3))
    column = st.lists(sizes, min_size=count, max_size=count)
    parts = {f"{part}_cycles": np.array(data.draw(column)) for part in ("compute", "exchange", "sync", "host")}
    steps = STEPS.table(
        name=[f"s{n}/rewrite" for n in range(count)],
        kind=data.draw(st.lists(st.sampled_from(STEPS.columns["kind"].choices), min_size=count, max_size=count)),
        op=data.draw(st.lists(st.integers(-1, ops - 1), min_size=count, max_size=count)),
        superstep=np.arange(count),
        executions=data.draw(st.lists(st.integers(0, 10**5), min_size=count, max_size=count)),
        cycles=sum(parts.values(), np.zeros(count, np.int64)),
        **parts,
        tile_balance=data.draw(st.lists(st.floats(0, 2), min_size=count, max_size=count)),
        num_vertices=data.draw(column),
        exchanged_bytes=data.draw(column),
        active_tiles=data.draw(st.lists(st.integers(0, 10), min_size=count, max_size=count)),
        partner=data.draw(st.lists(st.sampled_from(STEPS.columns["partner"].choices), min_size=count, max_size=count)),
    )
    report = replace(
        empty_report(data.draw(st.integers(0, 5))),
        steps=steps,
        ops=OPS.table(name=[f"o{n}" for n in range(ops)], kind="poplin.matmul", flops=5, file="x.py", line=1),
        critical=CRITICAL.table(step=np.arange(count), cycles=np.array(data.draw(column))),
        groups=GROUPS.table(
            name=["IPU 0", "IPU 1"],
            tiles=[3, 2],
            busy_cycles=data.draw(st.tuples(sizes, sizes)),
            end_cycle=data.draw(st.tuples(sizes, sizes)),
        ),
        step_groups=STEP_GROUPS.table(step=np.arange(count), first_group=np.arange(count) % 2, num_groups=1),
    )
    assert_sound(report)


def test_insights__report_with_too_many_runs_of_tiles__say_what_is_not_looked_up(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("abele.report.insights.program_steps.MOST_TILE_RUNS", 3)
    data = assert_sound(report)
    assert any("not looked up" in note for note in data["notes"])
    (exchange,) = [cost for cost in data["costs"] if cost["kind"] == "exchange"]
    assert "tile" not in exchange["links"]["select"]
    (balance,) = [cost for cost in data["costs"] if cost["kind"] == "balance" and "conv" in cost["title"]]
    assert "tile" not in balance["links"]["select"]
    assert "it takes 180 cycles" in balance["reason"] or "computes on" in balance["reason"]
