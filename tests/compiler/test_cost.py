from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from abele.codelet import Input, Output, Vector, Vertex, codelet, compile_codelet
from abele.compiler import compile_program
from abele.compiler.cost import VertexCosts, vertex_costs
from abele.errors import CodeletError, MissingPerfEstimateError
from abele.graph import ComputeSet, Execute, Graph, Repeat, VertexGroup
from abele.graph.introspect import VertexIntrospector
from abele.machine import Ipu, Target
from abele.numerics import f32, i32
from compiler.support import SLOTS, Move, Search, Update


@codelet
class Gather(Vertex):
    x: Input[Vector[f32]]
    rows: Vector[Input[Vector[f32]]]
    n: i32
    table: Vector[f32]
    y: Output[Vector[f32]]

    def compute(self):
        for r in range(len(self.rows)):
            for i in range(len(self.rows[r])):
                self.y[0] += self.rows[r][i]
        for i in range(self.n):
            self.y[0] += self.x[i]
        for i in range(len(self.table)):
            self.y[0] += self.table[i]


@codelet
class GatherByFormula(Vertex):
    x: Input[Vector[f32]]
    rows: Vector[Input[Vector[f32]]]
    n: i32
    table: Vector[f32]
    y: Output[Vector[f32]]

    def compute(self):
        self.y[0] = self.x[0]

    @staticmethod
    def cycles(v, ipu):
        return v.x * 1000 + v.rows.rows * 100 + v.rows.total + v.n + v.table + ipu.num_workers


def gathers(graph: Graph, kind: Any) -> VertexGroup:
    x = graph.variable(f32, (3, 4), "x").map(0)
    y = graph.variable(f32, (3, 2), "y").map(0)
    return graph.compute_set().vertices(
        kind,
        tile=[0, 1, 2],
        x=x,
        rows=[[x[0], x[1, :2]], [x[2]], [y[0], y[1], y[2]]],
        n=[1, 2, 3],
        table=[[1.0], [1.0, 2.0], []],
        y=y,
    )


def test_vertex_costs__formula__sees_sizes_rows_and_state(graph: Graph) -> None:
    found = vertex_costs(gathers(graph, GatherByFormula), graph.system.ipu)
    assert found.amount.tolist() == [4214, 4114, 4315]
    assert not found.is_estimate


def test_vertex_costs__counted__depends_on_lengths_rows_and_state_alone(graph: Graph) -> None:
    found = vertex_costs(gathers(graph, Gather), graph.system.ipu)
    assert not compile_codelet(Gather.codelet).data_dependent
    assert not found.is_estimate
    assert (found.amount > 0).all()
    same = gathers(graph, Gather)
    np.testing.assert_array_equal(vertex_costs(same, graph.system.ipu).amount, found.amount)


def test_vertex_costs__longer_vectors__cost_more(graph: Graph) -> None:
    x, y = (graph.variable(f32, (100,), n).map(0) for n in "xy")
    cs = graph.compute_set()
    group = cs.vertices(Move, tile=[0, 0, 0], x=[x[:1], x[1:11], x[11:100]], y=[y[:1], y[1:11], y[11:100]])
    amount = vertex_costs(group, graph.system.ipu).amount
    assert (amount[2] - amount[1]) * 9 == (amount[1] - amount[0]) * 79


def test_vertex_costs__given_cycles__win(graph: Graph) -> None:
    x, y = (graph.variable(f32, (3, 4), n).map(0) for n in "xy")
    group = graph.compute_set().vertices(Move, tile=[0] * 3, x=x, y=y, cycles=[7, 8, 9])
    assert vertex_costs(group, graph.system.ipu).amount.tolist() == [7, 8, 9]


def test_vertex_costs__data_dependent__is_one_slot_an_element_and_says_so(graph: Graph) -> None:
    x = graph.variable(f32, (3, 4), "x").map(0)
    y = graph.variable(i32, (3,), "y").map(0)
    found = vertex_costs(graph.compute_set().vertices(Search, tile=[0] * 3, x=x, y=y), graph.system.ipu)
    assert found.is_estimate
    assert found.amount.tolist() == [5, 5, 5]


def with_formula(graph: Graph, formula: Any) -> VertexGroup:
    class Odd(Vertex):
        x: Input[Vector[f32]]

        def compute(self):
            pass

    Odd.cycles = staticmethod(formula)  # type: ignore[attr-defined]
    x = graph.variable(f32, (3, 4), "x").map(0)
    return graph.compute_set().vertices(codelet(Odd), tile=[0] * 3, x=x)


def test_vertex_costs__one_number_for_all__is_spread_and_rounded_up(graph: Graph) -> None:
    assert vertex_costs(with_formula(graph, lambda v, ipu: 2.5), graph.system.ipu).amount.tolist() == [3, 3, 3]


