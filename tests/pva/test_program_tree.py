"""The program tree that reports tell, with steps where programs became steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import abele as ab
from abele import pva
from abele.graph import Block, Switch, Sync
from abele.pva.nodes_of_tree import nodes_of_tree
from abele.pva.program_nodes import nodes_of_steps
from abele.report import PROGRAM_TREE, Report
from pva.conftest import Halve
from support.examples import examples

Tree = tuple[str, str, list["Tree"]]
NAMES = {"Program": "Sequence", "Function": "Sequence"}


def report_of_calls() -> Report:
    """Functions that call one another, in branches, loops and blocks; a barrier; the end of a value."""
    graph = ab.Graph("bow-2000:1")
    x = graph.variable(ab.f32, (64,), "x").map_linear()
    y = graph.variable(ab.f32, (64,), "y").map(7)
    flag = graph.variable(ab.bool_, (), "flag").map(0)
    number = graph.variable(ab.i32, (), "number").map(0)
    work = graph.compute_set("work")
    work.vertices(Halve, tile=[7], x=y.reshape((1, 64)))
    inner = graph.function(Block(ab.Sequence(ab.Copy(x, y), ab.Execute(work)), "inner"))
    outer = graph.function(ab.Sequence(ab.Call(inner), ab.If(flag, ab.Call(inner), ab.Sequence())))
    main = ab.Sequence(
        Block(ab.Call(outer), "first"),
        Sync("internal"),
        ab.WriteUndef(y),
        ab.Repeat(2, Block(ab.Sequence(ab.Call(outer), ab.Copy(y, x)), "again")),
        Switch(number, {0: ab.Call(inner), 3: ab.Copy(x, y)}),
        ab.RepeatWhileTrue(ab.Sequence(), flag, ab.Copy(x, y)),
    )
    return ab.compile_program(graph, {"main": main, "other": ab.Sequence(ab.Call(inner))}).report


@pytest.fixture(scope="module")
def calls() -> Report:
    return report_of_calls()


def expected(report: Report, row: int, steps: list[int]) -> Tree:
    """The tree below a row as one writes it down, node by node; ``steps`` are the rows of the first places."""
    tree = list(report.program_tree.rows())
    owner = report.nodes_by_step.tolist()
    children = [(k, node) for k, node in enumerate(tree) if node["parent"] == row]
    entries: list[tuple[int, int, Tree]] = []
    begin = max(tree[row]["first_step"], 0)
    for k, node in children:
        begin = node["first_step"] if node["first_step"] >= 0 else begin
        told = expected(report, k, steps)
        if told[2] or node["kind"] in ("Sequence", "Call", "WriteUndef", "If", "Block", "LibraryCall"):
            is_leaf = not any(each["parent"] == k for each in tree)
            if is_leaf and told[2]:
                entries += [(r, k, step) for r, step in zip(rows_of(owner, k, steps), told[2], strict=True)]
            else:
                entries.append((begin, k, told))
    for r in rows_of(owner, row, steps):
        entries.append((r, -1, (types(report)[r], str(report.steps["name"][r]), [])))
    entries.sort(key=lambda entry: entry[:2])
    kind = str(tree[row]["kind"])
    return NAMES.get(kind, kind), str(tree[row]["name"]), [entry[2] for entry in entries]


def rows_of(owner: list[int], node: int, steps: list[int]) -> list[int]:
    return [r for r in steps if owner[r] == node]


def types(report: Report) -> list[str]:
    names = {"compute": "OnTileExecute", "copy": "OnTileExecute", "exchange": "DoExchange", "control": "Control"}
    kinds = report.supersteps["kind"]
    return [
        "Sync" if kinds[superstep] == "sync" else names[kind]
        for kind, superstep in zip(report.steps["kind"], report.steps["superstep"], strict=True)
    ]


def shown(program: pva.Program) -> Tree:
    inside = [] if program.type == pva.ProgramType.Call else [shown(child) for child in program.children()]
    return program.type.name, program.name, inside


def test_tree__functions_branches_and_loops__is_the_one_written_by_hand(calls: Report) -> None:
    report = pva.openReport(calls)
    found = [*report.compilation.controlPrograms, *report.compilation.functionPrograms]
    first = sorted({p.row for p in report.compilation.programs if p.row >= 0})
    kinds = calls.program_tree["kind"].tolist()
    roots = [k for name in ("Program", "Function") for k, kind in enumerate(kinds) if kind == name]
    assert [shown(program) for program in found] == [expected(calls, root, first) for root in roots]
    assert [p.name for p in report.compilation.controlPrograms] == ["main", "other"]
    assert {p.type.name for p in report.compilation.programs} >= {
        "Sequence", "Block", "Call", "If", "Switch", "Repeat", "RepeatWhile", "WriteUndef", "OnTileExecute", "Sync",
        "DoExchange", "Control",
    }  # fmt: skip


def test_tree__steps_of_all_calls__lead_to_the_steps_of_the_function(calls: Report) -> None:
    report = pva.openReport(calls)
    nodes = report.nodes
    names = calls.steps["name"].tolist()
    for row, name in enumerate(names):
        program = report.compilation.programs[int(nodes.of_step[row])]
        assert program.name == name
        assert program.row <= row
    total = sum(p.executions for p in report.compilation.programs)
    assert total == calls.steps["executions"].sum()
    inner = report.compilation.functionPrograms[-1]
    copies = [row for row, name in enumerate(names) if nodes.of_step[row] in [p._id for p in inner.walk()]]
    assert len(copies) > 2 * len([p for p in inner.walk() if p.row >= 0])


def test_tree__calls__lead_to_their_functions(calls: Report) -> None:
    report = pva.openReport(calls)
    functions = list(report.compilation.functionPrograms)
    called = [p.function for p in report.compilation.programs.of_type("Call")]
    assert set(called) == set(functions)
    # main, main again, a switch, other; and outer calls inner twice.
    assert sorted(called.count(f) for f in functions) == [2, 4]
    for call in report.compilation.programs.of_type("Call"):
        assert list(call.children()) == [call.function]


def test_walk__of_a_program__goes_into_each_function_once(calls: Report) -> None:
    main, other = pva.openReport(calls).compilation.controlPrograms
    outer, inner = pva.openReport(calls).compilation.functionPrograms
    walked = [p._id for p in main.walk()]
    assert len(set(walked)) == len(walked)
    assert set(walked) >= {p._id for p in (*outer.walk(), *inner.walk())}
    names = [p.name for p in other.walk()]
    assert names == ["other", "sequence", "function", "function", "inner", "sequence", "copy: exchange", "work"]


def test_blocks__of_functions__are_around_their_steps_at_each_call(calls: Report) -> None:
    nodes = pva.openReport(calls).nodes
    told = calls.steps["block"].tolist()
    for row, path in enumerate(told):
        around = [nodes.name(int(level[row])) for level in nodes.blocks if level[row] >= 0]
        assert "/".join(around) == path
    assert {"first", "first/inner", "again/inner", "again", "inner", ""} == set(told)


def test_tree__of_an_earlier_version__is_that_of_its_steps(calls: Report) -> None:
    old = replace(calls, program_tree=PROGRAM_TREE.empty())
    assert nodes_of_tree(old) is None
    report = pva.openReport(old)
    assert len(report.compilation.functionPrograms) == 0
    assert [p.row for p in report.compilation.programs if p.row >= 0] == sorted(range(len(calls.steps)))


@examples(15)
@given(st.data())
def test_tree__damaged_in_any_column__still_has_each_step(calls: Report, data: st.DataObject) -> None:
    tree = calls.program_tree
    columns = {name: tree[name].copy() for name in tree.names}
    size, steps = len(tree), len(calls.steps)
    for _ in range(data.draw(st.integers(1, 4))):
        row = data.draw(st.integers(0, size - 1))
        name = data.draw(st.sampled_from(["parent", "kind", "function", "first_step", "num_steps"]))
        columns[name][row] = data.draw(_allowed(name, row, steps))
    report = pva.openReport(replace(calls, program_tree=PROGRAM_TREE.table(**columns)))
    programs = report.compilation.programs
    assert [calls.steps["name"][r] for r in range(steps)] == [programs[int(n)].name for n in report.nodes.of_step]
    ends, depth = report.nodes.columns.end, report.nodes.columns.depth
    assert (ends > np.arange(len(ends))).all()
    assert (np.diff(depth) <= 1).all()
    assert depth[0] == 0
    roots = np.flatnonzero(depth == 0)
    assert ends[roots[:-1]].tolist() == roots[1:].tolist()
    for program in programs:
        assert program._id in [p._id for p in program.walk()]
        assert len(program.children()) <= len(programs)


def _allowed(name: str, row: int, steps: int) -> st.SearchStrategy[int | str]:
    """Values of a column that the reader of files lets through."""
    allowed: dict[str, st.SearchStrategy[int | str]] = {
        "parent": st.integers(-1, row - 1),
        "kind": st.sampled_from(["Program", "Function", "Block", "Copy", "odd", ""]),
        "function": st.integers(-1, row - 1),
        "first_step": st.integers(-1, steps - 1),
        "num_steps": st.integers(0, 2**31 - 1),
    }
    return allowed[name]


def test_tree__of_both_kinds__have_the_same_steps(dense: pva.Report) -> None:
    found, plain = nodes_of_tree(dense.columns), nodes_of_steps(dense.columns)
    assert found is not None
    assert found.row[found.row >= 0].tolist() == plain.row[plain.row >= 0].tolist()
    assert [len(level) for level in found.blocks] == [len(level) for level in plain.blocks]
    for mine, other in zip(found.blocks, plain.blocks, strict=True):
        assert ((mine >= 0) == (other >= 0)).all()
