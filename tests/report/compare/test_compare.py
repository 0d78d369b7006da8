"""Comparisons: matching by name, figures, what changed first, and regressions in words."""

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

from abele.compiler import compile_program
from abele.errors import InvalidOptionError
from abele.graph import Copy, Execute, Graph, Program, Repeat, Sequence
from abele.machine import System, systems
from abele.numerics import f32
from abele.poplibs import poplin
from abele.report import OPS, STEPS, VARIABLES, Memory, Report, sum_by_op
from abele.report.compare import STATUSES, ReportComparison, compare
from abele.report.compare.render import render_comparison
from abele.report.compare.tables import match, occurrences
from abele.report.compare.text import change_lines
from support.vertices import Scale


def machine(num_tiles: int = 64, **changes: Any) -> System:
    return systems.get("bow-2000").evolve(
        ipu={"num_tiles": num_tiles, **changes}, num_ipus=1, name=f"small-{num_tiles}", title="a small machine"
    )


def program_report(
    layers: list[str],
    *,
    tiles: int = 64,
    parts: int | None = None,
    num_tiles: int = 64,
    name: str = "net",
    trips: int = 3,
) -> Report:
    """Layers that are named ``double``, each on so many tiles, or ``fc``, a product in so many parts of its rows."""
    graph = Graph(machine(num_tiles))
    body: list[Program] = []
    for n, layer in enumerate(layers):
        if layer.startswith("fc"):
            a = graph.variable(f32, (512, 64), f"{layer}/a").map_linear()
            b = graph.variable(f32, (64, 64), f"{layer}/b").map_linear()
            one = '"outChanSplit": {"parallel": 1}, "inChanSplit": {"parallel": 1}'
            plan = f'{{"0": {{"partition": {{"batchSplit": {parts}, {one}}}}}}}'
            inner = Sequence()
            poplin.matmul(graph, a, b, inner, layer, options={"planConstraints": plan} if parts else {})
            body.append(inner)
            continue
        rows = [t % tiles for t in range(64)]
        x = graph.variable(f32, (64, 60), f"{layer}/x{n}").map_rows(rows)
        cs = graph.compute_set(layer)
        cs.vertices(Scale, tile=rows, x=x)
        body.append(Execute(cs))
    report = compile_program(graph, Repeat(trips, Sequence(*body)), allow_out_of_memory=True).report
    return report.with_meta(name=name)


def finite(data: Any) -> Iterator[float]:
    if isinstance(data, dict):
        for value in data.values():
            yield from finite(value)
    elif isinstance(data, list):
        for value in data:
            yield from finite(value)
    elif isinstance(data, int | float):
        yield float(data)


def assert_sound(found: ReportComparison) -> None:
    """Assert the invariants of any comparison."""
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert all(math.isfinite(number) for number in finite(data))
    count = len(found.reports)
    assert len({report.label for report in found.reports}) == count
    assert len(found.first_change) == count
    for table in found.tables.values():
        for row in table.rows:
            assert row.status in STATUSES
            assert len(row.rows) == count
            assert max(row.rows) >= 0
            assert (row.status == "added") == (row.rows[0] < 0)
            for values in row.values.values():
                assert [value is None for value in values] == [number < 0 for number in row.rows]
    assert found.text()
    render_comparison(found)


def figure(found: ReportComparison, name: str) -> tuple[float | None, ...]:
    (one,) = [figure for figure in found.figures if figure.name == name]
    return one.values


def test_compare__equal_programs__differ_in_nothing_but_compiling() -> None:
    found = compare([program_report(["a", "fc"]), program_report(["a", "fc"])])
    assert_sound(found)
    assert found.first_change == (None, None)
    assert found.insights == ()
    assert found.notes == ()
    assert {row.status for table in found.tables.values() for row in table.rows} == {"same"}
    different = [f.name for f in found.figures if any(f.differences)]
    assert set(different) <= {"compile_seconds"}


