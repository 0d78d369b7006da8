"""Templates: variants of a codelet under names like Poplar's."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
import pytest
from both_ways import run

import abele as ab
from abele.codelet import InOut, Input, Vector, Vertex, codelet, template
from abele.errors import CodeletError, UnknownVertexTypeError
from abele.numerics import ElementType, f16, f32, u32


class Op(Enum):
    """Operation to do."""

    ADD = 0
    SUB = 1


@template
def Scale(kind: ElementType, factor: int = 2) -> type[Vertex]:
    """Multiplies by a number."""

    @codelet
    class Scale(Vertex):
        x: InOut[Vector[kind]]

        def compute(self):
            for i in range(len(self.x)):
                self.x[i] = self.x[i] * factor

    return Scale


@template
def Combine(op: Op, kind: ElementType, negate: bool) -> type[Vertex]:
    subtracts = op is Op.SUB

    @codelet
    class Combine(Vertex):
        x: Input[Vector[kind]]
        y: InOut[Vector[kind]]

        def compute(self):
            for i in range(len(self.x)):
                value = self.y[i] - self.x[i] if subtracts else self.y[i] + self.x[i]
                self.y[i] = -value if negate else value

    return Combine


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (lambda: Scale[f32], "Scale<float>"),
        (lambda: Scale[f16, 3], "Scale<half,3>"),
        (lambda: Scale(u32), "Scale<unsigned int>"),
        (lambda: Combine[Op.ADD, f32, False], "Combine<Op::ADD,float,false>"),
    ],
)
def test_template__variants__are_named_as_poplar_names_them(made: Any, name: str) -> None:
    assert made().codelet.name == name
    assert made() is made()
    assert made().codelet.file == __file__


@pytest.mark.parametrize("op", list(Op))
@pytest.mark.parametrize("negate", [False, True])
def test_template__arguments__are_constants_of_the_code(op: Op, negate: bool) -> None:
    got = run(Combine[op, f16, negate], x=[1, 2, 3], y=[10, 20, 30])["y"]
    want = np.array([9, 18, 27] if op is Op.SUB else [11, 22, 33])
    assert got.tolist() == (-want if negate else want).tolist()


def test_template__variants_in_a_graph__are_found_by_name() -> None:
    assert Scale[f32] in list(Scale)
    graph = ab.Graph("bow")
    graph.addCodelets(list(Scale))
    x = graph.variable(f32, (4,), "x", initial=np.arange(4)).map(0)
    step = graph.compute_set()
    step.vertex("Scale< float >", tile=0, x=x)
    engine = ab.Engine(graph, ab.Execute(step))
    engine.run()
    assert engine["x"].tolist() == [0, 2, 4, 6]
    with pytest.raises(UnknownVertexTypeError, match="Scale<int>"):
        step.vertex("Scale<int>", tile=0, x=x)


def test_template__of_no_class_or_with_an_argument_without_a_name__is_refused() -> None:
    with pytest.raises(CodeletError, match="template broken gave 3 for broken<float>"):
        _broken()[f32]
    with pytest.raises(CodeletError, match="template Scale cannot be given"):
        Scale(object())


def _broken() -> Any:
    @template
    def broken(kind: ElementType) -> Any:
        return 3

    return broken
