"""Replicas: memory, streams and control of several copies of one program."""

from __future__ import annotations

import numpy as np
import pytest

from abele.codelet import InOut, Input, Vector, Vertex, codelet
from abele.errors import ReplicaDivergenceError, TensorError
from abele.graph import Copy, CrossReplicaCopy, Execute, Graph, If, Repeat, RepeatWhileTrue, Sequence, Switch
from abele.kernels.nest.ir import HostKernel, load, nest, store
from abele.numerics import f32
from abele.runtime import Engine

REPLICAS = 4
WAYS = [
    *({"mode": mode, "threads": threads} for mode in ("native", "tiles") for threads in (1, 2)),
    {"debug": True, "threads": 2},
]
REST = [pytest.mark.slow, pytest.mark.rest]
"""Marks of ways of which plain runs have each mode and each number of threads already."""


@pytest.fixture(
    params=[pytest.param(way, marks=REST * (n in (1, 2))) for n, way in enumerate(WAYS)],
    ids=lambda way: "-".join(map(str, way.values())),
)
def way(request):
    return request.param


@codelet
class Mean(Vertex):
    """Adds rows into a running mean whose weight is the vertex's own."""

    rows: Vector[Input[Vector[f32]]]
    y: InOut[Vector[f32]]
    weights: Vector[f32]
    count: f32

    def compute(self):
        self.count += 1.0
        for r in range(len(self.rows)):
            for i in range(len(self.y)):
                self.y[i] += self.rows[r][i] * self.weights[r] / self.count


def _mean(x, y, times):
    for count in range(1, times + 1):
        for row, weight in zip(x, (0.5, 2.0), strict=True):
            y = y + row * np.float32(weight) / np.float32(count)
    return y


def test_vertices__of_all_kinds_of_fields__work_on_their_own_replica(way):
    graph = Graph("bow-2000", replicas=REPLICAS)
    x = graph.variable("f32", (2, 6), "x").map_rows([0, 1])
    y = graph.variable("f32", (3, 2), "y", initial=0.0).map_rows([2, 3, 4])
    compute_set = graph.compute_set()
    for n in range(3):
        # The columns of x lie scattered: each row of the edge is one piece, each y row another tile's.
        rows = [x[0, 2 * n : 2 * n + 2], x[1, n::3]]
        compute_set.vertex(Mean, tile=n, rows=rows, y=y[n], weights=[0.5, 2.0], count=0.0)
    values = np.random.default_rng(0).standard_normal((REPLICAS, 2, 6)).astype("f4")
    with Engine(graph, Repeat(3, Execute(compute_set)), **way) as engine:
        engine["x"] = values
        engine.run()
        for replica, own in enumerate(values):
            for n in range(3):
                expected = _mean([own[0, 2 * n : 2 * n + 2], own[1, n::3]], np.zeros(2, "f4"), 3)
                np.testing.assert_allclose(engine["y"][replica, n], expected, rtol=1e-5)


def test_streams__replicated_or_not__deal_out_or_share_items(way):
    graph = Graph("bow-2000", replicas=REPLICAS)
    own, same, out, first = (
        graph.host_stream_in("own", "f32", 3),
        graph.host_stream_in("same", "f32", 3, replicated=False),
        graph.host_stream_out("out", "f32", 3),
        graph.host_stream_out("first", "f32", 3, replicated=False),
    )
    x, y = (graph.variable("f32", 3, n).map(0) for n in "xy")
    body = Sequence(Copy(own, x), Copy(same, y), Copy(x, out), Copy(y, out), Copy(x, first))
    data = np.arange(2 * REPLICAS * 3, dtype="f4").reshape(2, REPLICAS, 3)
    shared = np.arange(6, dtype="f4").reshape(2, 3) + 100
    results, firsts = np.zeros((2, 2, REPLICAS, 3), "f4"), []
    with Engine(graph, Repeat(2, body), **way) as engine:
        engine.connect("own", iter(data.reshape(-1, 3)))
        engine.connect("same", shared)
        engine.connect("out", results)
        engine.connect("first", lambda values: firsts.append(values))
        engine.run()
        np.testing.assert_array_equal(results[:, 0], data)
        np.testing.assert_array_equal(results[:, 1], np.broadcast_to(shared[:, None], data.shape))
        np.testing.assert_array_equal(firsts, data[:, 0])
        np.testing.assert_array_equal(engine["x"], data[1])


@codelet
class Axpy(Vertex):
    x: Input[Vector[f32]]
    y: InOut[Vector[f32]]

    def compute(self):
        for i in range(len(self.y)):
            self.y[i] = 2.0 * self.x[i] + self.y[i]


def _axpy(graph: Graph, prog: Sequence, x, y) -> None:
    """y = 2 x + y as a library call; y is in place."""
    nests = (nest({"i": x.size}, store(2, ("i",), load(0, "i") * 2.0 + load(1, "i"))),)
    kernel = HostKernel(((x.size,),) * 3, (f32,) * 3, 2, 1, nests)
    with graph.library_call(prog, "axpy", inputs=(x, y), outputs=(y,), kernel=kernel) as body:
        compute_set = graph.compute_set("axpy")
        compute_set.vertex(Axpy, tile=0, x=x, y=y)
        body.add(Execute(compute_set))


