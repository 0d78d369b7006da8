"""Values that do not fit are refused where they are given: initial values, state, programs inside themselves,
constants.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from abele import Engine, Execute, Graph, If, InOut, Output, Repeat, Sequence, Vector, Vertex, codelet
from abele.compiler import compile_program
from abele.errors import (
    DataRaceError,
    FieldOverflowError,
    GraphRecursionError,
    TileMappingError,
    TypeMismatchError,
)
from abele.graph import Copy, Switch
from abele.numerics import ElementType, bf16, bool_, f16, f32, i8, i32, i64, u8, u32, u64

BAD: list[tuple[ElementType, Any, str]] = [
    (u8, 300, "300, which is not from 0 to 255"),
    (u8, -1, "-1, which is not from 0 to 255"),
    (i32, 1.5, "1.5, which is no integer"),
    (i32, float("nan"), "nan, which is no integer"),
    (i32, float("inf"), "inf, which is no integer"),
    (i32, 2**31, "2,147,483,648, which is not from -2,147,483,648 to 2,147,483,647"),
    (i32, 3e9, "3000000000.0, which is not from"),
    (u32, -2.0, "-2.0, which is not from 0"),
    (u64, 2.0**64, "which is not from 0"),
    (i64, 2.0**63, "which is not from"),
    (u64, 2**70, "which is not from 0"),
    (bool_, 2, "2, which is not from 0 to 1"),
    (f16, 1e6, "1000000.0, which is too large"),
    (f16, 70000, "70,000, which is too large"),
    (f32, 1e39, "1e+39, which is too large"),
    (bf16, 3.4e38 * 10, "which is too large"),
    (f32, "three", "'three', which is no number"),
]
GOOD: list[tuple[ElementType, Any]] = [
    (u8, 255),
    (i8, -128),
    (i32, 3.0),
    (i32, True),
    (u32, 2**32 - 1),
    (u64, 2**64 - 1),
    (i64, -(2**63)),
    (bool_, 1),
    (f16, 65504),
    (f16, float("inf")),
    (f16, float("nan")),
    (f16, 1e-9),
    (bf16, 3e38),
    (f32, 2**24 + 1),
]


@pytest.mark.parametrize(("type_", "value", "text"), BAD, ids=str)
def test_initial_value__that_does_not_fit__is_refused(type_: ElementType, value: Any, text: str) -> None:
    graph = Graph("bow-2000")
    made = (
        lambda: graph.variable(type_, (), "x", initial=value),
        lambda: graph.constant(type_, (), value, "x"),
        lambda: graph.addConstant(type_, [2], [0, value], "x"),
        lambda: graph.initialise(graph.variable(type_, (2,), "x"), np.array([0, value])),
        lambda: graph.setInitialValue(graph.variable(type_, (), "x"), value),
    )
    for make in made[: 2 if isinstance(value, str) else None]:
        with pytest.raises(TypeMismatchError) as caught:
            make()
        assert "'x'" in str(caught.value)
        assert text in str(caught.value)
        assert str(type_) in str(caught.value)


@pytest.mark.parametrize(("type_", "value"), GOOD, ids=str)
def test_initial_value__that_fits__is_taken(type_: ElementType, value: Any) -> None:
    stored = Graph("bow-2000").variable(type_, (), "x", initial=value).variables[0].initial
    assert stored is not None
    np.testing.assert_array_equal(stored, type_.np.type(value))


@pytest.mark.parametrize(("value", "text"), [(300, "300"), (1.5, "1.5"), (float("nan"), "nan"), (-1, "-1")])
def test_state__that_does_not_fit__is_refused(value: Any, text: str) -> None:
    @codelet
    class Keep(Vertex):
        y: Output[Vector[f32]]
        n: u8

        def compute(self):
            self.y[0] = f32(self.n)

    graph = Graph("bow-2000")
    y = graph.variable(f32, (2, 2), "y").map(0)
    step = graph.compute_set("keep")
    with pytest.raises(FieldOverflowError, match=rf"field Keep\.n is u8.*; it was given {text}"):
        step.vertices(Keep, tile=[0, 0], y=y, n=[1, value])


@codelet
class Both(Vertex):
    a: Output[Vector[f32]]
    b: InOut[Vector[f32]]

    def compute(self):
        self.a[0] = 1.0
        self.b[0] += 1.0


@codelet
class Rows(Vertex):
    rows: Vector[Output[Vector[f32]]]

    def compute(self):
        self.rows[0][0] = 1.0


def test_vertex__with_two_outputs_on_the_same_elements__is_refused() -> None:
    graph = Graph("bow-2000")
    x = graph.variable(f32, (4, 8), "x", initial=0.0).map(0)
    step = graph.compute_set("both")
    step.vertex(Both, tile=0, a=x[0], b=x[1])
    step.vertex(Both, tile=1, a=x[2, :5], b=x[2, 4:])
    with pytest.raises(DataRaceError) as caught:
        compile_program(graph, Execute(step))
    text = str(caught.value)
    assert "fields a and b of one Both both write elements [20:21) of variable 'x'" in text
    assert "x[2, 4]" in text
    assert "vertex 1 of 2 × Both on tile 1" in text
    assert "has both" in text


def test_vertex__with_two_rows_on_the_same_elements__is_refused() -> None:
    graph = Graph("bow-2000")
    x = graph.variable(f32, (8,), "x", initial=0.0).map(0)
    step = graph.compute_set("rows")
    step.vertex(Rows, tile=0, rows=[x[:4], x[3:]])
    with pytest.raises(DataRaceError, match=r"two rows of field rows of one Rows both write elements \[3:4\)"):
        compile_program(graph, Execute(step))


def test_vertex__that_reads_what_it_writes__is_taken() -> None:
    @codelet
    class Shift(Vertex):
        a: Output[Vector[f32]]
        b: InOut[Vector[f32]]

        def compute(self):
            self.a[0] = self.b[0]

    graph = Graph("bow-2000")
    x = graph.variable(f32, (8,), "x", initial=3.0).map(0)
    step = graph.compute_set("shift")
    step.vertex(Shift, tile=0, a=x[:4], b=x[4:])
    with Engine(graph, Execute(step)) as engine:
        assert engine.run()


def test_program__added_to_itself__is_refused_at_once() -> None:
    program = Sequence()
    with pytest.raises(GraphRecursionError, match=r"Sequence\(0 steps\) is added to itself"):
        program.add(program)
    with pytest.raises(GraphRecursionError, match="Repeat"):
        program += program


@pytest.mark.parametrize("around", ["sequence", "repeat", "if", "switch"])
def test_program__added_to_itself_through_others__is_refused(around: str) -> None:
    graph = Graph("bow-2000")
    flag = graph.variable(i32, (), "flag", initial=0).map(0)
    program = Sequence()
    inner: Any = {
        "sequence": lambda: Sequence(Sequence(program)),
        "repeat": lambda: Repeat(3, program),
        "if": lambda: If(flag, Sequence(), program),
        "switch": lambda: Switch(flag, {1: program}),
    }[around]()
    program.add(inner)
    with pytest.raises(GraphRecursionError, match="is inside itself") as caught:
        Engine(graph, program)
    assert "write a loop" in str(caught.value)


def test_program__used_twice__is_taken() -> None:
    graph = Graph("bow-2000")
    x, y = (graph.variable(f32, (4,), name, initial=1.0).map(0) for name in "xy")
    copy = Sequence(Copy(x, y))
    with Engine(graph, Sequence(copy, Repeat(2, copy), copy)) as engine:
        assert engine.run()


def test_program__nested_beyond_reason__is_refused_with_its_depth() -> None:
    graph = Graph("bow-2000")
    x, y = (graph.variable(f32, (4,), name, initial=1.0).map(0) for name in "xy")
    program: Any = Copy(x, y)
    for _ in range(5000):
        program = Sequence(program)
    with pytest.raises(GraphRecursionError, match=r"nested 5,001 deep, at most 120"):
        Engine(graph, program)


def test_constant__of_poplar_that_is_not_mapped__is_refused() -> None:
    graph = Graph("bow-2000")
    one = graph.addConstant(f32, [4], 1.0, "one")
    y = graph.variable(f32, (4,), "y").map(0)
    with pytest.raises(TileMappingError, match=r"constant 'one' \(f32\[4\], 4 elements\) is mapped to no tile"):
        compile_program(graph, Copy(one, y))
    graph.setTileMapping(one, 1)
    compile_program(graph, Copy(one, y))
