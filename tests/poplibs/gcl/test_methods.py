"""Methods of collectives: the moves themselves, and what they make of data, against NumPy."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from abele.graph import Graph, Sequence
from abele.machine import systems
from abele.poplibs import gcl
from abele.poplibs.gcl import CommGroup
from abele.poplibs.gcl.methods import METHODS, gather_steps, lanes_of, num_parts, scatter_steps
from abele.runtime import Engine
from support import sweeps

WAYS = [{"mode": "native"}, {"mode": "tiles"}, {"debug": True}]
SIZES = [2, 3, 4, 5, 7, 8, 16, 64]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("method", METHODS)
def test_scatter_steps__any_ring__bring_each_home_what_all_members_have(method, size):
    lanes = lanes_of(method, size)
    for part in range(num_parts(lanes)):
        # held[p][j]: members whose values are in the row that place p has for the place j further on.
        held = [[{p} for _ in range(size)] for p in range(size)]
        for step in scatter_steps(lanes, size):
            sent = [(m, [set(held[p][m.sent]) for p in range(size)]) for m in step if m.part == part]
            for m, values in sent:
                assert (m.sent - m.received) % size == m.way % size
                for p in range(size):
                    arriving, into = values[p], held[(p + m.way) % size][m.received]
                    assert not arriving & into, "a value is added twice"
                    into |= arriving
        assert [len(held[p][0]) for p in range(size)] == [size] * size


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("method", METHODS)
def test_gather_steps__any_ring__bring_every_row_once(method, size):
    lanes = lanes_of(method, size)
    for part in range(num_parts(lanes)):
        held = [{0: p} for p in range(size)]
        for step in gather_steps(lanes, size):
            sent = [(m, [held[p][m.sent] for p in range(size)]) for m in step if m.part == part]
            for m, values in sent:
                for p in range(size):
                    there = held[(p + m.way) % size]
                    assert m.received not in there
                    there[m.received] = values[p]
        assert held == [{j: (p + j) % size for j in range(size)} for p in range(size)]


def test_meet_in_middle__half_the_steps():
    assert len(scatter_steps(lanes_of("meet_in_middle_ring", 16), 16)) == 8
    assert len(gather_steps(lanes_of("meet_in_middle_ring", 17), 17)) == 8
    assert len(gather_steps(lanes_of("bidirectional_ring_pair", 16), 16)) == 15


NUMPY = {"add": np.sum, "mul": np.prod, "max": np.max, "mean": np.mean}
GROUPS = [CommGroup(), CommGroup.consecutive(4), CommGroup.orthogonal(3), CommGroup.strided(2, 3)]


def check_collectives(cases, method, way):
    """All three collectives of each case's group and operator on 12 replicas, of a size that no group divides."""
    whole = systems.get("bow-pod16").with_ipus(12)
    graph, prog = Graph(replace(whole, ipu=replace(whole.ipu, num_tiles=3)), replicas=12), Sequence()
    values = np.random.default_rng(1).integers(1, 3, (12, 29)).astype("f4")
    x = graph.variable("f32", (29,), "x").map_linear()
    found = []
    for group, op in cases:
        options = {"method": method}
        total = gcl.all_reduce_cross_replica(graph, x, op, prog, group, options=options)
        part = gcl.reduce_scatter_cross_replica(graph, x, op, prog, group, options=options)
        gathered = gcl.all_gather_cross_replica(graph, part, prog, group, options=options)
        found.append((group, op, total, part, gathered))
    keep = [x, *(t for _, _, *tensors in found for t in tensors)]
    with Engine(graph, prog, keep=keep, **way) as engine:
        engine[x] = values
        engine.run()
        for group, op, total, part, gathered in found:
            for members in group.members(12):
                want = NUMPY[op](values[members], axis=0)
                same = np.broadcast_to(want, (len(members), 29))
                np.testing.assert_allclose(engine[total][members], same, rtol=1e-6)
                # Parts by rank are the result with padding behind it.
                np.testing.assert_allclose(engine[part][members].reshape(-1)[:29], want, rtol=1e-6)
                np.testing.assert_allclose(engine[gathered][members].reshape(len(members), -1)[:, :29], same, rtol=1e-6)


@pytest.mark.parametrize("way", [{"mode": "native"}, {"mode": "tiles"}], ids=str)
@pytest.mark.parametrize("method", [*METHODS, "auto"])
def test_collectives__every_method_and_group__equal_numpy(method, way):
    """Operators take turns with groups."""
    turn = [*METHODS, "auto"].index(method)
    ops = list(NUMPY)
    check_collectives([(group, ops[(turn + n) % len(ops)]) for n, group in enumerate(GROUPS)], method, way)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "op", "way"), sweeps.sampled(list(itertools.product([*METHODS, "auto"], NUMPY, WAYS)), 24), ids=str
)
def test_collectives__every_method_group_and_operator__equal_numpy(method, op, way):
    check_collectives([(group, op) for group in GROUPS], method, way)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("method", METHODS)
def test_all_reduce__rounding__is_the_same_in_all_replicas(method, dtype):
    whole = systems.get("bow-pod16")
    graph, prog = Graph(replace(whole, ipu=replace(whole.ipu, num_tiles=5)), replicas=16), Sequence()
    values = np.random.default_rng(2).normal(size=(16, 1001)).astype({"f32": "f4", "f16": "f2"}[dtype])
    x = graph.variable(dtype, (1001,), "x").map_linear()
    out = gcl.all_reduce_cross_replica(graph, x, "add", prog, options={"method": method})
    with Engine(graph, prog, keep=[x, out]) as engine:
        engine[x] = values
        engine.run()
        result = np.asarray(engine[out])
    assert (result == result[0]).all()
    exact = values.astype("f8").sum(0)
    np.testing.assert_allclose(result[0], exact, atol=1e-5 if dtype == "f32" else 0.03)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("ipus", "width"), [(2, 9), (4, 1), (6, 35)])
def test_within_replica__every_method__equals_numpy(method, ipus, width):
    whole = systems.get("bow-pod16").with_ipus(ipus)
    graph, prog = Graph(replace(whole, ipu=replace(whole.ipu, num_tiles=3))), Sequence()
    values = np.random.default_rng(3).integers(1, 9, (ipus, width)).astype("f4")
    x = graph.variable("f32", (ipus, width), "x").map_linear()
    out = gcl.all_reduce_within_replica(graph, x, "add", prog, options={"method": method})
    with Engine(graph, prog, keep=[x, out], mode="tiles") as engine:
        engine[x] = values
        engine.run()
        np.testing.assert_array_equal(engine[out], np.broadcast_to(values.sum(0), values.shape))
