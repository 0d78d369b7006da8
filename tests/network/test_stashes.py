"""8-bit stashes: what waits for backward stages is rounded, exactly as numerics says; all else stays as it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from abele.errors import InvalidOptionError, TypeMismatchError
from abele.expr.derivative import arg
from abele.network import Group, Locations, Network, NetworkBuilder, Place, Schedule, Sgd, TensorLocation
from abele.network.ops import build
from abele.network.schedule import OutputMode, PipelineSchedule
from abele.numerics import ElementType, f8_143, f8_152, f16, quarter, to_host
from abele.numerics.narrow import round_to_nearest
from abele.session import Session, Settings, compile_network

BATCH, WIDTH, ROUNDS = 4, 8, 7


def products(stages: int = 3, dtype: Any = "f32") -> Network:
    """A product on each IPU; the loss is the mean of what leaves the last."""
    net = NetworkBuilder()
    hidden = net.input((BATCH, WIDTH), dtype, "x")
    for stage in range(stages):
        with net.at(place=Place(stage, stage)):
            hidden = build.matmul(net, hidden, net.parameter((WIDTH, WIDTH), dtype, f"w{stage}"))
            net.loss = build.cast(net, build.mean(net, hidden, [0, 1]), "f32")
    net.output(net.loss)
    return net.finish()


def inputs(scale: float = 1.0) -> np.ndarray:
    return (scale * np.random.default_rng(1).normal(size=(ROUNDS * BATCH, WIDTH))).astype(np.float32)


def weights_of(net: Network) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {p.name: (0.5 * rng.normal(size=p.shape)).astype(p.dtype.np) for p in net.parameters}


def trained(net: Network, schedule: Schedule, *given: np.ndarray, mode: str = "native") -> tuple[np.ndarray, Any]:
    """Losses of one run, and the weights after it."""
    settings = Settings(mode=mode)
    groups = [Group(Sgd(lr=1.0), net.parameters)]
    session = Session.of(net, schedule, groups=groups, settings=settings, weights=weights_of(net))
    return session(*given)[0], session.weights


@pytest.mark.parametrize("mode", ["native", "tiles"])
@pytest.mark.parametrize("away", [False, True], ids=["on chip", "off chip"])
@pytest.mark.parametrize("stash", [f8_143, f8_152, quarter("F143", -3), quarter("F152", 2)], ids=str)
def test_gradients__of_a_pipeline__are_those_of_rounded_activations(stash: ElementType, away: bool, mode: str) -> None:
    # Weights' gradients are products of what enters a stage, which waited, and of what comes back, which did not.
    locations = Locations(activations=TensorLocation(on_chip=not away))
    schedule = Schedule(accumulation=ROUNDS, stash=stash, locations=locations, outputs=OutputMode.ALL)
    net, x = products(), inputs(300.0)
    losses, found = trained(net, schedule, x, mode=mode)
    weights = {name: w.astype(np.float64) for name, w in weights_of(net).items()}
    entered, gradient = [x.astype(np.float64)], np.full((ROUNDS * BATCH, WIDTH), 1 / (BATCH * WIDTH))
    for stage in range(3):
        entered.append(entered[-1] @ weights[f"w{stage}"])
    np.testing.assert_allclose(losses, entered[3].reshape(ROUNDS, -1).mean(1), rtol=1e-5, atol=1e-3)
    for stage in (2, 1, 0):
        # The last stage runs backward at once, from what it has.
        seen = entered[stage] if stage == 2 else to_host(round_to_nearest(entered[stage], stash, saturate=True), stash)
        expected = weights[f"w{stage}"] - seen.T.astype(np.float64) @ gradient / ROUNDS
        np.testing.assert_allclose(found[f"w{stage}"], expected, rtol=1e-5, atol=2e-3, err_msg=f"w{stage}")
        gradient = gradient @ weights[f"w{stage}"].T


@pytest.mark.parametrize("pipeline", list(PipelineSchedule))
def test_stash__of_float16_activations__follows_the_same_model_without(pipeline: PipelineSchedule) -> None:
    net, x = products(4, f16), inputs().astype(np.float16)
    schedule = Schedule(accumulation=2 * ROUNDS, pipeline=pipeline, outputs=OutputMode.ALL)
    given = np.concatenate([x, x[::-1]])
    plain, weights = trained(net, schedule, given)
    losses, found = trained(net, replace(schedule, stash=f8_143), given)
    np.testing.assert_array_equal(losses, plain)
    rounded = max(np.abs(found[name].astype(np.float32) - weights[name]).max() for name in weights)
    # A stage after the other keeps nothing; otherwise numbers of 4 bits differ by a sixteenth at most.
    assert (rounded == 0) == (pipeline == PipelineSchedule.SEQUENTIAL)
    assert rounded < 0.02


def test_values__that_the_forward_pass_or_integers_wait_for__are_not_rounded() -> None:
    # x skips to the last stage, where the forward pass reads it; rows of a table are taken by numbers above 256.
    net = NetworkBuilder()
    x, rows = net.input((BATCH, WIDTH), "f32", "x"), net.input((BATCH,), "i32", "rows")
    with net.at(place=Place(0, 0)):
        table = net.parameter((1000, WIDTH), "f32", "table")
        hidden = build.map_(net, arg(0) * arg(1), [build.look_up(net, table, rows), x])
    with net.at(place=Place(1, 1)):
        hidden = build.matmul(net, hidden, net.parameter((WIDTH, WIDTH), "f32", "w"))
    with net.at(place=Place(2, 2)):
        hidden = build.map_(net, arg(0) + arg(1), [hidden, x])
        net.loss = build.mean(net, hidden, [0, 1])
        net.output(net.loss)
    made, given = net.finish(), inputs()
    numbers = np.random.default_rng(3).integers(257, 1000, ROUNDS * BATCH).astype(np.int32)
    schedule = Schedule(accumulation=ROUNDS, outputs=OutputMode.ALL)
    plain, weights = trained(made, schedule, given, numbers)
    losses, found = trained(made, replace(schedule, stash=f8_143), given, numbers)
    np.testing.assert_array_equal(losses, plain)
    start = weights_of(made)["table"]
    # The same rows of the table have moved, by about as much.
    assert ((found["table"] != start).any(1) == (weights["table"] != start).any(1)).all()
    np.testing.assert_allclose(found["table"] - start, weights["table"] - start, rtol=0.07, atol=1e-4)


def test_memory__of_rings_of_8_bit_floats__is_a_quarter() -> None:
    held, live = {}, {}
    for stash in (None, f8_143):
        net = NetworkBuilder()
        hidden = net.input((256, 256), "f32", "x")
        for stage in range(4):
            with net.at(place=Place(stage, stage)):
                weight = net.parameter((256, 256), "f32", f"w{stage}")
                hidden = build.nonlinearity(net, "tanh", build.matmul(net, hidden, weight))
                net.loss = build.mean(net, hidden, [0, 1])
        net.output(net.loss)
        model = net.finish()
        groups = [Group(Sgd(lr=0.1), model.parameters)]
        schedule = Schedule(accumulation=20, stash=stash)
        report = compile_network(model, schedule, groups=groups)
        table = report.executable.report.variables
        held[stash] = sum(int(b) for n, b in zip(table["name"], table["bytes"], strict=True) if n == "ring")
        live[stash] = report.executable.report.memory.totals()["variables"]
    assert held[f8_143] == held[None] / 4
    assert live[None] - live[f8_143] == 3 / 4 * held[None]


@pytest.mark.parametrize("given", ["i8", "f16", "f32"])
def test_stash__of_another_element_type__is_refused(given: str) -> None:
    with pytest.raises(TypeMismatchError, match=f"activations cannot wait as {given}"):
        Schedule(stash=given)  # type: ignore[arg-type]


def test_stash__scaled_beyond_what_formats_have__is_refused() -> None:
    with pytest.raises(TypeMismatchError, match=r"cannot be scaled by 2\^32"):
        Schedule(stash=quarter("F143", 32))
    assert Schedule(stash="f8_152*2^-3").stash == quarter("F152", -3)  # type: ignore[arg-type]


def test_stash__of_a_network_of_one_stage__is_refused() -> None:
    net = products(1)
    with pytest.raises(InvalidOptionError, match="no activations wait as f8_143: the network is no pipeline"):
        compile_network(net, Schedule(stash=f8_143), groups=[Group(Sgd(lr=0.1), net.parameters)])


def test_inference__with_a_stash__is_what_it_is_without() -> None:
    net, x, found = products(), inputs(), []
    for stash in (None, f8_143):
        schedule = Schedule(device_iterations=ROUNDS, stash=stash)
        session = Session.of(net, schedule, weights=weights_of(net))
        found.append(session(x)[0])
    np.testing.assert_array_equal(found[1], found[0])