def test_compare__product_that_lost_its_tiles__is_named_with_its_balance_and_line() -> None:
    found = compare([program_report(["a", "fc"]), program_report(["a", "fc"], parts=4)])
    assert_sound(found)
    first = found.insights[0]
    assert (first.kind, first.title, first.report) == ("regression", "fc", 1)
    assert "its tile balance fell from 0.93 to 0.07" in first.reason
    assert "it computes on 4 tiles instead of 64" in first.reason
    assert first.where is not None
    assert first.where.file.endswith("test_compare.py")
    cycles = figure(found, "step_cycles")
    assert cycles[0] is not None
    assert cycles[1] is not None
    # The product alone changed, so that its difference is the run's.
    assert first.difference == cycles[1] - cycles[0]
    assert f"+{first.difference:,.0f} cycles" in first.reason
    changed = [row.key["name"] for row in found.tables["ops"].rows if row.status == "changed"]
    assert changed == ["fc"]
    change = found.first_change[1]
    assert change is not None
    assert change.title.startswith("fc/")


def test_compare__other_order__changes_the_sign() -> None:
    one, two = program_report(["a", "fc"]), program_report(["a", "fc"], parts=4)
    forth, back = compare([one, two]), compare([two, one])
    assert [c.title for c in forth.insights if c.unit == "cycles"] == [
        c.title for c in back.insights if c.unit == "cycles"
    ]
    assert [c.difference for c in forth.insights if c.unit == "cycles"] == [
        -c.difference for c in back.insights if c.unit == "cycles"
    ]
    assert {c.kind for c in forth.insights} == {"regression"}
    assert {c.kind for c in back.insights} == {"gain"}


def test_compare__layer_put_in_between__is_added_and_changed_first() -> None:
    found = compare([program_report(["a", "b"]), program_report(["a", "new", "b"])])
    assert_sound(found)
    assert {row.key["name"]: row.status for row in found.tables["ops"].rows} == {
        "a": "same",
        "b": "same",
        "new": "added",
    }
    change = found.first_change[1]
    assert change is not None
    assert (change.title, change.what, change.step) == ("new", "it is new here", (-1, 1))
    assert any("it is new" in insight.reason and insight.title == "new" for insight in found.insights)


def test_compare__layer_taken_away__is_removed_and_changed_first() -> None:
    found = compare([program_report(["a", "old", "b"]), program_report(["a", "b"])])
    assert {row.key["name"]: row.status for row in found.tables["ops"].rows}["old"] == "removed"
    change = found.first_change[1]
    assert change is not None
    assert (change.title, change.what, change.step) == ("old", "it is gone", (1, -1))


def test_compare__layer_at_the_end__is_added() -> None:
    change = compare([program_report(["a"]), program_report(["a", "b"])]).first_change[1]
    assert change is not None
    assert (change.title, change.what, change.step) == ("b", "it is new here", (-1, 1))


def test_compare__layer_instead_of_another__is_told_so() -> None:
    change = compare([program_report(["a", "b"]), program_report(["a", "c"])]).first_change[1]
    assert change is not None
    assert (change.title, change.what, change.step) == ("c", "it is there instead of b", (1, 1))


def test_compare__numbering_that_moved__is_tolerated() -> None:
    found = compare([program_report(["a_1", "b_2"]), program_report(["a_11", "b_12"])])
    assert {row.status for row in found.tables["ops"].rows} == {"same"}
    assert {row.status for row in found.tables["variables"].rows} == {"same"}
    assert found.first_change == (None, None)


def test_compare__more_trips__is_told_as_executions() -> None:
    found = compare([program_report(["a"]), program_report(["a"], trips=6)])
    (change,) = found.insights
    assert change.difference == change.before
    assert "it is executed 6 times instead of 3" in change.reason
    first = found.first_change[1]
    assert first is not None
    assert first.what == "executions 3 → 6"


