"""The check for bounds: native code that leaves no field, and errors with the line."""

from __future__ import annotations

import re

import numpy as np
import pytest

from abele.codelet import InOut, Input, MultiVertex, Vector, Vertex, codelet
from abele.errors import CodeletAccessError
from abele.graph import Execute, Graph, Repeat
from abele.numerics import f32, i32
from abele.runtime import Checks, Engine


@codelet
class Step(Vertex):
    """Walks on in two vectors, one element each time."""

    x: InOut[Vector[f32]]
    rows: Vector[Input[Vector[f32]]]
    at: i32
    seen: Vector[i32]

    def compute(self):
        self.seen[0] += 1
        self.x[0] += 1.0
        value = self.rows[0][0]
        self.x[self.at] = value + f32(self.seen[0])
        self.at += 1


def walking(replicas: int = 1) -> tuple[Graph, Repeat]:
    graph = Graph("bow-2000", replicas=replicas)
    x = graph.variable(f32, (3, 6), "x", initial=0.0).map_rows([4, 5, 6])
    row = graph.variable(f32, (4,), "row", initial=0.5).map(0)
    compute_set = graph.compute_set("walk")
    rows = [[row[:2], row[2:]]] * 3
    compute_set.vertices(Step, tile=[4, 5, 6], x=x, rows=rows, at=[1, 4, 2], seen=[[0]] * 3)
    return graph, Repeat(3, Execute(compute_set))


@pytest.mark.parametrize("replicas", [1, 2])
def test_bounds__vertex_that_leaves_a_field_later__is_named_as_it_was_then(replicas: int) -> None:
    graph, program = walking(replicas)
    with Engine(graph, program, checks="bounds") as engine:
        with pytest.raises(CodeletAccessError) as caught:
            engine.run()
        text = str(caught.value)
        assert "write of Step.x[6], which has 6 elements" in text
        assert re.search(r"vertex 1 of 3 × Step on tile 5", text)
        assert re.search(rf"at +{re.escape(__file__)}:\d+", text)
        assert "compute set 'walk', made at" in text
        np.testing.assert_array_equal(engine["x"].reshape(replicas, 3, 6)[0, 2, 2:4], [1.5, 2.5])


def test_bounds__right_program__gives_the_values_of_an_unchecked_run() -> None:
    graph, program = walking()
    graph_values = []
    for checks in (None, Checks(bounds=True), Checks(inputs=True)):
        with Engine(graph, Execute(program.body.compute_set), checks=checks, threads=1) as engine:
            engine.run()
            engine.run()
            graph_values.append(engine["x"])
    np.testing.assert_array_equal(graph_values[0], graph_values[1])
    np.testing.assert_array_equal(graph_values[0], graph_values[2])


def test_bounds__worker_of_a_multi_vertex__is_found() -> None:
    @codelet
    class Spread(MultiVertex):
        x: InOut[Vector[f32]]

        def compute(self, worker_id):
            self.x[worker_id] = 1.0

    graph = Graph("bow-2000")
    x = graph.variable(f32, 5, "x", initial=0.0).map(0)
    compute_set = graph.compute_set()
    compute_set.vertex(Spread, tile=0, x=x)
    with (
        Engine(graph, Execute(compute_set), checks="bounds") as engine,
        pytest.raises(CodeletAccessError, match=r"write of Spread\.x\[5\], which has 5 elements"),
    ):
        engine.run()
