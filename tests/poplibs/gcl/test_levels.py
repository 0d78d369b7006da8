"""Collectives over racks: levels, the order on rings, and what links say of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from abele.compiler import compile_program
from abele.graph import Graph, Sequence
from abele.machine import systems
from abele.machine.routes import link_seconds
from abele.poplibs import gcl
from abele.poplibs.gcl import CommGroup
from abele.poplibs.gcl.levels import levels_of
from abele.poplibs.gcl.methods import METHODS
from abele.poplibs.gcl.order import hops, ring_order
from abele.poplibs.gcl.pairwise import Pairwise
from abele.runtime import Engine


def small_racks(num_ipus=12, per_rack=4, tiles=3):
    """Racks of four IPUs, so that what Pods of 128 IPUs and more do can be run."""
    return systems.get("bow-pod256").evolve(
        num_ipus=num_ipus, ipu={"num_tiles": tiles}, ipu_links={"ipus_per_rack": per_rack, "topology": "ladder"},
        gateway={"ipus_per_machine": 2},
    )  # fmt: skip


GROUPS = [CommGroup(), CommGroup.consecutive(6), CommGroup.orthogonal(3), CommGroup.orthogonal(6)]


@pytest.mark.parametrize(
    ("method", "way"),
    [("auto", {"mode": "tiles"}), ("bidirectional_ring_pair", {"mode": "native"}), ("meet_in_middle_ring", {})],
)
@pytest.mark.parametrize("group", GROUPS, ids=lambda g: f"{g.kind}{g.size}")
def test_collectives__over_racks__equal_numpy(group, method, way):
    graph, prog = Graph(small_racks(), replicas=12), Sequence()
    values = np.random.default_rng(1).integers(-4, 5, (12, 41)).astype("f4")
    x = graph.variable("f32", (41,), "x").map_linear()
    options = {"method": method}
    total = gcl.all_reduce_cross_replica(graph, x, "mean", prog, group, options=options)
    part = gcl.reduce_scatter_cross_replica(graph, x, "add", prog, group, options=options)
    whole = gcl.all_gather_cross_replica(graph, x, prog, group, options=options)
    turned = gcl.all_to_all_cross_replica(graph, whole, prog, group, options=options)
    with Engine(graph, prog, keep=[x, total, part, whole, turned], **way) as engine:
        engine[x] = values
        engine.run()
        for members in group.members(12):
            size = len(members)
            padded = np.zeros(size * part.size, "f4")
            padded[:41] = values[members].sum(0)
            np.testing.assert_array_equal(engine[part][members], padded.reshape(size, -1))
            np.testing.assert_array_equal(engine[whole][members], np.broadcast_to(values[members], (size, size, 41)))
            # Every replica has the rows of all: row r of all replicas of the group is that of rank r.
            expected = np.broadcast_to(values[members][:, None], (size, size, 41))
            np.testing.assert_array_equal(engine[turned][members], expected)
            np.testing.assert_allclose(
                engine[total][members], np.broadcast_to(values[members].mean(0), (size, 41)), rtol=1e-6
            )


def test_levels__groups_over_racks__reduce_within_before_they_go_between():
    graph = Graph(systems.get("bow-pod256"), replicas=256)
    x = graph.variable("f32", (1 << 20,), "x").map_linear()
    plan = gcl.explain_all_reduce(graph, x)
    assert [level.ring.size for level in plan.levels] == [64, 4]
    assert plan.levels[0].ring.members[1].tolist() == list(range(64, 128))
    assert plan.levels[1].ring.members[5].tolist() == [5, 69, 133, 197]
    assert "64 replicas within racks, then " in str(plan)
    # One replica in each rack has nothing to reduce within, and groups in a rack nothing between.
    for group, sizes in ((CommGroup.orthogonal(4), [4]), (CommGroup.consecutive(32), [32])):
        assert [level.ring.size for level in gcl.explain_all_reduce(graph, x, group).levels] == sizes


def test_levels__replicas_of_several_ipus__share_the_links_of_their_rack():
    graph = Graph(systems.get("bow-pod256:128"), replicas=16)
    x = graph.variable("f32", (1 << 16,), "x").map_linear()
    plan = gcl.explain_all_reduce(graph, x)
    assert [level.ring.members.tolist()[0] for level in plan.levels] == [list(range(8)), [0, 8]]


@pytest.mark.parametrize(
    ("num_bytes", "method"), [(1 << 10, "meet_in_middle_ring"), (1 << 28, "bidirectional_ring_pair")]
)
def test_auto__small_and_large__takes_fewest_steps_or_fewest_bytes(num_bytes, method):
    graph = Graph(systems.get("bow-pod64"), replicas=64)
    x = graph.variable("f32", (num_bytes // 4,), "x").map_linear()
    plan = levels_of(graph, CommGroup(), "auto", num_bytes)
    assert [level.method for level in plan.levels] == [method]
    # Swaps two by two take fewer steps still; a ring sends fewer bytes.
    assert isinstance(gcl.explain_all_reduce(graph, x), Pairwise) == (num_bytes < 1 << 20)


@pytest.mark.parametrize(
    ("replicas", "group"),
    [(2, CommGroup()), (8, CommGroup()), (8, CommGroup.orthogonal(4)), (12, CommGroup.consecutive(2))],
    ids=str,
)
@pytest.mark.parametrize("op", ["add", "mean", "mul", "square_add"])
def test_swaps__sums_that_depend_on_their_order__are_the_same_bits_on_all_replicas(replicas, group, op):
    graph, prog = Graph(small_racks(num_ipus=replicas, per_rack=12), replicas=replicas), Sequence()
    values = np.random.default_rng(0).standard_normal((replicas, 29)).astype("f4")
    x = graph.variable("f32", (29,), "x").map_linear()
    plan = gcl.explain_all_reduce(graph, x, group)
    assert isinstance(plan, Pairwise)
    assert str(plan).startswith(f"swaps of {plan.size} replicas; estimated ")
    total = gcl.all_reduce_cross_replica(graph, x, op, prog, group)
    gcl.all_reduce_cross_replica_in_place(graph, x, op, prog, group)
    with Engine(graph, prog, keep=[x, total]) as engine:
        engine[x] = values
        engine.run()
        out, in_place = np.asarray(engine[total]), np.asarray(engine[x])
    exact = {"add": np.sum, "mean": np.mean, "mul": np.prod, "square_add": lambda v, axis: (v**2).sum(axis)}[op]
    np.testing.assert_array_equal(out.view("u4"), in_place.view("u4"))
    for members in group.members(replicas):
        assert (out[members].view("u4") == out[members[0]].view("u4")).all()
        np.testing.assert_allclose(out[members[0]], exact(values[members].astype("f8"), axis=0), rtol=1e-5, atol=1e-6)


def test_swaps__two_replicas__take_one_exchange_and_one_superstep():
    graph, prog = Graph(systems.get("bow-pod16"), replicas=2), Sequence()
    x = graph.variable("f32", (1000,), "x").map_linear()
    gcl.all_reduce_cross_replica_in_place(graph, x, "add", prog)
    assert [str(kind) for kind in compile_program(graph, prog).report.steps["kind"]] == ["exchange", "compute"]


@pytest.mark.parametrize("num_bytes", [1 << 10, 1 << 20])
def test_auto__against_every_method__is_the_fastest_that_the_compiler_finds(num_bytes):
    cycles = {}
    for method in ("auto", *METHODS):
        graph, prog = Graph(systems.get("bow-pod16"), replicas=16), Sequence()
        x = graph.variable("f32", (num_bytes // 4,), "x").map_linear()
        gcl.all_reduce_cross_replica_in_place(graph, x, "add", prog, options={"method": method})
        cycles[method] = compile_program(graph, prog).report.cycles().total
    assert cycles["auto"] <= 1.02 * min(cycles.values())


def busiest(system, members, order, num_ipus=1):
    ends = [hops(members, order, way, num_ipus) for way in (1, -1)]
    source, target = (np.concatenate(side) for side in zip(*ends, strict=True))
    return link_seconds(source, target, np.full(len(source), 10**6), system)


@pytest.mark.parametrize(
    ("name", "replicas", "group"),
    [
        ("bow-2000", 4, CommGroup()),
        ("bow-pod16", 16, CommGroup()),
        ("bow-pod64", 64, CommGroup()),
        ("bow-pod64", 64, CommGroup.consecutive(8)),
    ],
)
def test_ring_order__a_ladder_or_torus__gives_every_hop_links_of_its_own(name, replicas, group):
    system = systems.get(name)
    members = group.members(replicas)
    order = ring_order(members, 1, system)
    assert sorted(order.tolist()) == list(range(members.shape[1]))
    bundle = system.ipu_links.bundle_bytes_per_second(system.ipu_links.rail_links)
    assert busiest(system, members, order) == pytest.approx(10**6 / bundle)


def test_ring_order__orthogonal_groups_on_a_torus__goes_round_it():
    system, members = systems.get("bow-pod64"), CommGroup.orthogonal(4).members(64)
    order = ring_order(members, 1, system)
    rungs = members[0][order] // 2
    steps = np.abs(rungs - np.roll(rungs, 1)) % 32
    assert np.minimum(steps, 32 - steps).tolist() == [8, 8, 8, 8]
    for other in ([0, 2, 1, 3], [0, 1, 3, 2]):
        assert busiest(system, members, order) <= busiest(system, members, np.array(other))


@pytest.mark.slow
def test_all_reduce__pod256__takes_little_longer_than_links_and_gateways_must():
    """Within a rack 2·63/64 of the bytes both ways round; between racks 2·3/4 of a 64th of four IPUs over a gateway."""
    system = systems.get("bow-pod256")
    graph, prog, size = Graph(system, replicas=256), Sequence(), 1 << 26
    x = graph.variable("f32", (size // 4,), "x").map_linear()
    gcl.all_reduce_cross_replica_in_place(graph, x, "add", prog)
    rail = system.ipu_links.bundle_bytes_per_second(system.ipu_links.rail_links)
    within = 2 * 63 / 64 * size / (2 * rail)
    between = 2 * 3 / 4 * size / 64 * 4 / system.gateway.bytes_per_second
    bound = (within + between) * system.ipu.clock_hz
    cycles = compile_program(graph, prog, allow_out_of_memory=True).report.cycles()
    # Barriers are those of all four racks, one a step.
    assert bound <= cycles.total - cycles.sync <= 1.25 * bound


def test_all_reduce__one_ring_over_racks__would_take_longer():
    graph = Graph(systems.get("bow-pod256:128"), replicas=128)
    from abele.poplibs.gcl.levels import Level, Levels
    from abele.poplibs.gcl.ring import Ring

    x = graph.variable("f32", (1 << 20,), "x").map_linear()
    plan = gcl.explain_all_reduce(graph, x)
    members = CommGroup().members(128)
    for method in METHODS:
        flat = Levels((Level(Ring(graph, members), method, x.bytes // 128),))
        assert flat.scatter_seconds > plan.scatter_seconds
        assert flat.gather_seconds > plan.gather_seconds


def test_all_reduce__uneven_racks__is_one_ring():
    whole = small_racks(num_ipus=6)
    graph, prog = Graph(replace(whole, num_ipus=6), replicas=6), Sequence()
    x = graph.variable("f32", (7,), "x").map_linear()
    assert len(gcl.explain_all_reduce(graph, x).levels) == 1
    gcl.all_reduce_cross_replica_in_place(graph, x, "max", prog)
    with Engine(graph, prog, keep=[x]) as engine:
        engine[x] = np.arange(42, dtype="f4").reshape(6, 7)
        engine.run()
        assert (np.asarray(engine[x]) == np.arange(35, 42)).all()
