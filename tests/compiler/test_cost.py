from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from abele.codelet import Input, Output, Vector, Vertex, codelet, compile_codelet
from abele.compiler.cost import vertex_costs
from abele.errors import CodeletError
from abele.graph import Graph, VertexGroup
from abele.numerics import f32, i32
from compiler.support import Move, Search


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