def test_kernels__of_fused_calls_and_streams__run_once_a_replica(way):
    size = 64
    graph = Graph("bow-2000", replicas=REPLICAS)
    own, same, out = (
        graph.host_stream_in("own", "f32", size),
        graph.host_stream_in("same", "f32", size, replicated=False),
        graph.host_stream_out("out", "f32", size),
    )
    x, y, s, hidden = (graph.variable("f32", size, n, initial=0.0 if n == "y" else None).map(0) for n in "xysh")
    body = Sequence(Copy(own, x), Copy(same, s), Copy(x, hidden))
    _axpy(graph, body, s, hidden)
    _axpy(graph, body, hidden, y)
    body.add(Copy(y, out))
    rng = np.random.default_rng(2)
    data = rng.integers(0, 9, (3, REPLICAS, size)).astype("f4")
    shared = rng.integers(0, 9, (3, size)).astype("f4")
    results = np.zeros_like(data)
    with Engine(graph, Repeat(3, body), **way) as engine:
        engine.connect("own", data)
        engine.connect("same", iter(shared))
        engine.connect("out", results)
        engine.run()
        expected = np.cumsum(2 * (2 * shared[:, None] + data), axis=0)
        np.testing.assert_array_equal(results, expected)
        np.testing.assert_array_equal(engine["y"], expected[-1])


def test_cross_replica_copy__permutes_even_onto_what_it_reads(way):
    graph = Graph("bow-2000", replicas=REPLICAS)
    x = graph.variable("i32", (2, 3), "x").map(0)
    turn = {0: 2, 1: 0, 2: 3, 3: 1}
    values = np.arange(REPLICAS * 6, dtype=np.int32).reshape(REPLICAS, 2, 3)
    with Engine(graph, CrossReplicaCopy(x[0], x[1].reverse(0), turn), **way) as engine:
        engine["x"] = values
        engine.run()
        expected = values.copy()
        for source, target in turn.items():
            expected[target, 1] = values[source, 0, ::-1]
        np.testing.assert_array_equal(engine["x"], expected)
    with Engine(graph, CrossReplicaCopy(x, x, turn), **way) as engine:
        engine["x"] = values
        engine.run()
        np.testing.assert_array_equal(engine["x"], values[[1, 3, 0, 2]])


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda p, a, b: If(p, a, b), "If"),
        (lambda p, a, b: Switch(p, {1: a, 2: b}), "Switch"),
        (lambda p, a, b: RepeatWhileTrue(Sequence(), p, a), "RepeatWhile"),
    ],
)
def test_control__on_what_replicas_disagree_about__ends_the_run(way, make, kind):
    graph = Graph("bow-2000", replicas=REPLICAS)
    p, a, b = (graph.variable("i32", (), n, initial=0).map(0) for n in "pab")
    one = graph.constant("i32", (), 1)
    program = make(p, Sequence(Copy(one, a), Copy(b, p)), Copy(one, b))
    with Engine(graph, program, **way) as engine:
        engine.run()
        engine["p"] = [1, 0, 1, 1]
        with pytest.raises(ReplicaDivergenceError, match=f"the replicas disagree about .*'p'.*steers a {kind}") as e:
            engine.run()
        assert e.value.because == "replica 0: 1, replica 1: 0, replica 2: 1, replica 3: 1"
        assert not engine["a"].any()
        engine["p"] = 1
        engine.run()
        assert engine["a"].tolist() == [1, 1, 1, 1]


def test_if__on_different_true_values__is_no_disagreement():
    graph = Graph("bow-2000", replicas=2)
    p, a = (graph.variable("i32", (), n, initial=0).map(0) for n in "pa")
    with Engine(graph, If(p, Copy(p, a))) as engine:
        engine["p"] = [1, 2]
        engine.run()
        assert engine["a"].tolist() == [1, 2]


def test_host_access__writes_one_for_all_or_each_its_own(way):
    graph = Graph("bow-2000", replicas=REPLICAS)
    x = graph.variable("f32", (2, 2), "x").map(0)
    with Engine(graph, Sequence(Copy(x, x)), **way) as engine:
        engine["x"] = [[1, 2], [3, 4]]
        assert engine["x"].tolist() == [[[1, 2], [3, 4]]] * REPLICAS
        engine["x"] = np.arange(REPLICAS * 4).reshape(REPLICAS, 2, 2)
        assert engine[x[1, 0]].tolist() == [2, 6, 10, 14]
        engine[x[0]] = 5
        assert (engine["x"][:, 0] == 5).all()
        with pytest.raises(
            TensorError, match=r"shape \[2, 2\], or \[4, 2, 2\] for all replicas, it was given \[3, 2, 2\]"
        ):
            engine["x"] = np.zeros((3, 2, 2))


def test_replica_index__holds_the_number_of_the_replica(way):
    graph = Graph("bow-2000", replicas=REPLICAS)
    index, out = graph.replica_index(), graph.variable("u32", (), "out").map(0)
    with Engine(graph, Copy(index, out), **way) as engine:
        engine.run()
        assert engine["out"].tolist() == [0, 1, 2, 3]
        engine.load()
        assert engine[index].tolist() == [0, 1, 2, 3]
