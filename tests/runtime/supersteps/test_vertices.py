"""Vertices on real data: every kind of field, gathered and in place, native and as plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.codelet import InOut, Input, MultiVertex, Output, Vector, Vertex, codelet
from abele.errors import CodeletAccessError
from abele.graph import Copy, Execute, Graph, Repeat, Sequence, concat, shared
from abele.numerics import f32, i32
from abele.runtime import Engine
from support.vertices import OutOfRange, Saxpy


@codelet
class Sums(Vertex):
    rows: Vector[Input[Vector[f32]]]
    scale: Input[f32]
    sums: Output[Vector[f32]]

    def compute(self):
        for r in range(len(self.rows)):
            total = f32(0)
            for i in range(len(self.rows[r])):
                total += self.rows[r][i]
            self.sums[r] = total * self.scale


@codelet
class Counter(Vertex):
    out: Output[i32]
    count: i32

    def compute(self):
        self.count += 1
        self.out = self.count


@codelet
class Strided(MultiVertex):
    x: InOut[Vector[f32]]

    def compute(self, worker_id):
        for i in range(worker_id, len(self.x), 6):
            self.x[i] += 1.0 * worker_id


@codelet
class Collatz(Vertex):
    n: InOut[i32]
    steps: Output[i32]

    def compute(self):
        value = self.n
        steps = 0
        while value != 1:
            if value % 2 == 0:  # noqa: SIM108
                value = value // 2
            else:
                value = 3 * value + 1
            steps += 1
        self.steps = steps


BOTH = pytest.mark.parametrize(
    "options", [{"threads": 1}, {"threads": 2}, {"debug": True}], ids=["one", "two", "debug"]
)


@BOTH
def test_vertices__contiguous_rows__are_read_and_written_in_place(options):
    graph = Graph("bow-2000")
    x, y = (graph.variable(f32, (6, 10), name).map_rows(range(6)) for name in "xy")
    step = graph.compute_set("saxpy")
    step.vertices(Saxpy, tile=range(6), x=x, y=y, a=np.arange(6))
    with Engine(graph, Repeat(3, Execute(step)), mode="tiles", **options) as engine:
        engine["x"] = values = np.arange(60, dtype=np.float32).reshape(6, 10)
        engine["y"] = 1.0
        engine.run()
        np.testing.assert_array_equal(engine["y"], 1 + 3 * np.arange(6)[:, None] * values)


@BOTH
def test_vertices__regions_in_several_pieces__are_gathered_and_scattered(options):
    graph = Graph("bow-2000")
    x, y = (graph.variable(f32, (10, 6), name).map(0) for name in "xy")
    other = graph.variable(f32, (6,), "other").map(1)
    step = graph.compute_set("saxpy")
    step.vertices(Saxpy, tile=range(6), x=x.T, y=concat([y.T[:, :9], other.expand_dims(1)], 1), a=2.0)
    with Engine(graph, Execute(step), mode="tiles", **options) as engine:
        engine["x"] = values = np.arange(60, dtype=np.float32).reshape(10, 6)
        engine["y"] = 1.0
        engine["other"] = 5.0
        engine.run()
        np.testing.assert_array_equal(engine["y"], np.r_[1 + 2 * values[:9], np.ones((1, 6))])
        np.testing.assert_array_equal(engine["other"], 5 + 2 * values[9])


@BOTH
def test_vertices__vector_of_vectors_and_scalars__see_ragged_rows(options):
    graph = Graph("bow-2000")
    x = graph.variable(f32, (12,), "x").map(0)
    sums = graph.variable(f32, (3,), "sums").map(0)
    scale = graph.variable(f32, (2,), "scale", initial=[1, 10]).map(0)
    step = graph.compute_set("sums")
    rows = [[x[:5], concat([x[5:7], x[:2]])], [x[::3]]]
    step.vertices(Sums, tile=[0, 1], rows=rows, scale=scale, sums=[sums[:2], sums[2:]])
    with Engine(graph, Execute(step), mode="tiles", **options) as engine:
        engine["x"] = np.arange(12)
        engine.run()
        np.testing.assert_array_equal(engine["sums"], [10, 5 + 6 + 0 + 1, 10 * (0 + 3 + 6 + 9)])


@BOTH
def test_vertices__state__persists_from_run_to_run_until_load(options):
    graph = Graph("bow-2000")
    out = graph.variable(i32, (4,), "out").map(0)
    step = graph.compute_set("count")
    step.vertices(Counter, tile=[0] * 4, out=out, count=[0, 10, 20, 30])
    with Engine(graph, Repeat(2, Execute(step)), mode="tiles", **options) as engine:
        engine.run()
        engine.run()
        np.testing.assert_array_equal(engine["out"], [4, 14, 24, 34])
        engine.load()
        engine.run()
        np.testing.assert_array_equal(engine["out"], [2, 12, 22, 32])


@BOTH
def test_vertices__of_all_workers__run_every_worker(options):
    graph = Graph("bow-2000")
    x = graph.variable(f32, (2, 20), "x", initial=0.0).map_rows([0, 1])
    step = graph.compute_set("multi")
    step.vertices(Strided, tile=[0, 1], x=x)
    with Engine(graph, Execute(step), mode="tiles", **options) as engine:
        engine.run()
        np.testing.assert_array_equal(engine["x"], np.tile(np.arange(20) % 6, (2, 1)))


def test_vertices__whose_cost_depends_on_data__are_counted_as_they_run():
    graph = Graph("bow-2000")
    n = graph.variable(i32, (3,), "n", initial=[1, 6, 27]).map(0)
    steps = graph.variable(i32, (3,), "steps").map(0)
    step = graph.compute_set("collatz")
    step.vertices(Collatz, tile=[0, 0, 0], n=n, steps=steps)
    with Engine(graph, Execute(step), mode="tiles", threads=2) as engine:
        assumed = engine.report.cycles().compute
        engine.run()
        np.testing.assert_array_equal(engine["steps"], [0, 8, 111])
        counted = engine.report.cycles().compute
        engine.run()
        assert engine.report.cycles().compute == counted
    assert counted > max(assumed, 6 * 111)


def test_vertices__reading_out_of_range_in_debug_mode__are_named():
    graph = Graph("bow-2000")
    x = graph.variable(f32, (2, 3), "x", initial=0.0).map(0)
    y = graph.variable(f32, (2,), "y").map(0)
    step = graph.compute_set("wrong")
    step.vertices(OutOfRange, tile=[7, 8], x=x, y=y)
    with Engine(graph, Execute(step), debug=True) as engine, pytest.raises(CodeletAccessError) as caught:
        engine.run()
    text = str(caught.value)
    assert "OutOfRange" in text
    assert "x" in text
    assert "3" in text
    assert "tile 7" in text
    assert "compute set 'wrong'" in text
    assert "test_vertices.py" in text


def test_report__after_runs__has_their_times_and_mode():
    graph = Graph("bow-2000")
    x = graph.variable(f32, (4,), "x").map(0)
    with Engine(graph, {"step": Copy(x, x[::-1])}, mode="tiles", threads=2) as engine:
        engine.run(name="first")
        engine.run()
        runs = engine.report.runs
    assert list(runs["name"]) == ["first", "step"]
    assert list(runs["mode"]) == ["tiles", "tiles"]
    assert list(runs["threads"]) == [2, 2]
    assert (runs["wall_seconds"] > 0).all()


@given(
    num=st.integers(1, 40),
    width=st.integers(1, 9),
    transposed=st.booleans(),
    shared_input=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_vertices__any_number_and_layout__have_the_same_bits_on_any_threads(num, width, transposed, shared_input, seed):
    rng = np.random.default_rng(seed)
    values = {name: rng.standard_normal((num, width)).astype(np.float32) for name in "xy"}
    results = []
    for threads in (1, 2, 3):
        graph = Graph("bow-2000")
        shape = (width, num) if transposed else (num, width)
        x, y = (graph.variable(f32, shape, name).map(0) for name in "xy")
        x_rows, y_rows = (x.T, y.T) if transposed else (x, y)
        step = graph.compute_set("saxpy")
        step.vertices(Saxpy, tile=np.arange(num), x=shared(x_rows[0]) if shared_input else x_rows, y=y_rows, a=0.3)
        with Engine(graph, Sequence(Execute(step), Execute(step)), mode="tiles", threads=threads) as engine:
            engine[x_rows], engine[y_rows] = values["x"], values["y"]
            engine.run()
            results.append(engine[y_rows])
    increment = np.float32(0.3) * (values["x"][:1] if shared_input else values["x"])
    np.testing.assert_allclose(results[0], values["y"] + 2 * increment, rtol=1e-5, atol=1e-6)
    assert all((r == results[0]).all() for r in results)


@codelet
class PrefixSum(Vertex):
    x: Input[Vector[f32]]
    y: Output[Vector[f32]]

    def compute(self):
        for i in range(1, len(self.x)):
            self.y[i] = self.y[i - 1] + self.x[i]


def test_vertices__with_overlapping_fields__see_what_they_wrote():
    graph = Graph("bow-2000")
    x = graph.variable(f32, (3, 500), "x").map_rows([0, 1, 2])
    step = graph.compute_set("prefix")
    step.vertices(PrefixSum, tile=range(3), x=x, y=x)
    with Engine(graph, Execute(step), mode="tiles", threads=2) as engine:
        engine["x"] = 1.0
        engine.run()
        np.testing.assert_array_equal(engine["x"], np.tile(np.arange(1, 501), (3, 1)))
