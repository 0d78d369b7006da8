from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from compiler_kit import codelet

from abele.compiler.cost import vertex_costs
from abele.errors import CodeletError
from abele.graph import Graph, shared
from abele.numerics import f32, i32

Gather = codelet("Gather", x="in", rows=("in", f32, 2), n=("state", i32, 0), table=("state", f32, 1), y="out")


def test_vertex_costs__formula__sees_sizes_rows_and_state(graph: Graph) -> None:
    x = graph.variable(f32, (3, 4), "x").map(0)
    y = graph.variable(f32, (3, 2), "y").map(0)
    formula = lambda v, ipu: v.x * 1000 + v.rows.rows * 100 + v.rows.total + v.n + v.table + ipu.num_workers  # noqa: E731
    cs = graph.compute_set()
    group = cs.vertices(
        replace(Gather, formula=formula),
        tile=[0, 1, 2],
        x=x,
        rows=[[x[0], x[1, :2]], [x[2]], [y[0], y[1], y[2]]],
        n=[1, 2, 3],
        table=[[1.0], [1.0, 2.0], []],
        y=y,
    )
    expected = [4000 + 200 + 6 + 1 + 1 + 6, 4000 + 100 + 4 + 2 + 2 + 6, 4000 + 300 + 6 + 3 + 0 + 6]
    assert vertex_costs(group, graph.system.ipu).amount.tolist() == expected


def test_vertex_costs__one_number_for_all__is_spread(graph: Graph) -> None:
    x = graph.variable(f32, (3, 4), "x").map(0)
    group = graph.compute_set().vertices(
        replace(codelet("Flat", x="in"), formula=lambda v, ipu: 2.5), tile=[0] * 3, x=x
    )
    assert vertex_costs(group, graph.system.ipu).amount.tolist() == [3, 3, 3]


@pytest.mark.parametrize("wrong", [np.ones(2), "text", np.array([1.0, np.nan, 2.0])])
def test_vertex_costs__formula_of_wrong_shape_or_kind__names_the_codelet(graph: Graph, wrong: object) -> None:
    x = graph.variable(f32, (3, 4), "x").map(0)
    definition = replace(codelet("Odd", x="in"), formula=lambda v, ipu: wrong)
    group = graph.compute_set().vertices(definition, tile=[0] * 3, x=x)
    with pytest.raises(CodeletError, match=r"cycles\(\) of codelet Odd gave .* for 3 vertices"):
        vertex_costs(group, graph.system.ipu)


def test_vertex_costs__formula_asks_for_a_field_that_is_not_there__says_which_there_are(graph: Graph) -> None:
    x = graph.variable(f32, (4,), "x").map(0)
    definition = replace(codelet("Odd", x="in"), formula=lambda v, ipu: v.z)
    group = graph.compute_set().vertices(definition, tile=[0], x=shared(x))
    with pytest.raises(AttributeError, match="Odd has no field 'z'; its fields are x"):
        vertex_costs(group, graph.system.ipu)
