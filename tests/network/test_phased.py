"""Networks in phases: they learn what one phase learns, and hold no more than a phase at a time."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from abele.errors import InvalidOptionError
from abele.expr.derivative import arg
from abele.network import (
    Adam,
    Group,
    Lamb,
    Locations,
    Network,
    NetworkBuilder,
    Place,
    Schedule,
    Sgd,
    TensorLocation,
    parse,
    training_pipeline,
)
from abele.network.ops import build
from abele.network.schedule import OutputMode
from abele.numerics import f8_143, to_host
from abele.numerics.narrow import round_to_nearest
from abele.poplibs.gcl import CommGroup
from abele.session import Session, Settings, SharedArrays, compile_network

WIDTH, BATCH = 8, 4
AWAY = TensorLocation(on_chip=False)
EVERYTHING = Locations(AWAY, AWAY, AWAY, AWAY)
ACTIVATIONS = Locations(activations=AWAY)


def deep(phases: list[Place], *, dropout: bool = False, tied: bool = False) -> Network:
    """A product, a function and a sum with what enters, in each phase; the first weight may be the last."""
    net = NetworkBuilder()
    x, target = net.input((BATCH, WIDTH), "f32", "x"), net.input((BATCH, WIDTH), "f32", "target")
    hidden, first = x, None
    for number, place in enumerate(phases):
        last = number == len(phases) - 1
        weight = first if tied and last and first else net.parameter((WIDTH, WIDTH), "f32", f"w{number}")
        first = first or weight
        with net.at(place=place):
            hidden = build.nonlinearity(
                net, "tanh", build.linear(net, hidden, weight, net.parameter((WIDTH,), "f32", f"b{number}"))
            )
            hidden = build.dropout(net, hidden, 0.5) if dropout else hidden
            # What enters is read in every phase, as it is and turned around.
            hidden = build.map_(net, arg(0) + arg(1), [hidden, x])
    with net.at(place=phases[-1]):
        error = build.map_(net, (arg(0) - arg(1)) * (arg(0) - arg(1)), [hidden, target])
        net.loss = build.mean(net, error, [0, 1])
        net.output(net.loss)
    return net.finish()


def trained(net: Network, schedule: Schedule, optimiser: Any, mode: str = "native") -> tuple[np.ndarray, SharedArrays]:
    """Losses of two runs, and the weights."""
    rng = np.random.default_rng(0)
    weights = SharedArrays({p.name: (0.5 * rng.normal(size=p.shape)).astype(np.float32) for p in net.parameters})
    session = Session.of(
        net,
        schedule,
        groups=[Group(optimiser, net.parameters)],
        settings=Settings(mode=mode),
        weights=weights,
    )
    x = np.random.default_rng(1).normal(size=(schedule.micro_batches * BATCH, WIDTH)).astype(np.float32)
    losses = np.stack([session(x, np.tanh(x[:, ::-1]))[0] for _ in range(2)])
    session.bring_to_host()
    return losses, weights


FOUR = [Place(phase=n) for n in range(4)]
SCHEDULES = {
    "one micro-batch": Schedule(2),
    "accumulation": Schedule(2, 3, outputs=OutputMode.ALL),
    "replicas": Schedule(1, 2, replicas=2),
    "io tiles": Schedule(1, 4, io_tiles=32, outputs=OutputMode.ALL),
}
PLACES = {
    "one IPU": FOUR,
    "two IPUs": [Place(n % 2, phase=n) for n in range(4)],
    "phases again": [Place(phase=n) for n in (0, 1, 0, 2)],
    "some left out": [Place(phase=n) for n in (1, 1, 3, 6)],
}


@cache
def in_one_phase(schedule: Schedule, optimiser: Any, mode: str, **kind: bool) -> tuple[np.ndarray, SharedArrays]:
    """Losses and weights of a network of four places in one phase: the same wherever another has its phases and
    tensors.
    """
    return trained(deep([Place()] * 4, **kind), schedule, optimiser, mode)


def assert_same(phases: list[Place], schedule: Schedule, optimiser: Any, mode: str = "native", **kind: bool) -> None:
    """Hold a network in phases, wherever its tensors are, against the same in one."""
    plain = Schedule(**{n: getattr(schedule, n) for n in ("device_iterations", "accumulation", "replicas", "outputs")})
    losses, expected = in_one_phase(plain, optimiser, mode, **kind)
    found, weights = trained(deep(phases, **kind), schedule, optimiser, mode)
    np.testing.assert_allclose(found, losses, rtol=2e-6, atol=1e-7)
    for name in expected:
        np.testing.assert_allclose(weights[name], expected[name], rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("locations", [Locations(), ACTIVATIONS, EVERYTHING])
@pytest.mark.parametrize("mode", ["native", "tiles"])
def test_training__in_phases__learns_what_one_phase_learns(schedule: str, locations: Locations, mode: str) -> None:
    assert_same(FOUR, replace(SCHEDULES[schedule], locations=locations), Adam(lr=0.01), mode)


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("kind", ["plain", "dropout", "tied"])
def test_training__in_whatever_phases__learns_what_one_phase_learns(where: str, kind: str) -> None:
    places = PLACES[where]
    options = {kind: True} if kind != "plain" else {}
    schedule = replace(SCHEDULES["accumulation"], locations=EVERYTHING)
    assert_same(places, schedule, Sgd(lr=0.1, momentum=0.9), **options)


@pytest.mark.parametrize(
    "optimiser",
    [Sgd(lr=0.1), Adam(lr=0.01, max_grad_norm=0.05), Lamb(lr=0.01), Adam(lr=0.01, loss_scaling=8.0)],
    ids=["sgd", "clipped", "lamb", "scaled"],
)
@pytest.mark.parametrize("locations", [EVERYTHING, Locations(accumulators=AWAY)], ids=["all", "sums"])
def test_optimisers__in_phases__do_what_they_do_in_one(optimiser: Any, locations: Locations) -> None:
    schedule = replace(SCHEDULES["accumulation"], locations=locations)
    assert_same(FOUR, schedule, optimiser)


def test_inference__in_phases__is_that_of_one() -> None:
    weights = {
        p.name: np.random.default_rng(0).normal(size=p.shape).astype(np.float32) for p in deep([Place()] * 4).parameters
    }
    x = np.random.default_rng(1).normal(size=(3 * BATCH, WIDTH)).astype(np.float32)
    found = [
        Session.of(net, Schedule(3, locations=locations), weights=weights)(x, x)[0]
        for net, locations in (
            (deep([Place()] * 4), Locations()),
            (deep(FOUR), Locations(weights=AWAY, activations=AWAY)),
        )
    ]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


def test_stash__of_phases__rounds_what_the_backward_pass_reads() -> None:
    net = NetworkBuilder()
    hidden = net.input((BATCH, WIDTH), "f32", "x")
    for number in range(3):
        with net.at(place=Place(phase=number)):
            hidden = build.matmul(net, hidden, net.parameter((WIDTH, WIDTH), "f32", f"w{number}"))
            net.loss = build.mean(net, hidden, [0, 1])
    net.output(net.loss)
    model = net.finish()
    rng = np.random.default_rng(0)
    start = {p.name: rng.normal(size=p.shape).astype(np.float32) for p in model.parameters}
    x = rng.normal(size=(2 * BATCH, WIDTH)).astype(np.float32)
    for locations in (Locations(), EVERYTHING):
        schedule = Schedule(accumulation=2, stash=f8_143, locations=locations)
        session = Session.of(model, schedule, groups=[Group(Sgd(lr=1.0), model.parameters)], weights=dict(start))
        session(x)
        entered, back = [x.astype(np.float64)], np.full((2 * BATCH, WIDTH), 1 / (BATCH * WIDTH))
        for number in range(3):
            entered.append(entered[-1] @ start[f"w{number}"])
        for number in (2, 1, 0):
            # The last phase runs backward at once; the one before it finds what its first pass has left two phases ago.
            seen = entered[number] if number == 2 else to_host(round_to_nearest(entered[number], f8_143))
            expected = start[f"w{number}"] - seen.T.astype(np.float64) @ back / 2
            np.testing.assert_allclose(session.weights[f"w{number}"], expected, rtol=1e-4, atol=1e-4)
            back = back @ start[f"w{number}"].T


def test_views__of_values_that_wait__are_made_where_they_are_read() -> None:
    net = NetworkBuilder()
    x = net.input((BATCH, WIDTH), "f32", "x")
    hidden = x
    for number in range(4):
        with net.at(place=Place(phase=number)):
            turned = build.permute(net, hidden, [1, 0])
            weight = net.parameter((BATCH, BATCH), "f32", f"w{number}")
            hidden = build.permute(net, build.nonlinearity(net, "tanh", build.matmul(net, turned, weight)), [1, 0])
            net.loss = build.mean(net, hidden, [0, 1])
    net.output(net.loss)
    model = net.finish()
    groups = [Group(Sgd(lr=0.1), model.parameters)]
    schedule = Schedule(accumulation=2, locations=ACTIVATIONS)
    compiled = compile_network(model, schedule, groups=groups)
    sizes = [b.num_elements * b.repeats for n, b in compiled.executable.graph.remote_buffers.items() if "phase" in n]
    # What enters each phase but the last, and what its function has made; no view is stored beside its operand.
    assert sum(sizes) <= 2 * 3 * BATCH * WIDTH


def test_memory__of_a_deep_network__is_that_of_one_phase() -> None:
    def wide(phased: bool) -> Network:
        net = NetworkBuilder()
        hidden = net.input((16, 256), "f32", "x")
        for number in range(16):
            with net.at(place=Place(phase=number if phased else 0)):
                weight, bias = (
                    net.parameter((256, 256), "f32", f"w{number}"),
                    net.parameter((256,), "f32", f"b{number}"),
                )
                hidden = build.nonlinearity(net, "tanh", build.linear(net, hidden, weight, bias))
                net.loss = build.mean(net, hidden, [0, 1])
        net.output(net.loss)
        return net.finish()

    live = {}
    for phased, locations in ((False, Locations()), (True, EVERYTHING)):
        net = wide(phased)
        groups = [Group(Adam(lr=0.01), net.parameters)]
        report = compile_network(net, Schedule(locations=locations), groups=groups).executable.report
        totals = report.memory.totals()
        live[phased] = totals["variables"] + int(report.liveness["live_bytes"].max())
    layer = 4 * 256 * 256
    # Weights come in rows of 1.2 MB and a layer more at most, with their gradients and two moments.
    assert live[True] < 4 * (1.2e6 + layer)
    assert live[False] > 16 * 3 * layer > 2 * live[True]


def test_text__of_a_network_in_phases__reads_back_after_its_passes() -> None:
    net = deep(FOUR)
    final = training_pipeline(Schedule(locations=EVERYTHING), [Group(Sgd(lr=0.1), net.parameters)]).run(net)
    assert final.num_phases == 4
    assert parse(str(final)) == final
    # Sums of a single micro-batch leave the chip with its phase.
    assert sum(op.kind == "accumulate" for op in final.ops) == 8


def test_activations__away_from_a_network_of_one_phase__are_refused() -> None:
    net = deep([Place()] * 2)
    with pytest.raises(InvalidOptionError, match="the network is no pipeline and has no phases"):
        compile_network(net, Schedule(locations=ACTIVATIONS), groups=[Group(Sgd(lr=0.1), net.parameters)])


def test_weights_of_groups_of_replicas__in_phases__are_their_own() -> None:
    net = deep(FOUR)
    own = (("w1", CommGroup.consecutive(1)),)
    rng = np.random.default_rng(0)
    weights = {p.name: rng.normal(size=p.shape).astype(np.float32) for p in net.parameters}
    weights["w1"] = rng.normal(size=(2, WIDTH, WIDTH)).astype(np.float32)
    x = np.random.default_rng(1).normal(size=(2 * BATCH, WIDTH)).astype(np.float32)
    found = []
    for locations in (Locations(), EVERYTHING):
        schedule = Schedule(replicas=2, own_values=own, locations=locations)
        groups = [Group(Adam(lr=0.1), net.parameters)]
        settings = Settings()
        session = Session.of(net, schedule, groups=groups, settings=settings, weights=dict(weights))
        session(x, x)
        found.append(session.weights["w1"])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-6)
    assert not np.array_equal(found[0][0], found[0][1])
