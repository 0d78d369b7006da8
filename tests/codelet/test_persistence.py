"""State that outlives an execution, and vertices shared by all workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import abele as ab
from abele.codelet import (
    InOut,
    Input,
    MultiVertex,
    Output,
    SupervisorVertex,
    Vector,
    Vertex,
    codelet,
    compile_codelet,
    interpret,
)
from abele.codelet.tables import build_tables
from abele.numerics import f16, f32, i32, u32

WAYS = [{"threads": 1}, {"threads": 2}, {"mode": "tiles"}, {"debug": True}]


@pytest.fixture(params=WAYS, ids=str)
def way(request: Any) -> dict[str, Any]:
    return request.param


@codelet
class Append(Vertex):
    """Writes one more element each time."""

    value: Input[f32]
    out: InOut[Vector[f32]]
    at: i32
    sums: Vector[f32]

    def compute(self):
        self.out[self.at] = self.value + f32(self.at)
        self.at = (self.at + 1) % i32(len(self.out))
        for i in range(len(self.sums)):
            self.sums[i] += self.value
        self.out[len(self.out) - 1] = self.sums[len(self.sums) - 1]


def test_state__of_scalars_and_vectors__persists_between_executions_and_starts_anew_at_load(way: Any) -> None:
    graph = ab.Graph("bow")
    value = graph.variable(f32, (3,), "value", initial=[10, 20, 30]).map(0)
    out = graph.variable(f32, (3, 6), "out", initial=np.zeros((3, 6))).map_rows(range(3))
    step = graph.compute_set()
    step.vertices(Append, tile=range(3), value=value, out=out, at=[0, 1, 2], sums=[[0, 1], [0, 2], [0, 3]])
    engine = ab.Engine(graph, {"twice": ab.Repeat(2, ab.Execute(step)), "once": ab.Execute(step)}, **way)

    def expected(times: int) -> np.ndarray[Any, Any]:
        rows = np.zeros((3, 6), np.float32)
        for v in range(3):
            for k in range(times):
                rows[v, v + k] = 10 * (v + 1) + v + k
            rows[v, 5] = (v + 1) + times * 10 * (v + 1)
        return rows

    engine.run("twice")
    np.testing.assert_array_equal(engine["out"], expected(2))
    engine.run("once")
    np.testing.assert_array_equal(engine["out"], expected(3))
    engine.load()
    engine.run("once")
    np.testing.assert_array_equal(engine["out"], expected(1))


@codelet
class Histogram(MultiVertex):
    """Counts with one bin row for each worker, which they keep."""

    x: Input[Vector[u32]]
    bins: Vector[Output[Vector[u32]]]
    counts: Vector[u32]
    calls: u32

    def compute(self, worker_id):
        width = len(self.bins[0])
        for i in range(worker_id, len(self.x), self.num_workers):
            self.counts[worker_id * width + self.x[i]] += 1
        for b in range(width):
            self.bins[worker_id][b] = self.counts[worker_id * width + b]
        if worker_id == 5:
            self.calls += 1
            self.bins[5][width - 1] = self.calls


def test_multi_vertex__workers_with_rows_of_their_own__share_the_work_and_keep_their_state(way: Any) -> None:
    graph = ab.Graph("bow")
    values = np.random.default_rng(0).integers(0, 4, (2, 100), dtype=np.uint32)
    x = graph.variable(u32, values.shape, "x", initial=values).map_rows([3, 4])
    bins = graph.variable(u32, (2, 6, 5), "bins").map_rows([3, 4])
    step = graph.compute_set()
    step.vertices(Histogram, tile=[3, 4], x=x, bins=bins, counts=np.zeros(30), calls=0)
    engine = ab.Engine(graph, ab.Repeat(3, ab.Execute(step)), **way)
    engine.run()
    for v in range(2):
        for worker in range(6):
            once = np.bincount(values[v, worker::6], minlength=5)
            want = 3 * once
            if worker == 5:
                want[4] = 3
            assert engine["bins"][v, worker].tolist() == want.tolist()


def test_multi_vertex__one_worker_alone__does_its_share_only() -> None:
    @codelet
    class Mark(MultiVertex):
        y: InOut[Vector[f16]]

        def compute(self, worker_id):
            for i in range(worker_id, len(self.y), self.num_workers):
                self.y[i] = f16(worker_id) + 1.0

    y = np.zeros(20, np.float16)
    interpret(Mark.codelet, {"y": y}, worker=2)
    assert np.flatnonzero(y).tolist() == [2, 8, 14]
    interpret(Mark.codelet, {"y": y})
    native = np.zeros(20, np.float16)
    build_tables(Mark.codelet, [{"y": native}]).run(compile_codelet(Mark.codelet).run)
    assert native.tolist() == y.tolist() == [i % 6 + 1 for i in range(20)]


def test_multi_vertex__of_even_work__costs_a_sixth_of_the_slots_of_one_worker() -> None:
    @codelet
    class Alone(Vertex):
        y: InOut[Vector[f32]]

        def compute(self):
            for i in range(len(self.y)):
                self.y[i] += 1.0

    @codelet
    class Shared(MultiVertex):
        y: InOut[Vector[f32]]

        def compute(self, worker_id):
            for i in range(worker_id, len(self.y), self.num_workers):
                self.y[i] += 1.0

    def cost(cls: type) -> int:
        tables = build_tables(cls.codelet, [{"y": np.zeros(6000, np.float32)}])
        return int(tables.count(compile_codelet(cls.codelet).slots)[0])

    assert cost(Shared) == pytest.approx(cost(Alone) * 6 / 6, rel=0.01)  # tile cycles against slots of six cycles


@codelet
class Total(SupervisorVertex):
    x: Input[Vector[f32]]
    total: Output[f32]
    runs: i32

    def compute(self):
        total = 0.0
        for i in range(len(self.x)):
            total += self.x[i]
        self.runs += 1
        self.total = total * f32(self.runs)


def test_supervisor_vertex__runs_once_and_keeps_its_state(way: Any) -> None:
    graph = ab.Graph("bow")
    x = graph.variable(f32, (5,), "x", initial=np.arange(5)).map(1)
    total = graph.variable(f32, (), "total").map(1)
    step = graph.compute_set()
    step.vertex(Total, tile=1, x=x, total=total, runs=0)
    engine = ab.Engine(graph, ab.Repeat(4, ab.Execute(step)), **way)
    engine.run()
    assert float(engine["total"]) == 40.0


def test_state__of_replicas__is_their_own() -> None:
    graph = ab.Graph("bow-2000", replicas=2)
    x = graph.variable(f32, (), "x", initial=0.0).map(0)
    step = graph.compute_set()

    @codelet
    class Grow(Vertex):
        x: InOut[f32]
        a: f32

        def compute(self):
            self.a = self.a * 2.0 + self.x
            self.x = self.a

    step.vertex(Grow, tile=0, x=x, a=1.0)
    engine = ab.Engine(graph, ab.Repeat(2, ab.Execute(step)))
    engine["x"] = [0.0, 1.0]
    engine.run()
    assert engine["x"].tolist() == [6.0, 9.0]