@pytest.mark.parametrize("wrong", [np.ones(2), "text", np.array([1.0, np.nan, 2.0])])
def test_vertex_costs__formula_of_wrong_shape_or_kind__names_the_codelet(graph: Graph, wrong: object) -> None:
    group = with_formula(graph, lambda v, ipu: wrong)
    with pytest.raises(CodeletError, match=r"cycles\(\) of codelet Odd gave .* for 3 vertices"):
        vertex_costs(group, graph.system.ipu)


def test_vertex_costs__formula_asks_for_a_field_that_is_not_there__says_which_there_are(graph: Graph) -> None:
    group = with_formula(graph, lambda v, ipu: v.z)
    with pytest.raises(AttributeError, match="Odd has no field 'z'; its fields are x"):
        vertex_costs(group, graph.system.ipu)


def searches(graph: Graph) -> ComputeSet:
    """Three vertices whose cost depends on data, on 4, 5 and 6 elements."""
    cs = graph.compute_set("search")
    y = graph.variable(i32, (3,), "y").map(0)
    for i in range(3):
        x = graph.variable(f32, (4 + i,), "x").map(0)
        cs.vertex(Search, tile=0, x=x, y=y[i])
    return cs


def costs_of(cs: ComputeSet) -> VertexCosts:
    (group,) = cs.groups
    return vertex_costs(group, cs.graph.system.ipu)


def by_view(v: Any, ipu: Ipu) -> Any:
    return v.x * 10 + ipu.num_workers, v.x


def by_vertex(v: VertexIntrospector, target: Target) -> tuple[int, int]:
    size = int(v["x"].sizes.sum())
    return size * 10 + target.workers, size


@pytest.mark.parametrize("codelet_or_name", [Search, "Search", Search.codelet], ids=["class", "name", "definition"])
@pytest.mark.parametrize(("estimator", "per_vertex"), [(by_view, False), (by_vertex, True)])
def test_perf_estimator__of_a_graph__replaces_counting(
    graph: Graph, codelet_or_name: Any, estimator: Any, per_vertex: bool
) -> None:
    graph.register_perf_estimator(codelet_or_name, estimator, per_vertex=per_vertex)
    found = costs_of(searches(graph))
    assert found.amount.tolist() == [46, 56, 66]
    assert found.flops == 15
    assert not found.is_estimate


def test_perf_estimator__of_a_graph__comes_after_given_cycles_and_before_a_formula(graph: Graph) -> None:
    def cost(**given: int) -> list[int]:
        x, y = (graph.variable(f32, (2, 3), n).map(0) for n in "xy")
        group = graph.compute_set().vertices(Update, tile=[0, 0], x=x, y=y, **given)
        cs = graph.compute_sets[-1]
        assert cs.groups == (group,)
        return vertex_costs(group, graph.system.ipu).amount.tolist()

    assert cost() == [SLOTS] * 2
    graph.register_perf_estimator(Update, lambda v, ipu: 2.5)
    assert cost() == [3, 3]
    assert cost(cycles=7) == [7, 7]
    assert Graph(graph.system).perf_estimators == {}


def test_perf_estimator__that_tells_operations__is_in_the_ops_table(graph: Graph) -> None:
    graph.register_perf_estimator(Search, by_view)
    report = compile_program(graph, Repeat(2, Execute(searches(graph)))).report
    assert report.ops["flops"].tolist() == [30]
    assert report.steps["basis"].tolist() == ["static"]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([1, 2], "gave int64 of shape [2] for 3 vertices"),
        (-4, "gave int64 of shape [], the lowest -4 for 3 vertices"),
        (float("nan"), "gave float64 of shape [], the lowest nan for 3 vertices"),
        ("many", "gave <U4 of shape [] for 3 vertices"),
    ],
)
def test_perf_estimator__that_gives_no_cost__is_named(graph: Graph, found: Any, text: str) -> None:
    graph.register_perf_estimator(Search, lambda v, ipu: found)
    with pytest.raises(CodeletError) as caught:
        costs_of(searches(graph))
    assert f"the perf estimator of codelet Search {text}" in str(caught.value)
    assert "support.py:" in str(caught.value)


def test_missing_perf_estimate__of_code_that_cannot_be_counted__tells_the_remedy(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    from abele.codelet import compiled

    monkeypatch.setattr(compiled.CompiledCodelet, "data_dependent", property(lambda self: False))
    monkeypatch.setattr(compiled.CompiledCodelet, "slots", property(lambda self: None))
    cs = searches(graph)
    with pytest.raises(MissingPerfEstimateError) as caught:
        costs_of(cs)
    assert str(caught.value).startswith("no perf estimate: what a vertex Search costs cannot be counted")
    assert "graph.register_perf_estimator(codelet, function)" in str(caught.value)
    graph.register_perf_estimator(Search, lambda v, ipu: 9)
    assert costs_of(cs).amount.tolist() == [9] * 3
