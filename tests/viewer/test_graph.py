"""The graph of operations: who reads what whom wrote, modules in modules, and what one tile holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import abele as ab
from abele.errors import InvalidOptionError
from abele.poplibs import poplin, popops
from abele.report import OPS, STEPS, SUPERSTEP_VARIABLES, SUPERSTEPS, VARIABLES, Report
from abele.viewer.answers import answer
from abele.viewer.answers.costs import occurrences
from abele.viewer.answers.graph import MODULE, MOST_NODES, OP, OPENED, REST, _joined, flows_of
from abele.viewer.answers.operations import nested, split_path
from abele.viewer.open_reports import Shelf
from abele.viewer.params import Params
from abele.viewer.wire import Answer
from support.examples import examples


@pytest.fixture(scope="module")
def chain() -> Report:
    """first = a·b, second = first·b, first += second."""
    graph = ab.Graph("bow-2000:1")
    a, b = (graph.variable(ab.f32, (32, 32), name=name).map_linear() for name in "ab")
    program = ab.Sequence()
    product = poplin.matmul(graph, a, b, program, name="first")
    again = poplin.matmul(graph, product, b, program, name="second")
    popops.add(graph, product, again, program, name="sum")
    return ab.compile_program(graph, program).report


def of(report: Report, **params: object) -> Answer:
    return answer(next(iter(Shelf([report]))), "graph", Params({k: str(v) for k, v in params.items()}))


def hand_made(paths: list[str]) -> Report:
    """An operation for each path, each reading what the one before wrote."""
    num = len(paths)
    base = ab.compile_program(ab.Graph("bow-2000:1"), ab.Sequence()).report
    steps = np.arange(num)
    return replace(
        base,
        ops=OPS.table(name=[f"op{i}" for i in range(num)], kind="popops.map", path=paths, cycles=np.arange(num) + 1),
        steps=STEPS.table(name="s", kind="compute", op=steps, superstep=steps, cycles=1),
        supersteps=SUPERSTEPS.table(name=["s"] * num),
        variables=VARIABLES.table(name=[f"v{i}" for i in range(num)], type="f32", bytes=4 * (steps + 1), shape="8"),
        superstep_variables=SUPERSTEP_VARIABLES.table(
            superstep=np.repeat(steps, 2)[1:], variable=np.repeat(steps, 2)[:-1] if num > 1 else [0],
            read_bytes=[0, *[v for i in steps[:-1] for v in (4 * (i + 1), 0)]],
            written_bytes=[4, *[v for i in steps[1:] for v in (0, 4)]],
        ) if num > 1 else SUPERSTEP_VARIABLES.empty(),
        liveness=base.liveness.select(slice(0)),
    )  # fmt: skip


def test_flows__compiled_chain__are_what_the_program_says(chain: Report) -> None:
    flows = flows_of(chain)
    names = chain.ops["name"]
    found = {(str(names[s]), str(names[t])) for s, t in zip(flows.source, flows.target, strict=True)}
    assert {("first", "second"), ("second", "sum"), ("first", "sum")} <= found
    assert flows.told
    assert not flows.round.any()


def test_flows__report_without_accesses__follow_lifetimes_and_order(chain: Report) -> None:
    flows = flows_of(replace(chain, superstep_variables=SUPERSTEP_VARIABLES.empty()))
    assert not flows.told
    order = [(int(s), int(t)) for s, t, v in zip(flows.source, flows.target, flows.variable, strict=True) if v < 0]
    assert order == [(i, i + 1) for i in range(len(chain.ops) - 1)]
    assert (flows.variable >= 0).any()


ACCESSES = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4), st.booleans(), st.booleans()), max_size=24)


@given(ACCESSES)
@examples(40)
@example([(0, 0, False, True), (0, 1, True, True), (0, 2, True, False)])
@example([(0, 0, True, False), (0, 1, False, True), (0, 2, False, True)])
def test_flows__any_accesses__are_those_that_a_walk_in_time_finds(accesses: list[tuple[int, int, bool, bool]]) -> None:
    used = sorted((a for a in accesses if a[2] or a[3]), key=lambda a: a[0])
    expected = set()
    for variable in {a[0] for a in used}:
        mine = [a for a in used if a[0] == variable]
        epochs: list[set[int]] = []
        before_read = True
        early = []
        for _, op, reads, writes in mine:
            if reads:
                if epochs:
                    expected |= {(w, op, variable, False) for w in epochs[-1] if w != op}
                else:
                    early.append(op)
            if writes:
                if reads or before_read:
                    epochs.append(set())
                epochs[-1].add(op)
            before_read = reads
        if epochs:
            expected |= {(w, op, variable, True) for op in early for w in epochs[-1] if w != op}
    columns = [np.array([a[k] for a in used], dtype=np.int64) for k in range(4)]
    flows = _joined(*columns)
    found = {
        (int(s), int(t), int(v))
        for s, t, v in zip(flows.source, flows.target, flows.variable, strict=True)
    }  # fmt: skip
    assert found == {e[:3] for e in expected}


def test_occurrences__neighbours_of_one_superstep_in_two_operations__are_two() -> None:
    base = ab.compile_program(ab.Graph("bow-2000:1"), ab.Sequence()).report
    steps = STEPS.table(
        name="s", kind="compute", superstep=[0, 0, 0, 1, -1, 1], op=[0, 0, 1, 1, 1, 1], program=[0, 0, 0, 0, 0, 1],
        executions=[2, 2, 3, 4, 5, 6],
    )  # fmt: skip
    found = occurrences(replace(base, steps=steps))
    assert found.superstep.tolist() == [0, 0, 1, 1]
    assert found.first.tolist() == [0, 2, 3, 5]
    assert found.last.tolist() == [1, 2, 3, 5]
    assert found.op.tolist() == [0, 1, 1, 1]
    assert found.executions.tolist() == [2, 3, 4, 6]


def test_graph__nested_modules__lie_inside_of_each_other_and_apart(chain: Report) -> None:
    report = hand_made([f"model/layer{i // 8}/{'ab'[i // 4 % 2]}" for i in range(64)])
    first = of(report)
    everything = of(report, open=".".join(map(str, range(200))))
    for found in (first, everything):
        a = found.arrays
        boxes = list(zip(a["x"], a["y"], a["x"] + a["w"], a["y"] + a["h"], strict=True))
        for i, around in enumerate(a["around"].tolist()):
            if around >= 0:
                assert a["kind"][around] == OPENED
                assert boxes[around][0] < boxes[i][0]
                assert boxes[around][1] < boxes[i][1]
                assert boxes[i][2] < boxes[around][2]
                assert boxes[i][3] < boxes[around][3]
            for j in range(i):
                if a["around"][j] == around:
                    apart = boxes[i][2] <= boxes[j][0] or boxes[j][2] <= boxes[i][0]
                    assert apart or boxes[i][3] <= boxes[j][1] or boxes[j][3] <= boxes[i][1], (i, j)
        assert sum(a["count"][i] for i in range(len(boxes)) if a["kind"][i] != OPENED) == 64
    assert (everything.arrays["kind"] == OP).sum() == 64
    assert len(everything.arrays["from"]) == 63
    assert everything.arrays["bytes"].sum() == sum(4 * (i + 1) for i in range(63))


def test_graph__closed_modules__edges_join_and_metrics_add_up(chain: Report) -> None:
    report = hand_made([f"layer{i // 4}" for i in range(12)])
    found = of(report, open="none")
    assert found.head["labels"] == ["layer0", "layer1", "layer2"]
    assert found.arrays["kind"].tolist() == [MODULE] * 3
    pairs = list(zip(found.arrays["from"].tolist(), found.arrays["to"].tolist(), strict=True))
    assert pairs == [(0, 1), (1, 2)]
    cycles = found.arrays["metric"][:, found.head["metrics"].index("cycles")]
    assert cycles.tolist() == [1 + 2 + 3 + 4, 5 + 6 + 7 + 8, 9 + 10 + 11 + 12]
    assert found.arrays["y"].tolist() == sorted(found.arrays["y"].tolist())
    assert found.head["tensors"][0] == "v3\nf32 [8]"


def test_graph__thousands_of_operations_in_one_module__the_cheapest_are_one_node() -> None:
    found = of(hand_made(["all"] * 5_000), open="0")
    kinds = found.arrays["kind"].tolist()
    assert len(kinds) <= MOST_NODES
    assert kinds.count(REST) == 1
    assert found.arrays["count"][kinds.index(REST)] == 5_000 - kinds.count(OP)
    told = found.arrays["op"][found.arrays["kind"] == OP]
    assert told.min() == 5_000 - len(told)


def test_graph__thousands_of_modules_asked_to_be_open__stays_small() -> None:
    report = hand_made([f"m{i}/inner" for i in range(600)])
    found = of(report, open=".".join(map(str, range(1_800))))
    assert len(found.arrays["node"]) <= MOST_NODES + 1


def test_graph__an_operation_is_asked_for__is_seen() -> None:
    report = hand_made([f"model/layer{i // 8}/block{i % 8}" for i in range(800)])
    assert 701 not in of(report).arrays["op"].tolist()
    assert 701 in of(report, op=701).arrays["op"].tolist()


@pytest.mark.parametrize("text", ["", "none", "..", "9999999", "-1", "a.b", "1" * 400])
def test_graph__any_text_of_open_modules__is_answered(chain: Report, text: str) -> None:
    assert len(of(chain, open=text).arrays["node"]) > 0


def test_tile__holds_and_does__what_the_report_says(chain: Report) -> None:
    opened = next(iter(Shelf([chain])))
    for tile in (0, 5, 1471):
        found = answer(opened, "graph.tile", Params({"tile": str(tile)}))
        steps = found.arrays["step"].tolist()
        for column, name in (("compute_cycles", "compute"), ("sent_bytes", "sent"), ("received_bytes", "received")):
            expected = {s: int(chain.step_by_tile(column, s)[tile]) for s in range(len(chain.steps))}
            assert dict(zip(steps, found.arrays[name].tolist(), strict=True)) == {s: expected[s] for s in steps}
            assert all(expected[s] == 0 for s in expected if s not in steps)
        held = dict(zip(found.arrays["variable"].tolist(), found.arrays["bytes"].tolist(), strict=True))
        assert held == {
            v: int(chain.variable_by_tile(v)[tile])
            for v in range(len(chain.variables)) if chain.variable_by_tile(v)[tile]
        }  # fmt: skip
        for at, of_ in zip(found.arrays["at"], found.arrays["of"], strict=True):
            superstep = chain.steps["superstep"][steps[at]]
            rows = chain.superstep_variables["superstep"] == superstep
            assert found.arrays["variable"][of_] in chain.superstep_variables["variable"][rows]


def test_tile__that_there_is_not__is_refused(chain: Report) -> None:
    with pytest.raises(InvalidOptionError, match="no tile 1472"):
        answer(next(iter(Shelf([chain]))), "graph.tile", Params({"tile": "1472"}))


@pytest.mark.parametrize(
    ("path", "parts", "kind"),
    [
        ("model.conv1 (Conv2d)", ["model", "conv1"], "Conv2d"),
        ("accumulate/model.fc1.bias", ["accumulate", "model", "fc1", "bias"], ""),
        ("", [], ""),
        ("(only)", [], "only"),
        ("a//b..c", ["a", "b", "c"], ""),
        ("f(x) (K)", ["f(x)"], "K"),
    ],
)
def test_split_path__scopes_and_modules__are_levels(path: str, parts: list[str], kind: str) -> None:
    assert split_path(path) == (parts, kind)


@given(st.lists(st.lists(st.integers(0, 2), max_size=3), max_size=12))
def test_nested__any_paths__groups_hold_the_rows_that_begin_like_them(paths: list[list[int]]) -> None:
    levels = np.full((len(paths), 3), -1, dtype=np.int64)
    for row, path in enumerate(paths):
        levels[row, : len(path)] = path
    found = nested(levels)
    stack: list[int] = []
    seen = []
    for at, depth in enumerate(found.depth.tolist()):
        stack = stack[:depth]
        leaves = found.leaves[found.first[at] : found.first[at] + found.num_leaves[at]].tolist()
        if found.row[at] >= 0:
            assert paths[found.row[at]] == [int(found.level[s]) for s in stack]
            assert leaves == [found.row[at]]
            seen.append(int(found.row[at]))
        else:
            prefix = [int(found.level[s]) for s in stack] + [int(found.level[at])]
            assert sorted(leaves) == [r for r, p in enumerate(paths) if p[: depth + 1] == prefix]
        stack.append(at)
    assert sorted(seen) == list(range(len(paths)))
