"""Compute sets that do the same to other variables: found, and costed as if they were alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler import Step, Superstep, compile_program
from abele.compiler.analyse import Analysis
from abele.compiler.equal_steps import Analysed
from abele.errors import ConstantWriteError, DataRaceError, TileMappingError
from abele.graph import ComputeSet, Execute, Graph, Sequence, Tensor, VertexGroup, concat
from abele.numerics import f32, i32
from compiler.support import Move, Reader, Search, Update, small_system
from support.examples import examples

TILES = 4


def step(graph: Graph, x: Tensor, y: Tensor, name: str = "step") -> Execute:
    cs = graph.compute_set(name)
    cs.vertices(Move, tile=np.arange(x.shape[0]) % TILES, x=x, y=y)
    return Execute(cs)


def found(superstep: Superstep) -> dict[str, object]:
    """Figures of a superstep that the report and the memory plan take."""
    result: dict[str, object] = {"vertices": superstep.num_vertices, "edges": superstep.num_edges}
    for name in ("before", "after"):
        phase = getattr(superstep, name)
        result[name] = None if phase is None else (phase.cycles, phase.fragments, phase.received_bytes.tolist())
    for name in ("gather", "compute", "scatter"):
        part = getattr(superstep, name)
        result[name] = None if part is None else part.by_tile.tolist()
    result["buffers"] = None if superstep.buffer_bytes is None else superstep.buffer_bytes.tolist()
    access = superstep.access
    result["access"] = [column.tolist() for column in (access.reads, access.writes, access.complete)]
    result["partial"] = {v: (b.tolist(), e.tolist()) for v, (b, e) in access.partial.items()}
    return result


Rows = st.lists(st.integers(0, TILES - 1), min_size=4, max_size=4)
View = st.sampled_from(["plain", "flipped", "cut", "joined"])


def view(x: Tensor, other: Tensor, kind: str) -> Tensor:
    match kind:
        case "flipped":
            return x.T.reshape((4, 6))
        case "cut":
            return concat([x[1:], x[:1]])
        case "joined":
            return concat([x[:2], other[2:]])
    return x


@examples(12)
@given(st.lists(st.tuples(Rows, Rows, View, View, st.booleans()), min_size=2, max_size=5))
def test_equal_steps__random_compute_sets__are_analysed_as_if_alone(sets: list) -> None:
    graph = Graph(small_system(TILES))
    steps = []
    for number, (home, goal, reading, writing, swapped) in enumerate([*sets, *sets]):
        tensors = [graph.variable(f32, (4, 6), f"{n}{number}").map_rows(rows) for n, rows in (("x", home), ("z", home))]
        target = [graph.variable(f32, (4, 6), f"{n}{number}").map_rows(rows) for n, rows in (("y", goal), ("w", goal))]
        if swapped:
            tensors, target = target, tensors
        steps.append(step(graph, view(*tensors, reading), view(*target, writing), f"s{number}"))
    together = compile_program(graph, Sequence(*steps))
    for number, one in enumerate(steps):
        assert found(together.plan[number]) == found(compile_program(graph, one).plan[0])
    codes = [compile_program(graph, s).memory.by_category for s in steps]
    alone = sum(code["vertex_state"] for code in codes)
    assert together.memory.by_category["vertex_state"].tolist() == alone.tolist()
    # Equal steps share exchange code: a tile has at least its longest program, and no more than all.
    apart = np.array([code["exchange_code"] for code in codes])
    shared = np.asarray(together.memory.by_category["exchange_code"])
    assert (shared >= apart.max(axis=0)).all()
    assert (shared <= apart.sum(axis=0)).all()
    assert shared.sum() == sum(s.exchange_code_bytes for s in together.plan)
    assert all(s.exchange_code_users >= 2 for s in together.plan if s.exchange_code_bytes)


def pair(graph: Graph, name: str, home: object = range(TILES), dtype: object = f32) -> tuple[Tensor, Tensor]:
    x = graph.variable(dtype, (4, 6), f"{name}/x").map_rows(home)
    return x, graph.variable(dtype, (4, 6), f"{name}/y").map_rows([1, 2, 3, 0])


def analysed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the compute sets that are analysed from scratch, filled as that happens."""
    names: list[str] = []
    whole = Analysis._first

    def noted(self: Analysis, step: Step, compute_set: ComputeSet, groups: list[VertexGroup]) -> Analysed:
        names.append(compute_set.name)
        return whole(self, step, compute_set, groups)

    monkeypatch.setattr(Analysis, "_first", noted)
    return names