def test_compare__program_that_does_not_fit_any_more__is_said() -> None:
    def table(tiles: int) -> Report:
        graph = Graph(machine())
        rows = [n % tiles for n in range(256)]
        x = graph.variable(f32, (256, 1000), "table").map_rows(rows)
        y = graph.variable(f32, (256, 1000), "copy").map_rows(rows)
        return compile_program(graph, Copy(x, y), allow_out_of_memory=True).report

    found = compare([table(64), table(1)])
    assert_sound(found)
    (memory,) = [change for change in found.insights if change.unit == "bytes"]
    assert memory.reason.endswith("it does not fit any more")
    assert "from 16,000 B to 1,024,000 B on a tile" in memory.reason
    assert figure(found, "tiles_too_full") == (0, 1)
    (back,) = [change for change in compare([table(1), table(64)]).insights if change.unit == "bytes"]
    assert (back.kind, back.reason.endswith("it fits now")) == ("gain", True)


def test_compare__eight_reports__are_all_against_the_first() -> None:
    reports = [program_report(["a", "b"][: 1 + n % 2], trips=n + 1) for n in range(8)]
    found = compare(reports)
    assert_sound(found)
    assert len(found.tables["ops"].rows) == 2
    (added,) = [row for row in found.tables["ops"].rows if row.key["name"] == "b"]
    assert [row >= 0 for row in added.rows] == [False, True] * 4
    cycles = figure(found, "step_cycles")
    for n, report in enumerate(reports):
        assert cycles[n] == report.total_cycles
    assert [report.label for report in found.reports] == [f"net #{n}" for n in range(8)]


@pytest.mark.parametrize("count", [0, 1, 9])
def test_compare__too_few_or_many__is_refused(report: Report, count: int) -> None:
    with pytest.raises(InvalidOptionError, match="two to 8"):
        compare([report] * count)


def test_compare__program_that_one_lacks__names_the_report(report: Report) -> None:
    with pytest.raises(InvalidOptionError, match="report 0 has no program 1"):
        compare([program_report(["a"]), report], program=1)
    assert figure(compare([report, report], program=1), "step_cycles") == (7, 7)


def test_compare__labels_of_another_number__are_refused(report: Report) -> None:
    with pytest.raises(InvalidOptionError, match="1 label for 2 reports"):
        compare([report, report], labels=["one"])


def test_compare__other_systems_and_versions_and_programs__are_noted(report: Report) -> None:
    slow = program_report(["a"], tiles=32, num_tiles=32)
    slow = replace(slow, target={**slow.target, "clock_hz": 1e9}).with_meta(abele_version="9.9")
    found = compare([program_report(["a"]), slow, report])
    assert_sound(found)
    text = "\n".join(found.notes)
    assert "report 1 is of another system: small-32 with 1 IPU instead of small-64 with 1 IPU; clocks differ" in text
    assert "report 1 is of version 9.9" in text
    assert "report 2 seems to be of another program: 0 operations of 1 match" in text
    assert "a run of report 2 is 2 steps instead of 1" in text


def test_compare__updates_of_a_run__make_cycles_those_of_one_step(report: Report) -> None:
    once = report.with_meta(steps_per_run=1)
    found = compare([once, report])
    assert figure(found, "step_cycles") == (1400, 700)
    assert {row.key["name"]: row.values["cycles"] for row in found.tables["ops"].rows} == {
        "conv": (1000, 500),
        "loss": (200, 100),
    }


def test_compare__rows_left_out__are_counted() -> None:
    layers = [f"layer {chr(97 + n)}" for n in range(6)]
    found = compare([program_report(layers), program_report(layers[:-1])], rows=2)
    table = found.tables["ops"]
    assert (len(table.rows), table.more) == (2, 4)
    assert table.rows[0].status == "removed"


def test_compare__names_of_strangers__are_text(report: Report) -> None:
    names = {name: report.ops[name] for name in report.ops.names if name != "name"}
    strange = replace(report, ops=OPS.table(**names, name=["\x1b[31mred", "[bold]markup"])).with_meta(name="[red]\x1b")
    found = compare([report, strange])
    assert_sound(found)
    assert "\x1b" not in found.text()
    assert "\x1b" not in json.dumps(found.to_json())
    assert "[bold]markup" in "\n".join(change_lines(found))


