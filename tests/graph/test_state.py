"""State of vertices: what it may be given, and what is known of a vertex."""

from __future__ import annotations

import numpy as np
import pytest

import abele as ab
from abele.codelet import Input, Output, Vector, Vertex, codelet
from abele.errors import FieldOverflowError, GraphConnectionError, TileMappingError, UnknownFieldError
from abele.numerics import f32, i8, u16


@codelet
class Holder(Vertex):
    count: u16
    small: i8
    table: Vector[u16]
    scale: f32
    rows: Vector[Input[Vector[f32]]]
    x: Input[Vector[f32]]
    y: Output[f32]

    def compute(self):
        self.y = self.x[0]


def holders(**changes: object) -> ab.ComputeSet:
    graph = ab.Graph("bow")
    x = graph.variable(f32, (2, 5), "x").map_rows([0, 1])
    y = graph.variable(f32, (2,), "y").map(0)
    step = graph.compute_set()
    fields = {"count": 65535, "small": -128, "table": [1, 2, 3], "scale": 0.5, "x": x, "y": y}
    rows = [[x[0, :2], x[0, 2:]], [x[1]]]
    step.vertices(Holder, tile=[0, 1], rows=rows, **(fields | changes))
    return step


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 65536}, r"Holder\.count is u16, from 0 to 65,535; it was given 65,536"),
        ({"count": [3, -1]}, r"Holder\.count is u16, from 0 to 65,535; it was given -1"),
        ({"small": 128}, r"Holder\.small is i8, from -128 to 127; it was given 128"),
        ({"table": [0, 70000]}, r"Holder\.table is u16.* it was given 70,000"),
        ({"table": [[1], [2, 1 << 40]]}, r"it was given 1,099,511,627,776"),
    ],
)
def test_state__of_a_number_that_its_type_cannot_hold__is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(FieldOverflowError, match=message) as caught:
        holders(**changes)
    assert "test_state.py" in (caught.value.at or "")


def test_state__at_its_limits__is_kept() -> None:
    (group,) = holders().groups
    assert group.state["count"].values.tolist() == [65535, 65535]
    assert group.state["small"].values.tolist() == [-128, -128]


def test_info__of_a_wired_vertex__tells_sizes_and_values() -> None:
    graph = ab.Graph("bow")
    x = graph.variable(f32, (7,), "x").map(0)
    y = graph.variable(f32, (), "y").map(0)
    vertex = graph.compute_set().vertex(
        Holder, tile=0, count=9, small=-2, table=[4, 5], scale=1.5, rows=[x[:2], x[2:5]], x=x, y=y
    )
    info = vertex.info()
    assert info["x"].size() == 7
    assert info["rows"].size() == 2
    assert [info["rows"].getSize(i) for i in range(2)] == [2, 3]
    assert info["y"].size() == 1
    assert (info["count"].getInitialValue(), info["scale"].getInitialValue()) == (9, 1.5)
    assert info["table"].getInitialValues() == [4, 5]
    np.testing.assert_array_equal(info["rows"].sizes, [2, 3])
    with pytest.raises(UnknownFieldError, match="no field 'z'"):
        info["z"]


def test_info__of_a_vertex_without_tile_or_field__is_refused() -> None:
    graph = ab.Graph("bow")
    step = graph.compute_set()
    with pytest.raises(TileMappingError, match="mapped to no tile"):
        step.vertex(Holder).info()
    with pytest.raises(GraphConnectionError, match="is not connected"):
        step.vertex(Holder, tile=0).info()
