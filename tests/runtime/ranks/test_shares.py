"""Programs whose replicas several processes share: threads stand for processes here."""

from __future__ import annotations

import numpy as np
import pytest

from abele.codelet import InOut, Vector, Vertex, codelet
from abele.errors import GraphReplicationError, RankDisagreementError, ReplicaDivergenceError
from abele.graph import CrossReplicaCopy, Execute, Graph, RepeatWhileTrue, Sequence
from abele.graph.control import AssumeEqualAcrossReplicas
from abele.machine import systems
from abele.numerics import f32, i32
from abele.poplibs import gcl
from abele.runtime import Engine
from support.thread_ranks import in_ranks


@codelet
class CountDown(Vertex):
    """One less."""

    x: InOut[Vector[i32]]

    def compute(self):
        for i in range(len(self.x)):
            self.x[i] -= 1


def _sums(size=37, replicas=4):
    graph = Graph("bow-2000", replicas=replicas)
    x = graph.variable(f32, (size,), "x").map_linear()
    body = Sequence()
    y = gcl.all_reduce_cross_replica(graph, x, "add", body)
    return graph, x, y, body


@pytest.mark.parametrize("mode", ["native", "tiles"])
@pytest.mark.parametrize("size", [2, 4])
def test_all_reduce__of_replicas_in_several_ranks__has_the_bits_of_one_process(mode, size):
    values = np.random.default_rng(0).standard_normal((4, 37)).astype("f4")

    def run(ranks=None):
        graph, x, y, body = _sums()
        own = values if ranks is None else values[ranks.rank * 4 // size : (ranks.rank + 1) * 4 // size]
        with Engine(graph, body, mode=mode, threads=1, keep=[x, y], ranks=ranks) as engine:
            engine[x] = own
            engine.run()
            engine.run()
            return engine[y]

    alone = run()
    assert np.concatenate(in_ranks(size, run)).tobytes() == alone.tobytes()


@pytest.mark.parametrize("size", [2, 4])
def test_cross_replica_copy__over_itself_by_any_permutation__moves_every_replica(size):
    way = {0: 2, 1: 1, 2: 3, 3: 0}

    def run(ranks):
        graph = Graph("bow-2000", replicas=4)
        x = graph.variable(f32, (4,), "x").map(0)
        with Engine(graph, CrossReplicaCopy(x[:3], x[1:], way), threads=1, ranks=ranks) as engine:
            first = ranks.rank * 4 // size if ranks else 0
            engine[x] = np.arange(16, dtype="f4").reshape(4, 4)[first : first + (4 // size if ranks else 4)]
            engine.run()
            return engine[x]

    assert np.concatenate(in_ranks(size, run)).tolist() == run(None).tolist()


def test_replica_index__in_ranks__counts_over_all_of_them():
    def run(ranks):
        graph = Graph("bow-2000", replicas=4)
        index = graph.replica_index()
        x = graph.variable("u32", (), "x").map(0)
        from abele.graph import Copy

        with Engine(graph, Copy(index, x), threads=1, ranks=ranks) as engine:
            engine.run()
            return engine[x].tolist()

    assert in_ranks(2, run) == [[0, 1], [2, 3]]


def test_loop__that_ranks_would_leave_at_different_trips__is_refused_in_all():
    def run(ranks):
        graph = Graph("bow-2000", replicas=2)
        x = graph.variable(i32, (1,), "x").map(0)
        compute_set = graph.compute_set()
        compute_set.vertex(CountDown, tile=0, x=x)
        loop = RepeatWhileTrue(Sequence(AssumeEqualAcrossReplicas(x[0])), x[0], Execute(compute_set))
        with Engine(graph, Sequence(AssumeEqualAcrossReplicas(x[0]), loop), threads=1, ranks=ranks) as engine:
            engine[x] = [[2 + ranks.rank]]
            engine.run()

    for error in in_ranks(2, run):
        assert isinstance(error, ReplicaDivergenceError)
        assert "replica 0: 0, replica 1: 1" in str(error)


def test_ranks__at_different_copies__are_told_where_each_is():
    def run(ranks):
        graph = Graph("bow-2000", replicas=2)
        x = graph.variable(f32, (4,), "x", initial=0.0).map(0)
        y = graph.variable(f32, (4,), "y", initial=0.0).map(0)
        programs = [CrossReplicaCopy(x, y, {0: 1, 1: 0}), CrossReplicaCopy(y, x, {0: 1, 1: 0})]
        with Engine(graph, programs, threads=1, ranks=ranks) as engine:
            engine.run(ranks.rank)

    first, second = in_ranks(2, run)
    assert isinstance(first, RankDisagreementError)
    assert "rank 1 is at" in str(first)
    assert "rank 0 is at" in str(second)


def test_replicas__that_do_not_divide_into_ranks__are_refused():
    def run(ranks):
        graph, _, _, body = _sums(replicas=2)
        Engine(graph, body, ranks=ranks)

    for error in in_ranks(4, run):
        assert isinstance(error, GraphReplicationError)
        assert "2 replicas cannot be shared by 4 ranks" in str(error)


def test_remote_buffer__of_a_replica_of_another_rank__is_refused():
    def run(ranks):
        graph = Graph("bow-2000", replicas=2)
        graph.remote_buffer("b", f32, 4, 1)
        with Engine(graph, Sequence(), ranks=ranks) as engine:
            engine.write_remote("b", 0, 1.0, ranks.rank)
            engine.write_remote("b", 0, 1.0, 1 - ranks.rank)

    assert all("executes it" in str(error) for error in in_ranks(2, run))


@pytest.mark.parametrize("method", ["bidirectional_ring_pair", "meet_in_middle_ring", "quad_directional_ring"])
@pytest.mark.parametrize("size", [2, 4])
def test_ranks__exchanges_of_several_copies__have_the_bits_of_one_process(method, size):
    def built():
        whole = systems.get("bow-pod16").with_ipus(8).evolve(ipu={"num_tiles": 3})
        graph, prog = Graph(whole, replicas=8), Sequence()
        x = graph.variable(f32, (101,), "x").map_linear()
        graph.expose(x, "x")
        out = gcl.all_reduce_cross_replica(graph, x, "add", prog, options={"method": method})
        turned = gcl.all_to_all_cross_replica(graph, out[:96].reshape((8, 12)), prog)
        for tensor, name in ((out, "out"), (turned, "turned")):
            graph.expose(tensor, name)
        return graph, prog

    values = np.random.default_rng(4).normal(size=(8, 101)).astype(np.float32)

    def work(ranks=None):
        with Engine(*built(), **({} if ranks is None else {"ranks": ranks})) as engine:
            each = 8 // (1 if ranks is None else size)
            first = 0 if ranks is None else ranks.rank * each
            engine["x"] = values[first : first + each]
            engine.run()
            return np.array(engine["out"]), np.array(engine["turned"])

    alone, found = work(), in_ranks(size, work)
    for n in range(2):
        np.testing.assert_array_equal(np.concatenate([shares[n] for shares in found]), alone[n])
