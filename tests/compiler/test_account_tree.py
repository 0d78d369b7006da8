"""The program tree of reports: nodes as the user made them, functions once, and the steps that each became."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import abele as ab
from abele.graph import Function, RemoteBuffer
from abele.graph.control import Block, CycleCount, Switch
from abele.graph.debug import here
from abele.report import Report, Table
from compiler.support import small_system
from support.examples import examples


class Parts:
    """A graph with views to copy between, and copies that are told apart by their names."""

    def __init__(self) -> None:
        self.graph = ab.Graph(small_system())
        self.x = self.graph.variable(ab.f32, (8,), name="x").map(0)
        self.y = self.graph.variable(ab.f32, (8,), name="y").map(1)
        self.flag = self.graph.variable(ab.bool_, (), name="flag").map(0)
        self.number = self.graph.variable(ab.i32, (), name="number").map(0)
        self.made = 0

    def copy(self) -> ab.Copy:
        self.made += 1
        return ab.Copy(self.x, self.y, f"c{self.made}")

    def function(self, body: ab.Program, name: str, *, with_arguments: bool = False) -> Function:
        given = ((self.x,), (self.y,)) if with_arguments else ((), ())
        return Function(body, here(name), *given)


def described(tree: Table) -> list[tuple[str, str, str]]:
    """Kind, name and title of each node, kinds indented by their depth."""
    depth: list[int] = []
    for parent in tree["parent"].tolist():
        depth.append(0 if parent < 0 else depth[parent] + 1)
    columns = (tree[name].tolist() for name in ("kind", "name", "title"))
    return [("  " * d + kind, name, title) for d, kind, name, title in zip(depth, *columns, strict=True)]


def test_program_tree__every_kind_of_control__is_there_as_it_was_made() -> None:
    parts = Parts()
    inner = parts.function(parts.copy(), "inner")
    outer = parts.function(ab.Sequence(ab.Call(inner), parts.copy()), "outer", with_arguments=True)
    stream = parts.graph.host_stream_in("in", ab.f32, (8,))
    counter = parts.graph.variable(ab.u32, (2,), name="counter").map(0)
    program = ab.Sequence(
        ab.Copy(stream, parts.x),
        Block(ab.Repeat(3, ab.Call(outer, [parts.y], [parts.x])), "work"),
        ab.If(parts.flag, ab.Call(inner)),
        Switch(parts.number, {4: parts.copy()}),
        ab.RepeatWhileTrue(ab.Sequence(), parts.flag, parts.copy()),
        CycleCount(parts.copy(), counter),
        ab.WriteUndef(parts.y),
    )
    report = ab.compile_program(parts.graph, {"run": program}).report
    tree = report.program_tree
    assert described(tree) == [
        ("Program", "run", ""),
        ("  Sequence", "sequence", "body"),
        ("    StreamCopy", "in", ""),
        ("    Block", "work", ""),
        ("      Repeat", "repeat", "body"),
        ("        Call", "outer", "body"),
        ("          Copy", "outer arguments", "arguments"),
        ("          Copy", "outer results", "results"),
        ("    If", "if", ""),
        ("      Call", "inner", "then"),
        ("      Sequence", "sequence", "else"),
        ("    Switch", "switch", ""),
        ("      Copy", "c3", "case 4"),
        ("      Sequence", "sequence", "default"),
        ("    RepeatWhile", "repeat_while", ""),
        ("      Sequence", "sequence", "condition"),
        ("      Copy", "c4", "body"),
        ("    CycleCount", "cycle_count", ""),
        ("      Copy", "c5", "body"),
        ("    WriteUndef", "write_undef", ""),
        ("Function", "outer", ""),
        ("  Sequence", "sequence", "body"),
        ("    Call", "inner", ""),
        ("    Copy", "c2", ""),
        ("Function", "inner", ""),
        ("  Copy", "c1", "body"),
    ]
    names = tree["name"].tolist()
    assert tree["count"].tolist() == [3 if kind == "Repeat" else 1 for kind in tree["kind"]]
    assert set(tree["file"].tolist()) == {"", __file__}
    calls = [row for row, kind in enumerate(tree["kind"].tolist()) if kind == "Call"]
    functions = {names[row]: row for row in np.flatnonzero(tree["kind"] == "Function").tolist()}
    assert [tree["function"][row] for row in calls] == [functions[names[row]] for row in calls]
    # The function inside is called in the other one and in the branch.
    inside = report.function_calls.where("function", functions["inner"])
    assert [names[row] for row in tree["parent"][inside["call"]]] == ["sequence", "if"]
    assert len(report.steps_of_node(functions["inner"])) == 2 * len(report.steps_of_node(names.index("c3")))
    assert not len(report.steps_of_node(names.index("write_undef")))


def test_program_tree__streams_and_remote_buffers__are_kinds_of_their_own(tmp_path: Path) -> None:
    parts = Parts()
    buffer: RemoteBuffer = parts.graph.remote_buffer("rows", ab.f32, 8, 4)
    out = parts.graph.host_stream_out("out", ab.f32, (8,))
    program = ab.Sequence(ab.Copy(buffer, parts.x), parts.copy(), ab.Copy(parts.y, out))
    report = ab.compile_program(parts.graph, program).report
    assert report.program_tree["kind"].tolist()[2:] == ["RemoteCopy", "Copy", "StreamCopy"]
    assert report.program_tree["name"].tolist()[2:] == ["rows", "c1", "out"]
    report.save(tmp_path / "r")
    assert described(Report.load(tmp_path / "r").program_tree) == described(report.program_tree)


def programs(parts: Parts, functions: list[Function]) -> Any:
    """Random programs over some functions."""
    leaf = st.builds(parts.copy)
    call = st.builds(ab.Call, st.sampled_from(functions)) if functions else leaf
    return st.recursive(
        st.one_of(leaf, call),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(lambda steps: ab.Sequence(*steps)),
            st.builds(ab.Repeat, st.integers(0, 3), inner),
            st.builds(lambda a, b: ab.If(parts.flag, a, b), inner, inner),
            st.builds(lambda a, b: ab.RepeatWhileTrue(a, parts.flag, b), inner, inner),
            inner.map(Block),
        ),
        max_leaves=6,
    )


@examples(10)
@given(data=st.data())
def test_nodes_by_step__any_program__names_the_node_of_each_step(data: st.DataObject) -> None:
    parts = Parts()
    functions: list[Function] = []
    for number in range(data.draw(st.integers(0, 3))):
        functions.append(parts.function(data.draw(programs(parts, functions)), f"f{number}"))
    program = ab.Sequence(parts.copy(), data.draw(programs(parts, functions)))
    report = ab.compile_program(parts.graph, [program, parts.copy()]).report
    tree, nodes = report.program_tree, report.nodes_by_step
    names = [name.partition(": ")[0] for name in report.steps["name"].tolist()]
    assert tree["name"][nodes].tolist() == names
    inside: dict[int, set[int]] = {row: set() for row in range(len(tree))}
    for row in range(len(tree) - 1, -1, -1):
        inside[row].update(np.flatnonzero(nodes == row).tolist())
        found = set(report.steps_of_node(row).tolist())
        called = int(tree["function"][row])
        if called < 0:
            assert found == inside[row]
        else:
            # A Call has the steps of its function for that call, which are some of all of the function's.
            assert inside[row] <= found <= inside[row] | set(report.steps_of_node(called).tolist())
        if tree["parent"][row] >= 0:
            inside[int(tree["parent"][row])].update(found)
    roots = [row for row, kind in enumerate(tree["kind"].tolist()) if kind == "Program"]
    assert [len(report.steps_of_node(row)) for row in roots] == np.bincount(report.steps["program"]).tolist()


def test_program_tables__program_grown_since__are_empty_and_the_report_can_still_be_saved(tmp_path: Path) -> None:
    parts = Parts()
    program = ab.Sequence(parts.copy())
    report = ab.compile_program(parts.graph, program).report
    program.add(parts.copy())
    report.save(tmp_path / "r")
    loaded = Report.load(tmp_path / "r")
    assert not len(loaded.program_tree)
    assert not len(loaded.superstep_variables)
    assert loaded.nodes_by_step.tolist() == [-1] * len(report.steps)
    assert not len(loaded.op_edges())


def test_program_tree__function_called_two_thousand_times__holds_its_nodes_once() -> None:
    parts = Parts()
    body = ab.Sequence(*(parts.copy() for _ in range(5)))
    function = parts.function(body, "f")
    report = ab.compile_program(parts.graph, ab.Sequence(*(ab.Call(function) for _ in range(2_000)))).report
    assert len(report.program_tree) == 2 + 2_000 + 2 + 5
    assert len(report.function_calls) == 2_000
    last = len(report.program_tree) - 1
    assert len(report.steps_of_node(last)) * 5 == len(report.steps)


@pytest.mark.parametrize("node", [-1, 5])
def test_steps_of_node__no_such_node__is_refused(node: int) -> None:
    parts = Parts()
    report = ab.compile_program(parts.graph, ab.Sequence(parts.copy())).report
    with pytest.raises(ab.errors.InvalidOptionError, match=f"no node {node}\n  try      the report has rows 0 to 2"):
        report.steps_of_node(node)
