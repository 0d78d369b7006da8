from __future__ import annotations

import numpy as np
import pytest

from abele import Graph
from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet
from abele.errors import ConstantWriteError, GraphConnectionError, TileMappingError, TypeMismatchError
from abele.graph import boxes, concat, shared
from abele.numerics import f16, f32


@codelet
class Scale(Vertex):
    x: Input[Vector[f32]]
    y: Output[Vector[f32]]
    a: f32

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] = self.a * self.x[i]


@codelet
class AddTo(Vertex):
    total: InOut[f32]
    rows: Vector[Input[Vector[f32]]]

    def compute(self):
        for r in range(len(self.rows)):
            for i in range(len(self.rows[r])):
                self.total += self.rows[r][i]


@pytest.fixture
def graph():
    return Graph("gc200")


def rows_of(edge):
    return edge.row_sizes.tolist()


def test_vertices__tensor_with_a_row_each__wires_row_i_to_vertex_i(graph):
    x, y = graph.variable(f32, (3, 5)), graph.variable(f32, (3, 5))
    group = graph.compute_set().vertices(Scale, tile=range(3), x=x, y=y, a=2.0)
    assert group.num == 3
    assert rows_of(group.edges["x"]) == [5, 5, 5]
    assert group.edges["y"].regions.begin.tolist() == [15, 20, 25]
    assert group.state["a"].values.tolist() == [2.0, 2.0, 2.0]


def test_vertices__shared_tensor__is_one_region_for_all(graph):
    x, y = graph.variable(f32, 5), graph.variable(f32, (3, 5))
    group = graph.compute_set().vertices(Scale, tile=range(3), x=shared(x), y=y, a=[1.0, 2.0, 3.0])
    assert group.edges["x"].regions.num == 1
    assert rows_of(group.edges["x"]) == [5, 5, 5]
    assert group.state["a"].values.tolist() == [1.0, 2.0, 3.0]


def test_vertices__list_of_tensors__may_differ_in_length(graph):
    t = graph.variable(f32, 10)
    y = graph.variable(f32, 10)
    group = graph.compute_set().vertices(Scale, tile=[0, 1], x=[t[:3], t[3:]], y=[y[:3], y[3:]], a=1.0)
    assert rows_of(group.edges["x"]) == [3, 7]


def test_vertices__regions_with_index__may_share(graph):
    t, y = graph.variable(f32, 10), graph.variable(f32, (3, 5))
    regions = boxes(t, [[0], [5]], [5])
    group = graph.compute_set().vertices(Scale, tile=range(3), x=(regions, [1, 0, 1]), y=y, a=1.0)
    assert group.edges["x"].index.tolist() == [1, 0, 1]


def test_vertices__rank_two_field__takes_a_tensor_or_lists(graph):
    totals, data = graph.variable(f32, 2), graph.variable(f32, (2, 3, 4))
    from_tensor = graph.compute_set().vertices(AddTo, tile=[0, 1], total=totals, rows=data)
    assert from_tensor.edges["rows"].row_begin.tolist() == [0, 3, 6]
    ragged = graph.compute_set().vertices(
        AddTo, tile=[0, 1], total=totals, rows=[[data[0, 0]], [data[1, 0], data[1, 1, :2]]]
    )
    assert ragged.edges["rows"].row_begin.tolist() == [0, 1, 3]
    assert rows_of(ragged.edges["rows"]) == [4, 4, 2]


def test_vertex__wired_field_by_field__equals_the_group(graph):
    x, y = graph.variable(f32, (2, 5)), graph.variable(f32, (2, 5))
    cs = graph.addComputeSet("cs")
    for i in range(2):
        v = graph.addVertex(cs, Scale, {"x": x[i]})
        graph.connect(v["y"], y[i])
        graph.setInitialValue(v["a"], float(i))
        graph.setTileMapping(v, i)
    (group,) = cs.groups
    assert group.tile.tolist() == [0, 1]
    assert group.edges["x"].regions.begin.tolist() == [0, 5]
    np.testing.assert_array_equal(group.state["a"].values, [0.0, 1.0])


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"x": "x", "a": 1.0}, GraphConnectionError, r"field Scale\.y is not connected"),
        ({"x": "x", "y": "y", "a": 1.0, "z": "y"}, GraphConnectionError, r"vertex Scale has no field 'z'"),
        ({"x": "half", "y": "y", "a": 1.0}, TypeMismatchError, r"field Scale\.x is f32, but .* is f16"),
        ({"x": "short", "y": "y", "a": 1.0}, GraphConnectionError, r"has no first dimension of 3"),
        ({"x": "x", "y": "y", "a": [1.0, 2.0]}, GraphConnectionError, r"does not fit 3 vertices: state of shape \[2\]"),
        ({"x": "x", "y": "constant", "a": 1.0}, ConstantWriteError, r"field Scale\.y writes to constant 'c'"),
        ({"x": "x", "y": "alias", "a": 1.0}, ConstantWriteError, r"an element appears more than once"),
        ({"x": "x", "y": "y", "a": "x"}, GraphConnectionError, r"field Scale\.a is state, not an edge"),
        ({"x": 3, "y": "y", "a": 1.0}, GraphConnectionError, r"got int"),
    ],
)
def test_vertices__wrong_value__names_vertex_field_and_line(graph, fields, error, text):
    tensors = {
        "x": graph.variable(f32, (3, 5)),
        "y": graph.variable(f32, (3, 5)),
        "half": graph.variable(f16, (3, 5)),
        "short": graph.variable(f32, (2, 5)),
        "constant": graph.constant(f32, (3, 5), 0.0, name="c"),
        "alias": graph.variable(f32, (1, 5)).broadcast_to((3, 5)),
    }
    values = {name: tensors.get(value, value) if isinstance(value, str) else value for name, value in fields.items()}
    with pytest.raises(error, match=text) as caught:
        graph.compute_set().vertices(Scale, tile=range(3), **values)
    assert "test_connect.py:" in str(caught.value)


def test_connect__field_twice__names_both_lines(graph):
    x = graph.variable(f32, 5)
    v = graph.compute_set().vertex(Scale, tile=0, x=x)
    with pytest.raises(GraphConnectionError, match=r"field Scale\.x is connected twice") as caught:
        v["x"] = x
    assert str(caught.value).count("test_connect.py:") == 2


def test_vertex__without_tile__is_refused_when_the_groups_are_made(graph):
    cs = graph.compute_set("lost")
    x = graph.variable(f32, 10)
    cs.vertex(Scale, x=x[:5], y=x[5:], a=1.0)
    with pytest.raises(TileMappingError, match="vertex Scale in compute set 'lost' is mapped to no tile"):
        _ = cs.groups


def test_vertices__tile_that_the_system_lacks__names_vertex_and_compute_set(graph):
    x = graph.variable(f32, (1, 5))
    with pytest.raises(TileMappingError, match=r"a vertex Scale of compute set 'cs' is mapped to tile 1472"):
        graph.compute_set("cs").vertices(Scale, tile=[1472], x=x, y=graph.variable(f32, (1, 5)), a=1.0)


def test_vertices__undecorated_class__is_refused(graph):
    with pytest.raises(GraphConnectionError, match="int is no codelet"):
        graph.compute_set().vertices(int, tile=[0])


def test_scalar_field__row_of_several__is_refused(graph):
    t = graph.variable(f32, (2, 2))
    with pytest.raises(GraphConnectionError, match="it takes one element, not 2"):
        graph.compute_set().vertices(AddTo, tile=[0, 1], total=t, rows=concat([t, t]).reshape(2, 2, 2))
