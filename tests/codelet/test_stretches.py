"""Loops of a known number of iterations in whole vectors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.codelet import InOut, Input, MultiVertex, Output, Vector, Vertex, codelet, compile_codelet
from abele.codelet.driver import value_module
from abele.codelet.sizes import Size, Sizes
from abele.codelet.tree import For, walk
from abele.codelet.vectors import LEAST_WIDTH, MOST_TOGETHER, most_held, stretches
from abele.graph import Execute, Graph, Sequence
from abele.graph.regions import boxes
from abele.llvm.cpus import cpu_named
from abele.llvm.host import code_for
from abele.numerics import f32, i32
from abele.runtime import Engine


@given(start=st.integers(-5, 50), count=st.integers(0, 400), lanes=st.sampled_from([4, 8, 16]))
def test_stretches__of_any_loop__do_every_iteration_in_whole_vectors(start, count, lanes):
    parts = list(stretches(start, start + count, lanes))
    done = [i for first, last, _ in parts for i in range(first, last)]
    assert sorted(set(done)) == list(range(start, start + count))
    assert len(done) < count + lanes
    for first, last, vectors in parts:
        if vectors is None:
            assert count < LEAST_WIDTH
        else:
            assert (last - first) % (vectors.width * vectors.together) == 0
            assert vectors.together <= MOST_TOGETHER
            assert vectors.width <= lanes


def test_stretches__a_row_of_92__is_five_vectors_and_one_that_overlaps():
    assert list(stretches(0, 92, 16)) == [(0, 80, (16, 1)), (76, 92, (16, 1))]
    assert list(stretches(0, 12, 16)) == [(0, 8, (8, 1)), (4, 12, (8, 1))]


@codelet
class Blur(MultiVertex):
    """Rows whose every element is new: iterations may be done again."""

    x: Vector[Input[Vector[f32]]]
    y: Vector[Output[Vector[f32]]]
    last: Output[Vector[i32]]

    def compute(self, worker_id):
        for r in range(worker_id, len(self.y), self.num_workers):
            x = self.x[r]
            y = self.y[r]
            for c in range(len(y)):
                total = x[c] + x[c + 2]
                y[c] = total * 0.25 + 0.5 * x[c + 1]


@codelet
class Wide(Vertex):
    """Six elements and a variable that all live to the end of an iteration."""

    a: Input[Vector[f32]]
    b: Input[Vector[f32]]
    c: Input[Vector[f32]]
    d: Input[Vector[f32]]
    e: Input[Vector[f32]]
    t: Output[Vector[f32]]
    u: Output[Vector[f32]]

    def compute(self):
        for i in range(len(self.t)):
            total = self.a[i] + self.b[i] + self.c[i] + self.d[i] + self.e[i]
            more = total * 0.5
            self.t[i] = total * more * self.a[i]
            self.u[i] = (self.b[i] * self.c[i] + self.d[i] * self.e[i]) * total * more


@pytest.mark.parametrize(("cpu", "together"), [("znver3", 2), ("znver4", 4), ("neoverse-n1", 4)])
def test_value_module__vectors_at_once__are_as_many_as_registers_hold(cpu, together):
    tree = compile_codelet(Wide.codelet).tree
    loop = next(s for s in walk(tree.body) if isinstance(s, For))
    assert most_held(loop.body) == 7
    with code_for(cpu_named(cpu)):
        text = value_module(Wide.codelet, tree, sizes=Sizes.of([Size(name, 512) for name in "abcdetu"]))
    assert f'!"llvm.loop.interleave.count", i32 {together}' in text


@codelet
class Running(MultiVertex):
    """Rows that are read and written, and a variable from iteration to iteration: each may be done once alone."""

    x: Vector[Input[Vector[f32]]]
    y: Vector[InOut[Vector[f32]]]
    last: Output[Vector[i32]]

    def compute(self, worker_id):
        for r in range(worker_id, len(self.y), self.num_workers):
            x = self.x[r]
            y = self.y[r]
            count = 0
            for c in range(len(y)):
                count = count + 1
                y[c] = y[c] + x[c + 1]
            self.last[r] = count


@pytest.mark.parametrize("width", [1, 3, 4, 7, 16, 23, 40])
def test_codelet__rows_of_any_length__as_one_element_after_the_other(width):
    tiles, height = 64, 3
    rows = np.random.default_rng(0).standard_normal((tiles * height, width + 2)).astype(np.float32)
    begin = np.random.default_rng(1).standard_normal((tiles * height, width)).astype(np.float32)
    for vertex in (Blur, Running):
        graph = Graph("bow-2000:1")
        x = graph.variable("f32", rows.shape, name="x").map_rows(np.repeat(np.arange(tiles), height))
        y = graph.variable("f32", begin.shape, name="y").map_rows(np.repeat(np.arange(tiles), height))
        last = graph.variable("i32", (tiles, height), name="last").map_rows(np.arange(tiles))
        step = graph.compute_set("step")
        step.vertices(
            vertex,
            tile=np.arange(tiles),
            x=_rows(x, tiles, height),
            y=_rows(y, tiles, height),
            last=last,
        )
        with Engine(graph, Sequence(Execute(step))) as engine:
            engine[x], engine[y] = rows, begin
            engine.run()
            if vertex is Blur:
                wanted = (rows[:, :-2] + rows[:, 2:]) * np.float32(0.25) + np.float32(0.5) * rows[:, 1:-1]
            else:
                wanted = begin + rows[:, 1:-1]
                assert (engine[last] == width).all()
            np.testing.assert_allclose(engine[y], wanted, rtol=1e-6, atol=1e-6)


def _rows(tensor, tiles, height):
    starts = np.stack([np.arange(tiles * height), np.zeros(tiles * height, np.int64)], axis=1)
    regions = boxes(tensor, starts, [1, tensor.shape[1]])
    return regions, np.arange(tiles * height), np.arange(tiles + 1) * height
