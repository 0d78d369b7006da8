"""Several copies between replicas in one exchange."""

from __future__ import annotations

import numpy as np
import pytest

from abele.compiler import compile_program
from abele.compiler.text.program import program_text
from abele.errors import ControlProgramError
from abele.graph import CrossReplicaCopy, CrossReplicaExchange, Graph, Sequence
from abele.machine import systems
from abele.runtime import Engine

UP, DOWN = {0: 1, 1: 2, 2: 3, 3: 0}, {0: 3, 1: 0, 2: 1, 3: 2}


@pytest.fixture
def graph() -> Graph:
    return Graph(systems.get("bow-2000").evolve(ipu={"num_tiles": 4}), replicas=4)


@pytest.mark.parametrize("way", [{"mode": "native"}, {"mode": "tiles"}, {"debug": True}], ids=str)
def test_exchange__what_copies_overwrite__is_read_before(graph: Graph, way: dict) -> None:
    x = graph.variable("f32", (2, 5), "x").map_linear()
    program = CrossReplicaExchange([CrossReplicaCopy(x[0], x[1], UP), CrossReplicaCopy(x[1], x[0], DOWN)])
    with Engine(graph, program, keep=[x], **way) as engine:
        values = np.arange(40, dtype=np.float32).reshape(4, 2, 5)
        engine[x] = values
        engine.run()
        expected = np.stack([np.roll(values[:, 1], -1, axis=0), np.roll(values[:, 0], 1, axis=0)], axis=1)
        np.testing.assert_array_equal(engine[x], expected)


def test_exchange__types_and_replicas_that_stay__are_copied_as_well(graph: Graph) -> None:
    x, y = (graph.variable("f32", (3,), n).map_linear() for n in "xy")
    a, b = (graph.variable("f16", (3,), n).map(2) for n in "ab")
    stay = {r: r for r in range(4)}
    program = CrossReplicaExchange([CrossReplicaCopy(x, y, UP), CrossReplicaCopy(a, b, stay)])
    assert compile_program(graph, program).report.cycles().total > 0
    with Engine(graph, program, keep=[x, y, a, b]) as engine:
        engine[x], engine[a] = np.arange(12, dtype="f4").reshape(4, 3), np.arange(12, dtype="f2").reshape(4, 3)
        engine.run()
        np.testing.assert_array_equal(engine[y], np.roll(np.arange(12).reshape(4, 3), 1, axis=0))
        np.testing.assert_array_equal(engine[b], np.arange(12).reshape(4, 3))


def test_exchange__both_ways_of_a_ring__take_as_long_as_one() -> None:
    graph = Graph(systems.get("bow-2000"), replicas=4)
    x, y = (graph.variable("f32", (2, 1 << 16), n).map_linear() for n in "xy")
    up = {0: 2, 2: 3, 3: 1, 1: 0}
    down = {b: a for a, b in up.items()}
    ways = [CrossReplicaCopy(x[0], y[0], up), CrossReplicaCopy(x[1], y[1], down)]

    def cycles(*steps: object) -> int:
        return int(compile_program(graph, Sequence(*steps)).report.steps["exchange_cycles"].sum())  # type: ignore[arg-type]

    one, both = cycles(ways[0]), cycles(CrossReplicaExchange(ways))
    assert both == one
    assert cycles(*ways) == 2 * one
    # The same way twice shares the links.
    twice = CrossReplicaExchange([ways[0], CrossReplicaCopy(x[1], y[1], up)])
    links = graph.whole_system.ipu_links
    bundle = links.bundle_bytes_per_second(links.rail_links)
    assert cycles(twice) - one == pytest.approx((1 << 18) / bundle * graph.system.ipu.clock_hz, abs=2)


def test_exchange__same_row_both_ways__leaves_the_tiles_twice(graph: Graph) -> None:
    x, y = graph.variable("f32", (64,), "x").map(1), graph.variable("f32", (2, 64), "y").map(1)
    ways = [CrossReplicaCopy(x, y[0], UP), CrossReplicaCopy(x, y[1], DOWN)]
    one, both = (compile_program(graph, p).report for p in (ways[0], CrossReplicaExchange(ways)))
    assert both.steps["exchanged_bytes"][0] == 2 * one.steps["exchanged_bytes"][0] == 512


def test_exchange__listing__names_every_copy(graph: Graph) -> None:
    x, y = (graph.variable("f32", (2, 5), n).map(0) for n in "xy")
    text = program_text(CrossReplicaExchange([CrossReplicaCopy(x[0], y[0], UP), CrossReplicaCopy(x[1], y[1], DOWN)]))
    assert text == (
        "copy x f32[5] → y f32[5] of replica 0→1, 1→2, 2→3, 3→0 and "
        "copy x f32[5] → y f32[5] of replica 0→3, 1→0, 2→1, 3→2"
    )


def test_exchange__wrong_copies__are_refused_by_name(graph: Graph) -> None:
    x, y = (graph.variable("f32", (2, 5), n).map(0) for n in "xy")
    copy = CrossReplicaCopy(x[0], y[0], UP)
    with pytest.raises(ControlProgramError, match="write the same elements"):
        CrossReplicaExchange([copy, CrossReplicaCopy(x[1], y[0], DOWN)])
    with pytest.raises(ControlProgramError, match="without copies"):
        CrossReplicaExchange([])
    with pytest.raises(ControlProgramError, match="made of CrossReplicaCopies"):
        CrossReplicaExchange([x])  # type: ignore[list-item]
    with pytest.raises(ControlProgramError, match="list of CrossReplicaCopies"):
        CrossReplicaExchange(copy)  # type: ignore[arg-type]
    other = Graph(graph.whole_system, replicas=4)
    z = other.variable("f32", (5,), "z").map(0)
    with pytest.raises(ControlProgramError, match="several graphs"):
        CrossReplicaExchange([copy, CrossReplicaCopy(z, z, UP)])


@pytest.mark.parametrize("maps", [[{0: 1, 1: 0, 2: 3, 3: 2}], [UP], [UP, DOWN]], ids=["pairs", "ring", "both ways"])
@pytest.mark.parametrize("system", ["bow-pod64", "bow-pod256"])
def test_exchange__barrier__is_one_of_all_ipus_of_all_replicas(system: str, maps: list[dict[int, int]]) -> None:
    whole = systems.get(system)
    graph = Graph(whole.evolve(ipu={"num_tiles": 4}), replicas=whole.num_ipus)
    x, y = (graph.variable("f32", (len(maps), 5), n).map(0) for n in "xy")
    # The pattern of four replicas is repeated over all.
    everyone = [{4 * q + a: 4 * q + b for q in range(graph.replicas // 4) for a, b in m.items()} for m in maps]
    copies = CrossReplicaExchange([CrossReplicaCopy(x[n], y[n], m) for n, m in enumerate(everyone)])
    steps = compile_program(graph, copies).report.steps
    assert steps["sync_cycles"][0] == whole.sync_cycles


def test_exchange__nothing_leaves_a_replica__barrier_is_its_own() -> None:
    graph = Graph(systems.get("bow-pod64").evolve(ipu={"num_tiles": 4}), replicas=64)
    x, y = (graph.variable("f32", (5,), n).map(0) for n in "xy")
    stay = CrossReplicaExchange([CrossReplicaCopy(x, y, {r: r for r in range(64)})])
    assert compile_program(graph, stay).report.steps["sync_cycles"][0] <= graph.system.sync_cycles
