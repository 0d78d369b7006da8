"""The tree of control programs: sums of subtrees, steps as leaves, and trees that names alone make."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import abele as ab
from abele.poplibs import popops
from abele.report import FUNCTION_CALLS, PROGRAM_TREE, STEPS, Report
from abele.report.nodes import parents, sizes
from abele.viewer.answers import answer
from abele.viewer.answers.costs import PARTS, costs_of
from abele.viewer.answers.tree import Tree, in_order, tree_of
from abele.viewer.open_reports import Shelf
from abele.viewer.params import Params


@pytest.fixture(scope="module")
def looped() -> Report:
    """A function called twice, once in a loop, that calls another; a loop in a loop; two decisions."""
    graph = ab.Graph("bow-2000:1")
    x, y = (graph.variable(ab.f32, (64,), name=name).map_linear() for name in "xy")
    flag = graph.variable(ab.bool_, (), name="flag").map(0)
    inner_body, outer_body = ab.Sequence(), ab.Sequence()
    popops.add(graph, x, y, inner_body, name="inner_add")
    inner = graph.function(inner_body)
    popops.mul(graph, x, y, outer_body, name="outer_mul")
    outer_body.add(ab.Call(inner))
    outer = graph.function(outer_body)
    loop = ab.Sequence()
    popops.sub(graph, x, y, loop, name="in_loop")
    loop.add(ab.Call(outer))
    program = ab.Sequence(
        ab.Copy(x, y),
        ab.Repeat(3, ab.Repeat(2, loop)),
        ab.Call(outer),
        ab.If(flag, ab.Copy(y, x), ab.Call(inner)),
        ab.RepeatWhileTrue(ab.Sequence(ab.Copy(x, y), ab.Copy(y, x)), flag, ab.Copy(x, y)),
    )
    return ab.compile_program(graph, program).report


def cycles_of(tree: Tree, row: int) -> float:
    return float(tree.cycles[row].sum())


def test_tree__nodes_of_a_report__cost_what_their_steps_cost_over_all_calls(looped: Report) -> None:
    steps, table, calls = looped.steps, looped.program_tree, looped.function_calls
    cost = [int(c) * int(n) for c, n in zip(steps["cycles"], steps["executions"], strict=True)]
    tree = tree_of(looped, costs_of(looped))
    roots = [row for row in range(len(table)) if table["parent"][row] == -1]
    assert sum(table["kind"][row] == "Function" for row in roots) == 2
    for at in range(len(tree)):
        row = int(tree.source[at])
        if row < 0:
            assert cycles_of(tree, at) == cost[tree.step[at]]
            continue
        root = max(r for r in roots if r <= row)
        first, count = int(table["first_step"][row]), int(table["num_steps"][row])
        if table["kind"][root] == "Function":
            places = [int(f) for f, of in zip(calls["first_step"], calls["function"], strict=True) if of == root]
            offset = first - int(table["first_step"][root])
            expected = sum(sum(cost[p + offset : p + offset + count]) for p in places)
        else:
            expected = sum(cost[first : first + count]) if first >= 0 else 0
        assert cycles_of(tree, at) == expected, (at, table["kind"][row])


def test_tree__programs__cost_all_that_a_run_costs(looped: Report) -> None:
    tree = tree_of(looped, costs_of(looped))
    programs = [i for i in range(len(tree)) if tree.depth[i] == 0 and tree.kind.decode()[i] == "Program"]
    assert sum(cycles_of(tree, i) for i in programs) == float(
        (looped.steps["cycles"] * looped.steps["executions"]).sum()
    )


def test_tree__steps__stand_once_each_below_the_deepest_node_that_has_them(looped: Report) -> None:
    tree, table = tree_of(looped, costs_of(looped)), looped.program_tree
    steps = tree.step[tree.is_step].tolist()
    assert len(steps) == len(set(steps))
    further = {
        step
        for function, first in zip(looped.function_calls["function"], looped.function_calls["first_step"], strict=True)
        for step in range(int(first), int(first) + int(table["num_steps"][function]))
        if first != table["first_step"][function]
    }
    assert set(steps) == set(range(len(looped.steps))) - further
    for at in np.flatnonzero(tree.is_step):
        row = int(tree.source[tree.parent[at]])
        assert table["first_step"][row] <= tree.step[at] < table["first_step"][row] + table["num_steps"][row]
        assert table["function"][row] == -1


def test_tree__order__is_each_node_before_what_is_inside_and_steps_ascend(looped: Report) -> None:
    tree = tree_of(looped, costs_of(looped))
    assert in_order(tree.depth, tree.parent)
    for root in np.flatnonzero(tree.depth == 0):
        inside = [int(s) for s, leaf in zip(tree.step[root : root + tree.size[root]],
                  tree.is_step[root : root + tree.size[root]], strict=True) if leaf]  # fmt: skip
        assert inside == sorted(inside)


def test_tree__report_without_a_tree__scopes_of_names_make_one(looped: Report) -> None:
    bare = replace(looped, program_tree=PROGRAM_TREE.empty(), function_calls=FUNCTION_CALLS.empty())
    tree = tree_of(bare, costs_of(bare))
    assert not tree.told
    assert tree.step[tree.is_step].tolist() == list(range(len(bare.steps)))
    cost = bare.steps["cycles"] * bare.steps["executions"]
    for at in range(len(tree)):
        inside = slice(at, at + int(tree.size[at]))
        leaves = tree.step[inside][tree.is_step[inside]]
        assert cycles_of(tree, at) == cost[leaves].sum()
        assert leaves.tolist() == list(range(int(tree.step[at]), int(tree.step[at] + tree.num_steps[at])))


@pytest.mark.parametrize("parent", [[-1, 0, -1, 0], [-1, 0, 0, 1]])
def test_tree__rows_out_of_order__falls_back_to_names(looped: Report, parent: list[int]) -> None:
    table = PROGRAM_TREE.table(parent=parent, kind=["Program"] * 4, name=["a"] * 4)
    assert not tree_of(replace(looped, program_tree=table), costs_of(looped)).told


def test_tree__deeper_than_programs_are__falls_back_to_names(looped: Report) -> None:
    deep = PROGRAM_TREE.table(parent=np.arange(-1, 4_999), kind="Sequence", name="a")
    assert not tree_of(replace(looped, program_tree=deep), costs_of(looped)).told


def test_tree__claims_more_steps_than_there_are__is_cut(looped: Report) -> None:
    table = PROGRAM_TREE.table(
        parent=[-1, 0], kind=["Program", "Execute"], name=["a", "b"], first_step=[0, len(looped.steps) - 1],
        num_steps=[2_000_000_000, 2_000_000_000],
    )  # fmt: skip
    tree = tree_of(replace(looped, program_tree=table, function_calls=FUNCTION_CALLS.empty()), costs_of(looped))
    assert tree.told
    assert tree.is_step.sum() == len(looped.steps)


@given(st.lists(st.integers(0, 5), max_size=60))
def test_parents_and_sizes__any_tree__are_those_that_a_stack_finds(jumps: list[int]) -> None:
    depth: list[int] = []
    for jump in jumps:
        depth.append(min(jump, depth[-1] + 1) if depth else 0)
    parent, size, stack = [], [1] * len(depth), []  # type: list[int], list[int], list[int]
    for row, level in enumerate(depth):
        stack = stack[:level]
        parent.append(stack[-1] if stack else -1)
        for above in stack:
            size[above] += 1
        stack.append(row)
    assert parents(np.array(depth, np.int64)).tolist() == parent
    assert sizes(np.array(depth, np.int64)).tolist() == size


def test_costs__kinds_and_partners__cycles_go_to_their_parts_and_none_is_lost() -> None:
    steps = STEPS.table(
        name=["a", "b", "c", "d", "e"], kind=["compute", "copy", "exchange", "exchange", "stream"],
        partner=["", "", "replicas", "streaming memory", "host"], executions=[1, 2, 3, 4, 5],
        cycles=[13, 24, 35, 46, 57], compute_cycles=[11, 22, 0, 0, 0], exchange_cycles=[0, 0, 33, 44, 0],
        sync_cycles=[2, 2, 2, 2, 2], host_cycles=[0, 0, 0, 0, 55],
    )  # fmt: skip
    report = ab.compile_program(ab.Graph("bow-2000:1"), ab.Sequence()).report
    costs = costs_of(replace(report, steps=steps))
    assert costs.total.tolist() == [13, 48, 105, 184, 285]
    found = {(PARTS[p], row): costs.cycles[row, p] for row, p in zip(*np.nonzero(costs.cycles), strict=True)}
    assert found[("arrange", 1)] == 44
    assert found[("replicas", 2)] == 99
    assert found[("memory", 3)] == 176
    assert found[("host", 4)] == 275
    assert [PARTS[p] for p in costs.part] == ["compute", "arrange", "replicas", "memory", "host"]


def test_step__of_a_compute_set__tells_vertices_variables_and_its_node(looped: Report) -> None:
    opened = next(iter(Shelf([looped])))
    step = int(np.flatnonzero(looped.steps["kind"] == "compute")[0])
    head = answer(opened, "step", Params({"step": str(step)})).head
    superstep = int(looped.steps["superstep"][step])
    table = looped.vertices
    assert (
        sum(v["num_vertices"] for v in head["vertices"]) == table["num_vertices"][table["superstep"] == superstep].sum()
    )
    touched = looped.superstep_variables
    mine = touched["superstep"] == superstep
    assert {v["variable"] for v in head["variables"]} == set(touched["variable"][mine].tolist())
    assert sum(v["read"] for v in head["variables"]) == touched["read_bytes"][mine].sum()
    program = answer(opened, "program", Params({}))
    assert program.arrays["step"][head["node"]] == step
    assert program.arrays["is_step"][head["node"]]


def test_step__that_there_is_not__is_refused_with_what_there_is(looped: Report) -> None:
    opened = next(iter(Shelf([looped])))
    with pytest.raises(ab.errors.InvalidOptionError, match="no step 99999999"):
        answer(opened, "step", Params({"step": "99999999"}))