def test_compare__reports_without_anything__are_equal() -> None:
    nothing = Report(
        target=systems.bow_2000().figures(),
        graph={},
        steps=STEPS.empty(),
        ops=OPS.empty(),
        memory=Memory.of(0, 1000),
        variables=VARIABLES.empty(),
        liveness=STEPS.empty(),
    )
    found = compare([nothing, nothing])
    assert_sound(found)
    assert found.insights == ()
    assert_sound(compare([nothing, program_report(["a"])]))
    assert_sound(compare([program_report(["a"]), nothing]))


def test_compare__after_files__is_the_same(tmp_path: Path) -> None:
    reports = [program_report(["a", "fc"]), program_report(["a", "fc"], parts=4)]
    for n, one in enumerate(reports):
        one.save(tmp_path / str(n), full_paths=True)
    loaded = [Report.load(tmp_path / str(n)) for n in range(2)]
    assert compare(loaded).to_json() == compare(reports).to_json()


def test_compare__overlap_that_came__is_a_gain() -> None:
    def streamed(*, io: bool) -> Report:
        graph = Graph(machine())
        stream = graph.host_stream_in("x", f32, (8, 500))
        x = graph.variable(f32, (8, 500), "x").map_rows(range(8, 16))
        inbox = graph.variable(f32, (8, 500), "inbox").map_rows(range(8))
        cs = graph.compute_set("work")
        cs.vertices(Scale, tile=list(range(8, 16)), x=x)
        if io:
            graph.sync_group(list(range(8)), "io")
        return compile_program(graph, Repeat(10, Sequence(Copy(stream, inbox), Copy(inbox, x), Execute(cs)))).report

    before, after = streamed(io=False), streamed(io=True)
    (change,) = compare([before, after]).insights
    assert (change.kind, change.title) == ("gain", "overlap of sync groups")
    assert change.difference == after.total_cycles - before.total_cycles


# Matching.

words = st.lists(st.sampled_from(["a", "b", "b1", "b2", "c/10", "c/11", ""]), max_size=8)


@given(st.lists(words, min_size=2, max_size=4))
def test_match__any_words__has_each_row_of_each_table_once(tables: list[list[str]]) -> None:
    found = match(tables)
    assert found.shape[1] == len(tables)
    for n, table in enumerate(tables):
        rows = found[:, n]
        assert sorted(rows[rows >= 0].tolist()) == list(range(len(table)))
    assert (found.max(axis=1, initial=-1) >= 0).all()


@given(words, words)
def test_match__exact_names__are_never_given_away_to_others(one: list[str], two: list[str]) -> None:
    found = match([one, two])
    exact = sum(min(one.count(word), two.count(word)) for word in set(one))
    both = found[(found >= 0).all(axis=1)]
    assert sum(one[a] == two[b] for a, b in both.tolist()) == exact


@given(words)
def test_match__a_table_with_itself__is_the_identity(table: list[str]) -> None:
    assert match([table, table]).tolist() == [[n, n] for n in range(len(table))]


@given(st.lists(st.integers(0, 3)))
def test_occurrences__any_codes__count_equal_ones_before(codes: list[int]) -> None:
    assert occurrences(np.array(codes, dtype=np.int64)).tolist() == [codes[:n].count(c) for n, c in enumerate(codes)]


def test_compare__tables_by_hand__sum_to_the_program(report: Report) -> None:
    found = compare([report, report])
    sums = sum_by_op(report.steps.where("program", 0), len(report.ops))
    for row in found.tables["ops"].rows:
        op = row.rows[0]
        for name in ("cycles", "compute_cycles", "exchange_cycles", "sync_cycles", "host_cycles"):
            assert row.values[name][0] == sums[name][op] / report.steps_per_run
    categories = {row.key["category"]: row.values["bytes"][0] for row in found.tables["memory"].rows}
    assert categories == report.memory.totals()
