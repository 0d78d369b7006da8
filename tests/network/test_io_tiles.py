"""IO tiles: what they load and store beside the other tiles changes no result, and takes less time."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from test_pipelined import PIPELINES, data, mlp, train, weights_of

from abele.errors import InvalidOptionError
from abele.expr.derivative import arg
from abele.network import Group, NetworkBuilder, Place, Schedule, Sgd
from abele.network.ops import build
from abele.network.schedule import OutputMode, PipelineSchedule
from abele.session import Session, Settings, SharedArrays, compile_network


@pytest.mark.parametrize(
    ("places", "mode"),
    list(itertools.product([[Place()] * 2, PIPELINES["four stages"], PIPELINES["sharded"]], ["native", "tiles"])),
    ids=str,
)
@pytest.mark.parametrize("outputs", OutputMode, ids=str)
def test_training__with_io_tiles__gives_the_same(places: list[Place], outputs: OutputMode, mode: str) -> None:
    schedule = Schedule(device_iterations=2, accumulation=9, outputs=outputs, period=3)
    one, weights = train(mlp(places), schedule, Sgd(lr=0.1), mode=mode)
    beside, spread = train(mlp(places), replace(schedule, io_tiles=32), Sgd(lr=0.1), mode=mode)
    np.testing.assert_allclose(beside, one, rtol=2e-6, atol=1e-6)
    for name in weights:
        np.testing.assert_allclose(spread[name], weights[name], rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("accumulation", [1, 2, 3])
@pytest.mark.parametrize("pipeline", PipelineSchedule, ids=str)
@pytest.mark.parametrize("places", [[Place()] * 2, PIPELINES["two stages"]], ids=str)
def test_few_micro_batches__with_io_tiles__are_all_run(
    accumulation: int, pipeline: PipelineSchedule, places: list[Place]
) -> None:
    schedule = Schedule(device_iterations=2, accumulation=accumulation, pipeline=pipeline, replicas=2)
    one, _ = train(mlp(places), schedule, Sgd(lr=0.1))
    beside, _ = train(mlp(places), replace(schedule, io_tiles=2), Sgd(lr=0.1))
    np.testing.assert_allclose(beside, one, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("rounds", [1, 2, 3, 7])
@pytest.mark.parametrize("places", [[Place()], PIPELINES["four stages"]], ids=["one", "four"])
def test_inference__with_io_tiles__gives_each_micro_batch_its_result(rounds: int, places: list[Place]) -> None:
    results = []
    for tiles in (0, 32):
        net = mlp(places)
        schedule = Schedule(device_iterations=rounds, io_tiles=tiles)
        session = Session.of(net, schedule, weights=weights_of(net))
        results.append(session(*data(rounds))[0])
    np.testing.assert_allclose(results[1], results[0], rtol=2e-6)


def test_output__of_a_buffer_that_changes__is_what_it_was_in_its_micro_batch() -> None:
    found = []
    for tiles in (0, 32):
        net = NetworkBuilder()
        x, count = net.input((1, 3), "f32", "x"), net.buffer((3,), "f32", "count")
        net.updates[count] = build.map_(net, arg(0) + arg(1), [count, build.reshape(net, x, (3,))])
        net.output(count)
        model = net.finish()
        weights = SharedArrays({"count": np.zeros(3, np.float32)})
        schedule = Schedule(device_iterations=4, io_tiles=tiles)
        session = Session.of(model, schedule, weights=weights)
        found.append(session(np.ones((4, 3), np.float32))[0])
    np.testing.assert_array_equal(found[0].reshape(4, 3)[:, 0], [0, 1, 2, 3])
    np.testing.assert_array_equal(found[1], found[0])


@pytest.mark.parametrize(
    "places",
    [[Place()] * 8, pytest.param([Place(0, 0)] * 4 + [Place(1, 1)] * 4, marks=pytest.mark.slow)],
    ids=["one", "two"],
)
def test_transfers__of_io_tiles__are_hidden_behind_the_run(places: list[Place]) -> None:
    cycles = {}
    for tiles in (0, 32):
        net = mlp(places, batch=64, width=512)
        compiled = compile_network(
            net,
            Schedule(accumulation=20, io_tiles=tiles),
            groups=[Group(Sgd(lr=0.1), net.parameters)],
            settings=Settings(system="bow-pod16"),
        )
        cycles[tiles] = compiled.executable.report.step_cycles
        busy = np.flatnonzero(compiled.executable.report.compute_cycles_by_tile)
        assert (busy % 1472 < 1472 - tiles).all()
    transfers = cycles[0].host
    assert cycles[32].total < cycles[0].total - 0.6 * min(transfers, cycles[0].total - transfers)


@pytest.mark.parametrize("count", [-1, True, 2.0, 1472])
def test_count_of_io_tiles__that_no_ipu_has__is_refused(count: object) -> None:
    net = mlp([Place()])
    with pytest.raises(InvalidOptionError, match=r"io_tiles|IO tiles leave none"):
        compile_network(net, Schedule(io_tiles=count), settings=Settings())  # type: ignore[arg-type]  # wrong
