"""Collectives between replicas, against NumPy on the values of all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from abele.compiler import compile_program
from abele.errors import (
    GraphReplicationError,
    InvalidOptionError,
    MachineError,
    TensorError,
    TypeMismatchError,
    UnsupportedOpError,
)
from abele.graph import Graph, Sequence
from abele.machine import systems
from abele.poplibs import gcl
from abele.poplibs.gcl import CommGroup
from abele.poplibs.gcl.methods import METHODS
from abele.runtime import Engine


def _graph(replicas, tiles=4):
    whole = systems.get("bow-pod16").with_ipus(replicas)
    return Graph(replace(whole, ipu=replace(whole.ipu, num_tiles=tiles)), replicas=replicas)


def _run(graph, x, values, prog, out, **way):
    with Engine(graph, prog, keep=[x, out], **(way or {"mode": "tiles"})) as engine:
        engine[x] = values if graph.replicas > 1 else values[0]
        engine.run()
        result = np.asarray(engine[out])
        return result if graph.replicas > 1 else result[None]


def _values(replicas, shape, dtype):
    rng = np.random.default_rng(0)
    if dtype == "bool":
        return rng.random((replicas, *shape)) < 0.7
    return rng.integers(1, 4, (replicas, *shape)).astype({"f32": "f4", "f16": "f2", "i32": "i4", "u32": "u4"}[dtype])


def _setup(replicas, shape, dtype, tiles=4):
    graph, values = _graph(replicas, tiles), _values(replicas, shape, dtype)
    return graph, graph.variable(dtype, shape, "x").map_linear(), values, Sequence()


def _by_group(group, replicas):
    for members in group.members(replicas):
        yield members.tolist()


GROUPS = [
    CommGroup.consecutive(2),
    CommGroup.orthogonal(2),
    CommGroup.orthogonal(4),
    CommGroup.none(),
    CommGroup.strided(2, 2),
]
NUMPY = {
    "add": lambda v: v.sum(0),
    "mean": lambda v: v.mean(0),
    "mul": lambda v: v.prod(0),
    "min": lambda v: v.min(0),
    "max": lambda v: v.max(0),
    "square_add": lambda v: (v**2).sum(0),
    "logical_and": lambda v: v.all(0),
    "logical_or": lambda v: v.any(0),
}


@pytest.mark.parametrize("replicas", [1, 2, 4, 16])
@pytest.mark.parametrize(("shape", "dtype"), [((1,), "f32"), ((7, 5), "f16"), ((33,), "i32")])
def test_all_reduce__any_size_and_type__equals_numpy(replicas, shape, dtype):
    graph, x, values, prog = _setup(replicas, shape, dtype)
    out = gcl.all_reduce_cross_replica(graph, x, "add", prog)
    np.testing.assert_array_equal(_run(graph, x, values, prog, out), np.broadcast_to(values.sum(0), values.shape))


@pytest.mark.parametrize("op", list(NUMPY))
def test_all_reduce__every_operator__equals_numpy(op):
    graph, x, values, prog = _setup(4, (9,), "bool" if op.startswith("logical") else "f32")
    gcl.all_reduce_cross_replica_in_place(graph, x, op, prog)
    expected = np.broadcast_to(NUMPY[op](values), values.shape)
    np.testing.assert_allclose(_run(graph, x, values, prog, x), expected, rtol=1e-6)


def test_all_reduce__local__keeps_each_replicas_own():
    graph, x, values, prog = _setup(4, (9,), "f32")
    out = gcl.all_reduce_cross_replica(graph, x, "local", prog)
    np.testing.assert_array_equal(_run(graph, x, values, prog, out), values)


@pytest.mark.parametrize("way", [{"mode": "native"}, {"debug": True}], ids=str)
@pytest.mark.parametrize(
    "group",
    [
        CommGroup.consecutive(2),
        CommGroup.orthogonal(2),
        CommGroup.orthogonal(4),
        CommGroup.none(),
        CommGroup.strided(2, 2),
    ],
    ids=lambda g: f"{g.kind}{g.size}",
)
def test_all_reduce__groups__stay_among_themselves(group, way):
    graph, x, values, prog = _setup(8, (11,), "f32")
    out = gcl.all_reduce_cross_replica(graph, x, "add", prog, group)
    expected = np.empty_like(values)
    for members in _by_group(group, 8):
        expected[members] = values[members].sum(0)
    np.testing.assert_array_equal(_run(graph, x, values, prog, out, **way), expected)


@pytest.mark.parametrize("method", METHODS)
def test_methods__all__give_the_same(method):
    graph, x, values, prog = _setup(4, (37,), "i32", tiles=64)
    out = gcl.all_reduce_cross_replica(graph, x, "add", prog, options={"method": method})
    own = gcl.reduce_scatter_cross_replica(graph, x, "add", prog, options={"method": method})
    both = gcl.all_gather_cross_replica(graph, own, prog, options={"method": method})
    np.testing.assert_array_equal(_run(graph, x, values, prog, out), np.broadcast_to(values.sum(0), values.shape))
    np.testing.assert_array_equal(
        _run(graph, x, values, prog, both).reshape(4, -1)[:, :37], np.broadcast_to(values.sum(0), values.shape)
    )


@pytest.mark.parametrize("op", ["add", "local"])
def test_reduce_scatter__each_rank__has_its_part(op):
    graph, x, values, prog = _setup(4, (10,), "i32")
    out = gcl.reduce_scatter_cross_replica(graph, x, op, prog)
    padded = np.pad(values, ((0, 0), (0, 2))).reshape(4, 4, 3)
    expected = padded.sum(0) if op == "add" else padded[range(4), range(4)]
    np.testing.assert_array_equal(_run(graph, x, values, prog, out), expected)


@pytest.mark.parametrize("group", [CommGroup(), CommGroup.orthogonal(2), CommGroup.consecutive(2)], ids=str)
def test_all_gather_and_all_to_all__groups__by_rank(group):
    size = group.members(4).shape[1]
    graph, x, values, prog = _setup(4, (size, 3), "u32")
    values[:] = np.arange(values.size).reshape(values.shape)
    gathered = gcl.all_gather_cross_replica(graph, x, prog, group)
    turned = gcl.all_to_all_cross_replica(graph, x, prog, group)
    wanted, turn = np.empty((4, size, size, 3)), np.empty_like(values)
    for members in _by_group(group, 4):
        wanted[members] = values[members]
        turn[members] = values[members].swapaxes(0, 1)
    np.testing.assert_array_equal(_run(graph, x, values, prog, gathered), wanted)
    np.testing.assert_array_equal(_run(graph, x, values, prog, turned), turn)


@pytest.mark.parametrize(("replicas", "root"), [(1, 0), (4, 0), (4, 3), (8, 5)])
def test_broadcast__any_root__reaches_all(replicas, root):
    graph, x, values, prog = _setup(replicas, (13,), "f32")
    out = gcl.broadcast_cross_replica(graph, x, prog, root=root)
    np.testing.assert_array_equal(_run(graph, x, values, prog, out), np.broadcast_to(values[root], values.shape))


@pytest.mark.parametrize("replicas", [2, 4, 16])
def test_all_reduce__large__takes_hardly_longer_than_its_ring(replicas):
    """2·(n−1)/n of the bytes cross each bundle, half of it each way: no ring is faster, and this is near it."""
    graph = Graph(systems.get("bow-pod16").with_ipus(replicas), replicas=replicas)
    x = graph.variable("f32", (1 << 24,), "x").map_linear()
    prog = Sequence()
    gcl.all_reduce_cross_replica_in_place(graph, x, "add", prog)
    links = graph.whole_system.ipu_links
    bundle = links.bundle_bytes_per_second(links.pair_links if replicas == 2 else links.rail_links)
    ways = 1 if replicas == 2 else 2
    bound = 2 * (replicas - 1) / replicas * (4 << 24) / bundle / ways * graph.system.ipu.clock_hz
    cycles = compile_program(graph, prog, allow_out_of_memory=True).report.cycles().total
    assert bound <= cycles <= 1.25 * bound


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda g, x, p: gcl.all_reduce_cross_replica(g, x, "ad", p), InvalidOptionError, "did you mean 'add'"),
        (lambda g, x, p: gcl.all_reduce_cross_replica(g, x, "mean", p), TypeMismatchError, "mean does not take i32"),
        (lambda g, x, p: gcl.all_reduce_cross_replica(g, x, "logical_or", p), TypeMismatchError, "does not take i32"),
        (
            lambda g, x, p: gcl.all_gather_cross_replica(g, x, p, CommGroup.consecutive(3)),
            GraphReplicationError,
            "4 is no multiple of 3",
        ),
        (lambda g, x, p: gcl.all_to_all_cross_replica(g, x, p), TensorError, "one row for each of the 4 replicas"),
        (lambda g, x, p: gcl.broadcast_cross_replica(g, x, p, root=4), TensorError, "no rank 4"),
        (
            lambda g, x, p: gcl.all_gather_cross_replica(g, x, p, options={"method": "meet_in_midle_ring"}),
            InvalidOptionError,
            "meet_in_middle_ring",
        ),
        (
            lambda g, x, p: gcl.all_reduce_cross_replica_to_destination(g, x, x[:2], "add", p),
            TensorError,
            "their shapes differ",
        ),
        (lambda g, x, p: gcl.all_gather_cross_replica(g, x, p, options={"methd": 1}), InvalidOptionError, "methd"),
    ],
)
def test_errors__name_what_is_wrong(make, kind, text):
    graph, x, _, prog = _setup(4, (6,), "i32")
    with pytest.raises(kind, match=text):
        make(graph, x, prog)


def test_all_reduce__replicas_of_two_ipus__equals_numpy():
    whole = systems.get("bow-pod16").with_ipus(8)
    graph = Graph(replace(whole, ipu=replace(whole.ipu, num_tiles=4)), replicas=4)
    values, prog = _values(4, (101,), "f32"), Sequence()
    x = graph.variable("f32", (101,), "x").map_linear()
    gcl.all_reduce_cross_replica_in_place(graph, x, "add", prog)
    np.testing.assert_array_equal(_run(graph, x, values, prog, x), np.broadcast_to(values.sum(0), values.shape))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"num_ipus": 128}, "cluster: all_reduce over groups of 128 replicas goes between racks, .* no gateway"),
        ({"ipu_links": {"rail_links": 0}}, "cluster: all_reduce over groups of 4 .*IpuLinks.rail_links is 0"),
        ({"ipu_links": {"link_bytes_per_second": 0}}, "cluster: .*IpuLinks.link_bytes_per_second is 0"),
    ],
)
def test_systems_whose_links_cannot_carry_it__are_refused_by_name(changes, text):
    system = systems.get("bow-2000").evolve(name="cluster", **changes)
    graph = Graph(system, replicas=system.num_ipus)
    x = graph.variable("f32", (8,), "x").map_linear()
    with pytest.raises(MachineError, match=f"(?s){text}"):
        gcl.all_reduce_cross_replica(graph, x, "add", Sequence())
    # Replicas that stay alone need no links.
    gcl.all_reduce_cross_replica(graph, x, "add", Sequence(), CommGroup.none())


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"link": "gw-link"}, InvalidOptionError, "link gw-link, but groups stay in a rack"),
        ({"topology": "rung-ring-4"}, InvalidOptionError, "for replicas of 4 IPUs, these have 1"),
        ({"useSynclessCollectives": "true"}, UnsupportedOpError, "without syncs are not offered"),
    ],
)
def test_options_that_choose_links__of_other_systems__are_refused(options, kind, text):
    graph, x, _, prog = _setup(4, (6,), "i32")
    with pytest.raises(kind, match=text):
        gcl.all_gather_cross_replica(graph, x, prog, options=options)
    fitting = {"link": "ipu-link", "topology": "peripheral-ring", "useSynclessCollectives": "false"}
    gcl.all_gather_cross_replica(graph, x, prog, options=fitting)


def test_link__between_racks__is_a_gateway_link():
    graph = Graph(systems.get("bow-pod256"), replicas=4)
    x = graph.variable("f32", (8,), "x").map(0)
    gcl.all_reduce_cross_replica(graph, x, "add", Sequence(), options={"link": "gw-link"})
    with pytest.raises(InvalidOptionError, match="go over several racks"):
        gcl.all_reduce_cross_replica(graph, x, "add", Sequence(), options={"link": "ipu-link"})


@pytest.mark.parametrize("collective", [gcl.all_reduce_cross_replica, gcl.all_gather_cross_replica])
def test_working_tensors__are_live_while_the_collective_runs(collective):
    graph, x, _, prog = _setup(4, (64,), "f32")
    if collective is gcl.all_reduce_cross_replica:
        collective(graph, x, "add", prog)
    else:
        collective(graph, x, prog)
    memory = compile_program(graph, prog).memory
    names = {graph.variables[v].name.rpartition("/")[2] for v in np.flatnonzero(memory.liveness.always_live)}
    assert not names & {"received", "gathered"}
