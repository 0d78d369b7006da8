"""Layouts, lists, alignment, constraints and names of codelets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import abele as ab
from abele import InOut, Input, Output, Vector, VectorList, f16, f32, i32, u8
from abele.codelet import (
    COMPACT_PTR,
    DELTAN,
    DELTANELEMENTS,
    ONE_PTR,
    SCALED_PTR32,
    SCALED_PTR64,
    SCALED_PTR128,
    SHORT_SPAN,
    SPAN,
    compile_codelet,
)
from abele.codelet.fields import field_type
from abele.errors import CodeletError, FieldOverflowError, InvalidOptionError, MemoryElementError, VectorSizeError

LAYOUTS = [SPAN, SHORT_SPAN, ONE_PTR, COMPACT_PTR, SCALED_PTR32, SCALED_PTR64, SCALED_PTR128]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_vector__any_layout__is_read_and_written_alike(layout: Any) -> None:
    @ab.codelet
    class Twice(ab.Vertex):
        x: Input[Vector[f32, layout]]
        y: Output[Vector[f32, layout, 8]]
        n: i32

        def compute(self):
            for i in range(self.n):
                self.y[i] = 2.0 * self.x[i]

    graph = ab.Graph("bow")
    x, y = (graph.variable(f32, (4, 6), name=n).map_rows(range(4)) for n in "xy")
    step = graph.compute_set()
    step.vertices(Twice, tile=range(4), x=x, y=y, n=6)
    for debug in (False, True):
        engine = ab.Engine(graph, ab.Execute(step), debug=debug)
        engine["x"] = values = np.random.default_rng(0).random((4, 6), dtype=np.float32)
        engine.run()
        np.testing.assert_array_equal(engine["y"], 2 * values)
    field = Twice.codelet.field_by_name["y"]
    assert field.layouts == (layout,)
    assert field.min_align == 8


@pytest.mark.parametrize("layout", [ONE_PTR, COMPACT_PTR, SCALED_PTR32, SCALED_PTR64, SCALED_PTR128], ids=str)
def test_len__of_a_pointer_without_size__is_refused_with_its_line(layout: Any) -> None:
    @ab.codelet
    class Sum(ab.Vertex):
        x: Input[Vector[f32, layout]]
        total: Output[f32]

        def compute(self):
            self.total = f32(len(self.x))

    with pytest.raises(VectorSizeError, match="does not carry its size") as caught:
        _ = compile_codelet(Sum.codelet).run
    assert isinstance(caught.value, CodeletError)
    assert "test_layouts.py" in (caught.value.at or "")


def test_short_span__too_many_elements__is_refused_with_limit_and_line() -> None:
    @ab.codelet
    class Clear(ab.Vertex):
        x: InOut[Vector[f32, SHORT_SPAN]]

        def compute(self):
            for i in range(len(self.x)):
                self.x[i] = 0.0

    graph = ab.Graph("bow")
    x = graph.variable(f32, (2, 2048), name="x").map_rows([0, 1])
    with pytest.raises(FieldOverflowError, match=r"Clear\.x has 2,048 elements, a SHORT_SPAN vector at most 2,047"):
        graph.compute_set().vertices(Clear, tile=[0, 1], x=x)
    graph.compute_set().vertices(Clear, tile=[0, 1], x=x[:, 1:])


@pytest.mark.parametrize("layout", [DELTAN, DELTANELEMENTS], ids=str)
def test_vector_list__rows_of_different_length__are_summed(layout: Any) -> None:
    @ab.codelet
    class RowSums(ab.Vertex):
        rows: Input[VectorList[f32, layout]]
        sums: Output[Vector[f32]]

        def compute(self):
            for r in range(len(self.rows)):
                total = 0.0
                for i in range(len(self.rows[r])):
                    total += self.rows[r][i]
                self.sums[r] = total

    graph = ab.Graph("bow")
    x = graph.variable(f32, (10,), name="x").map(0)
    sums = graph.variable(f32, (3,), name="sums").map(0)
    step = graph.compute_set()
    step.vertex(RowSums, tile=0, rows=[x[0:5], x[5:6], x[6:10]], sums=sums)
    engine = ab.Engine(graph, ab.Execute(step))
    engine["x"] = np.arange(10, dtype=np.float32)
    engine.run()
    assert engine["sums"].tolist() == [10, 5, 30]
    assert RowSums.codelet.field_by_name["rows"].is_list


@ab.codelet
class Pick(ab.Vertex):
    """Elements that are wired one by one."""

    x: Vector[Input[f32]]
    y: Vector[Output[f32]]

    def compute(self):
        for i in range(len(self.x)):
            self.y[len(self.x) - 1 - i] = self.x[i]


@pytest.mark.parametrize("debug", [False, True])
def test_scattered_elements__wired_one_by_one__are_those_elements(debug: bool) -> None:
    graph = ab.Graph("bow")
    x = graph.variable(f32, (4, 4), name="x").map_rows(range(4))
    y = graph.variable(f32, (3,), name="y").map(7)
    z = graph.variable(f32, (2, 4), name="z").map_rows([0, 1])
    step = graph.compute_set()
    step.vertex(Pick, tile=2, x=[x[0, 3], x[2, 1], x[1, 1]], y=[y[0], y[1], y[2]])
    step.vertices(Pick, tile=[0, 1], x=x[2:], y=z)
    engine = ab.Engine(graph, ab.Execute(step), debug=debug)
    engine["x"] = values = np.arange(16, dtype=np.float32).reshape(4, 4)
    engine.run()
    assert engine["y"].tolist() == [values[1, 1], values[2, 1], values[0, 3]]
    np.testing.assert_array_equal(engine["z"], values[2:, ::-1])


def test_annotation__with_layouts__says_them() -> None:
    rows = field_type(Vector[Input[Vector[f16, ONE_PTR, 16, True]], SHORT_SPAN]).field("rows")
    assert (rows.rank, rows.direction, rows.layouts) == (2, "in", (SHORT_SPAN, ONE_PTR))
    assert (rows.min_align, rows.interleaved, rows.alignment_bytes) == (16, True, 16)
    by_name = field_type(Input[Vector[u8, "SCALED_PTR64"]]).field("x")
    assert by_name.alignment_bytes == 8
    assert field_type(Vector[InOut[f32]]).field("x").is_scattered


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Vector[f32, "SPAM"], "did you mean SPAN"),
        (lambda: Vector[f32, DELTAN], "is no layout of such a vector"),
        (lambda: VectorList[f32, SPAN], "is no layout of such a vector"),
        (lambda: Vector[f32, SPAN, 3], "an alignment of 3 bytes"),
        (lambda: Vector[f32, SPAN, 8, 1], "interleaved is 1"),
        (lambda: Vector[f32, SPAN, 8, True, 4], "takes a layout, an alignment"),
    ],
)
def test_annotation__wrong_layout__is_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        make()


def test_annotation__alignment_on_the_outer_vector__is_refused() -> None:
    with pytest.raises(CodeletError, match="belong to the inner vector"):
        _ = Vector[Input[Vector[f32]], SPAN, 8]


def test_constraints__of_two_edges__are_read() -> None:
    @ab.codelet
    class Add(ab.Vertex):
        a: Input[Vector[f32]]
        b: InOut[Vector[f32]]
        constraints = ("elem(*a) != elem(*b)", "region( *b )!=region( *a )")

        def compute(self):
            for i in range(len(self.a)):
                self.b[i] += self.a[i]

    assert [str(c) for c in Add.codelet.constraints] == ["elem(*a) != elem(*b)", "region(*b) != region(*a)"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("elem(*a) != elem(*bb)", "names 'bb', which is no edge"),
        ("elem(*a) != region(*b)", "is no constraint"),
        ("a != b", "is no constraint"),
        ("elem(*a) != elem(*a)", "cannot be met by one field"),
    ],
)
def test_constraints__that_make_no_sense__are_refused(text: str, message: str) -> None:
    with pytest.raises(MemoryElementError, match=message):

        @ab.codelet
        class Add(ab.Vertex):
            a: Input[Vector[f32]]
            b: InOut[Vector[f32]]
            constraints = text

            def compute(self):
                self.b[0] = self.a[0]


def test_codelet__with_a_name__is_called_so() -> None:
    @ab.codelet(name="Negate<float>")
    class Negate(ab.Vertex):
        x: InOut[Vector[f32]]

        def compute(self):
            for i in range(len(self.x)):
                self.x[i] = -self.x[i]

    assert Negate.codelet.name == "Negate<float>"
    assert Negate.codelet.language == "python"