def test_equal_steps__equal_but_for_the_variables__are_analysed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(small_system(TILES))
    steps = [step(graph, *pair(graph, f"v{n}"), f"s{n}") for n in range(8)]
    names = analysed(monkeypatch)
    executable = compile_program(graph, Sequence(*steps))
    assert names == ["s0"]
    assert [s.superstep for s in executable.steps] == list(range(8))
    assert len({int(v) for s in executable.plan for v in s.access.touched}) == 16


def test_equal_steps__another_mapping_wiring_order_or_sharing__are_analysed_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = Graph(small_system(TILES))
    x, y = pair(graph, "late")
    one, two = pair(graph, "first")
    steps = [
        step(graph, one, two, "first"),
        step(graph, *pair(graph, "mapped", [3, 2, 1, 0]), "mapped"),
        step(graph, one, concat([x[1:], x[:1]]), "wired"),
        step(graph, y, x, "order"),
    ]
    cs = graph.compute_set("other tile")
    cs.vertices(Move, tile=[1, 0, 2, 3], x=one, y=two)
    names = analysed(monkeypatch)
    compile_program(graph, Sequence(*steps, Execute(cs)))
    assert names == ["first", "mapped", "wired", "order", "other tile"]


def test_equal_steps__costs_that_differ__are_analysed_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(small_system(TILES))
    steps = []
    for number, cycles in enumerate((7, 7, 9)):
        cs = graph.compute_set(f"s{number}")
        cs.vertices(Reader, tile=range(4), x=pair(graph, f"v{number}")[0], cycles=cycles)
        steps.append(Execute(cs))
    names = analysed(monkeypatch)
    executable = compile_program(graph, Sequence(*steps))
    assert names == ["s0", "s2"]
    assert [int(s.compute.by_tile.max()) for s in executable.plan if s.compute] == [42, 42, 54]


def test_equal_steps__race_or_constant_in_the_second__is_still_found() -> None:
    graph = Graph(small_system(TILES))
    good = graph.compute_set("good")
    x, y = pair(graph, "v")
    good.vertices(Update, tile=range(4), x=x, y=y)
    bad = graph.compute_set("bad")
    bad.vertices(Update, tile=range(4), x=y, y=concat([y[1:], y[:1]]))
    with pytest.raises(DataRaceError):
        compile_program(graph, Sequence(Execute(good), Execute(bad)))
    other = graph.compute_set("constant")
    a, b = pair(graph, "w")
    other.vertices(Update, tile=range(4), x=a, y=b)
    b.variables[0].kind = "constant"
    with pytest.raises(ConstantWriteError, match="'w/y'"):
        compile_program(graph, Sequence(Execute(good), Execute(other)))


def test_equal_steps__unmapped_variable_in_the_second__is_still_found() -> None:
    graph = Graph(small_system(TILES))
    first = step(graph, *pair(graph, "v"))
    loose = graph.variable(f32, (4, 6), "loose")
    second = step(graph, loose, pair(graph, "w")[1])
    with pytest.raises(TileMappingError, match="'loose'"):
        compile_program(graph, Sequence(first, second))


def test_equal_steps__counted_costs__stay_apart() -> None:
    graph = Graph(small_system(TILES))
    steps = []
    for number in range(2):
        x = graph.variable(f32, (4, 6), f"x{number}").map_rows(range(4))
        y = graph.variable(i32, (4,), f"y{number}").map_rows(range(4))
        cs = graph.compute_set(f"s{number}")
        cs.vertices(Search, tile=range(4), x=x, y=y)
        steps.append(Execute(cs))
    executable = compile_program(graph, Sequence(*steps))
    counted = executable.report_of(executable.account_of(slots={0: {0: np.full(4, 100)}}))
    assert counted.steps["basis"].tolist() == ["counted", "assumed"]
    assert counted.steps["compute_cycles"].tolist() == [600, executable.report.steps["compute_cycles"][1]]
