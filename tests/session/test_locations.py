"""Locations: state that replicas share, and state, weights, sums and activations in streaming memory."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from abele.errors import GraphReplicationError, InvalidOptionError, MachineError
from abele.expr.derivative import arg
from abele.graph import Call, walk
from abele.network import (
    Adagrad,
    Adam,
    Group,
    Lamb,
    Locations,
    MeanStrategy,
    Network,
    NetworkBuilder,
    Optimiser,
    Place,
    RmsProp,
    Schedule,
    Sgd,
    TensorLocation,
)
from abele.network.ops import build
from abele.numerics import ElementType, f16, f32
from abele.poplibs.gcl import CommGroup
from abele.session import Compiled, Session, Settings, SharedArrays, compile_network

SHARED = TensorLocation(sharded=True, min_elements_sharded=1)
AWAY = TensorLocation(on_chip=False)
BOTH = TensorLocation(on_chip=False, sharded=True, min_elements_sharded=1)
STATE = {"shared": Locations(SHARED), "away": Locations(AWAY), "both": Locations(BOTH)}
OPTIMISERS = {
    "momentum": Sgd(lr=0.1, momentum=0.9, dampening=0.1),
    "adam": Adam(lr=0.01, weight_decay=0.1, decoupled=True),
    "lamb": Lamb(lr=0.01, weight_decay=0.1),
    "clipped": Adam(lr=0.01, max_grad_norm=0.05),
    "rmsprop": RmsProp(lr=0.01, momentum=0.9, centered=True),
    "adagrad": Adagrad(lr=0.1, initial_accumulator_value=0.5),
}


def network(width: int = 8, *, last: int = 7, stages: int = 1, batch: int = 4, dtype: ElementType = f32) -> Network:
    """A product and a non-linearity in each stage, and a product of ``last`` features, none for 0."""
    net = NetworkBuilder()
    hidden = net.input((batch, width), dtype, "x")
    for number in range(stages):
        weight, bias = net.parameter((width, width), dtype, f"w{number}"), net.parameter((width,), dtype, f"b{number}")
        with net.at(place=Place(number, number)):
            hidden = build.nonlinearity(net, "tanh", build.linear(net, hidden, weight, bias))
    with net.at(place=Place(stages - 1, stages - 1)):
        if last:
            weight, bias = net.parameter((last, width), dtype, "v"), net.parameter((last,), dtype, "c")
            hidden = build.linear(net, hidden, weight, bias)
        square = build.map_(net, arg(0) * arg(0), [hidden])
        net.loss = build.cast(net, build.mean(net, square, [0, 1]), "f32")
        net.output(net.loss)
    return net.finish()


def session(
    net: Network,
    schedule: Schedule,
    optimiser: Optimiser,
    mode: str = "tiles",
    state: SharedArrays | None = None,
    **settings: Any,
) -> Session:
    rng = np.random.default_rng(0)
    weights = {p.name: (rng.normal(size=p.shape) * 0.3).astype(p.dtype.np) for p in net.parameters}
    groups = [Group(optimiser, net.parameters)]
    chosen = Settings(mode=mode, **settings)
    return Session.of(net, schedule, groups=groups, settings=chosen, weights=weights, state=state)


def batch(net: Network, schedule: Schedule) -> np.ndarray:
    value = net.inputs[0]
    shape = (schedule.micro_batches * value.shape[0], *value.shape[1:])
    return np.random.default_rng(1).normal(size=shape).astype(value.dtype.np)


def trained(
    net: Network, schedule: Schedule, optimiser: Optimiser, mode: str = "tiles", runs: int = 2, **settings: Any
) -> Session:
    made = session(net, schedule, optimiser, mode, **settings)
    for _ in range(runs):
        made(batch(net, schedule))
    return made


@cache
def on_chip(optimiser: str, replicas: int, mode: str) -> Session:
    return trained(network(), Schedule(replicas=replicas), OPTIMISERS[optimiser], mode)


def assert_same(one: Session, other: Session, tolerance: float = 0.0) -> None:
    for arrays, expected in ((one.weights, other.weights), (one.state, other.state)):
        assert arrays.keys() == expected.keys()
        for name in arrays:
            assert arrays[name].shape == expected[name].shape
            np.testing.assert_allclose(arrays[name], expected[name], rtol=tolerance, atol=tolerance, err_msg=name)


# --- the state of optimisers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize(
    ("replicas", "mode", "location"), [*((2, "tiles", location) for location in STATE), (4, "native", "both")]
)
def test_training__with_state_elsewhere__is_what_it_is_on_the_chip(
    optimiser: str, replicas: int, mode: str, location: str
) -> None:
    schedule = Schedule(replicas=replicas, locations=STATE[location])
    made = trained(network(), schedule, OPTIMISERS[optimiser], mode)
    # Two addends have one sum; norms over shares, and sums that begin with another replica, are rounded elsewhere.
    exact = replicas == 2 and (location == "away" or optimiser not in ("lamb", "clipped"))
    # Four addends are swapped two by two on the chip and added in turn in shares. Where they cancel, RMSprop divides
    # what rounding left by about its own size.
    rounding = 5e-5 if optimiser == "rmsprop" else 2e-6
    assert_same(made, on_chip(optimiser, replicas, mode), 0.0 if exact else rounding)
    assert made._engine is not None
    for name, end in made.compiled.ends.weights.items():
        every = made._engine.read(end.handle)
        np.testing.assert_array_equal(every, np.broadcast_to(every[0], every.shape), err_msg=name)


@pytest.mark.parametrize("location", STATE)
def test_state__of_one_replica__is_what_it_is_on_the_chip(location: str) -> None:
    net, optimiser = network(), OPTIMISERS["adam"]
    expected = trained(net, Schedule(2, 3), optimiser)
    assert_same(trained(net, Schedule(2, 3, locations=STATE[location]), optimiser), expected)


@pytest.mark.parametrize(
    ("schedule", "optimiser"),
    [
        (Schedule(1, 3, replicas=2), Adam(lr=0.01, accumulation=f16, first_type=f16)),
        (Schedule(1, 3, replicas=4, strategy=MeanStrategy.RUNNING), Adam(lr=0.01)),
        (Schedule(2, 2, mean=False, replicas=4), Sgd(lr=0.01, momentum=0.9)),
    ],
    ids=["f16 sums", "running mean", "sum"],
)
def test_shared_state__however_gradients_are_summed__is_what_it_is_on_the_chip(
    schedule: Schedule, optimiser: Optimiser
) -> None:
    net = network(dtype=f16)
    expected = trained(net, schedule, optimiser)
    made = trained(net, replace(schedule, locations=STATE["both"]), optimiser)
    assert_same(made, expected, 2.0**-10)


def test_shared_state__of_a_pipeline_on_two_replicas__is_what_it_is_on_the_chip() -> None:
    net, schedule, optimiser = network(stages=2), Schedule(1, 4, replicas=2), Lamb(lr=0.01, max_grad_norm=0.05)
    expected = trained(net, schedule, optimiser)
    assert_same(trained(net, replace(schedule, locations=STATE["both"]), optimiser), expected, 1e-6)


@pytest.mark.parametrize("optimiser", ["momentum", "adam", "lamb"])
@pytest.mark.parametrize("location", ["away", "both"])
@pytest.mark.parametrize("mode", ["tiles", "native"])
def test_state__of_equal_units__is_updated_by_one_copy_of_the_code(
    optimiser: str, location: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("abele.distribution.state_units.worthwhile_bytes", lambda _: 1)
    net, schedule = layers(4), Schedule(1, 2, replicas=2, locations=STATE[location])
    apart, shared = (trained(net, schedule, OPTIMISERS[optimiser], mode, shared_functions=s) for s in (False, True))
    assert_same(shared, apart, 0.0 if mode == "tiles" else 1e-6)
    updates = [
        step.function
        for step in walk(shared.compiled.executable.programs[0])
        if isinstance(step, Call) and step.function.debug.name == "update"
    ]
    # A weight and a bias in each layer.
    assert sorted(updates.count(f) for f in set(updates)) == [4, 4]
    assert memory_of(shared, "vertex_state") < memory_of(apart, "vertex_state")


def layers(count: int, width: int = 8) -> Network:
    """Products and non-linearities one after the other."""
    net = NetworkBuilder()
    hidden = net.input((4, width), f32, "x")
    for number in range(count):
        weight, bias = net.parameter((width, width), f32, f"w{number}"), net.parameter((width,), f32, f"b{number}")
        hidden = build.nonlinearity(net, "tanh", build.linear(net, hidden, weight, bias))
    net.loss = build.mean(net, build.map_(net, arg(0) * arg(0), [hidden]), [0, 1])
    net.output(net.loss)
    return net.finish()


def memory_of(made: Session, category: str) -> int:
    """Bytes of all tiles."""
    return variables_bytes(made.compiled, category)


def test_state__moves_between_locations__and_training_goes_on() -> None:
    net, optimiser, schedule = network(), OPTIMISERS["adam"], Schedule(replicas=2)
    expected = trained(net, schedule, optimiser, runs=3)
    weights, state = None, None
    for location in (Locations(), *STATE.values())[1:]:
        made = session(net, replace(schedule, locations=location), optimiser, state=state)
        for name, values in (weights or {}).items():
            made.weights[name] = values
        made(batch(net, schedule))
        weights, state = dict(made.weights), SharedArrays(dict(made.state))
    assert_same(made, expected)


def test_shared_state__written_by_name__is_read_back() -> None:
    net = network()
    made = trained(net, Schedule(replicas=4, locations=STATE["both"]), OPTIMISERS["adam"], runs=1)
    rng = np.random.default_rng(2)
    written = {name: rng.normal(size=made.state[name].shape) for name in made.state if "moment" in name}
    for name, values in written.items():
        made.state[name] = values
    made._refresh()
    made._state.download()
    for name, values in written.items():
        np.testing.assert_array_equal(made.state[name], values.astype(np.float32))


def test_cached_program__with_state_elsewhere__is_found_again(tmp_path: Path) -> None:
    net, schedule = network(), Schedule(replicas=2, locations=Locations(BOTH, weights=AWAY))
    groups, settings = [Group(Adam(lr=0.01), net.parameters)], Settings(cache=str(tmp_path))
    first = compile_network(net, schedule, groups=groups, settings=settings)
    again = compile_network(net, schedule, groups=groups, settings=settings)
    assert again.ends == first.ends
    assert again.ends.state["v/moment1"].flat is not None
    other = compile_network(net, replace(schedule, locations=Locations()), groups=groups, settings=settings)
    assert other.ends.state["v/moment1"].flat is None


def variables_bytes(compiled: Compiled, category: str = "variables") -> int:
    """Bytes of all tiles that are live all the time."""
    memory = compiled.executable.report.memory
    return int(memory.bytes[memory.categories.index(category)].sum())


@pytest.mark.parametrize(("location", "kept"), [("shared", 1 / 4), ("away", 0), ("both", 0)])
def test_memory__of_state_elsewhere__is_a_share_or_nothing(location: str, kept: float) -> None:
    net = network(64, last=0)
    groups, schedule = [Group(Adam(lr=0.01), net.parameters)], Schedule(replicas=4)
    usual = compile_network(net, schedule, groups=groups)
    made = compile_network(net, replace(schedule, locations=STATE[location]), groups=groups)
    state = 2 * 4 * (64 * 64 + 64)
    # Numbers of replicas are a few words more.
    assert variables_bytes(usual) - variables_bytes(made) == pytest.approx(state * (1 - kept), abs=32)


@pytest.mark.parametrize(("least", "flat"), [(1, {"v", "c"}), (8, {"v"}), (57, set())])
@pytest.mark.parametrize("kind", ["off_chip", "sharded"])
def test_least_elements__of_a_location__leave_small_tensors_as_usual(kind: str, least: int, flat: set[str]) -> None:
    where = {"on_chip": False} if kind == "off_chip" else {"sharded": True}
    location = TensorLocation(**where, **{f"min_elements_{kind}": least})
    net = network()
    schedule = Schedule(replicas=2, locations=Locations(location))
    compiled = compile_network(net, schedule, groups=[Group(Adam(), net.parameters[-2:])])
    ends = compiled.ends.state
    assert {name.removesuffix("/moment1") for name in ends if name.endswith("1") and ends[name].flat} == flat


def test_shares__that_would_not_end_in_zeros__are_not_made() -> None:
    net, schedule = network(), Schedule(replicas=4, locations=STATE["shared"])
    ends = compile_network(net, schedule, groups=[Group(Adam(eps=0.0), net.parameters)]).ends
    assert ends.state["v/moment1"].flat is not None  # 56 elements
    assert ends.state["c/moment1"].flat is None  # 7 elements: 0 / 0 behind them


def test_shared_state__of_parameters_with_values_of_their_own__stays_whole() -> None:
    own = (("v", CommGroup.orthogonal(2)),)
    schedule = Schedule(replicas=4, own_values=own, locations=STATE["both"])
    net = network()
    rng = np.random.default_rng(0)
    weights = {p.name: rng.normal(size=p.shape).astype(np.float32) for p in net.parameters}
    weights["v"] = np.stack([weights["v"], weights["v"]])
    made = Session.of(net, schedule, groups=[Group(Adam(lr=0.01), net.parameters)], weights=weights)
    made(batch(net, schedule))
    assert made.state["v/moment1"].shape == (2, 7, 8)
    assert made.state["w0/moment1"].shape == (8, 8)
    flat = {name: end.flat for name, end in made.compiled.ends.state.items() if end.flat is not None}
    assert {name: lies.replicas for name, lies in flat.items() if name.endswith("1")} == {
        "w0/moment1": 4,
        "b0/moment1": 4,
        "c/moment1": 4,
        "v/moment1": 1,
    }
    # Replicas 0 and 2 are one group, 1 and 3 the other: each has its own gradients.
    assert not np.array_equal(*made.state["v/moment1"])


# --- weights, sums and activations ------------------------------------------------------------------------------------

ELSEWHERE = {
    "weights": Locations(weights=AWAY),
    "sums": Locations(accumulators=AWAY),
    "all": Locations(BOTH, weights=AWAY, accumulators=AWAY),
}


@cache
def accumulated_on_chip(optimiser: Optimiser, mode: str) -> Session:
    return trained(network(), Schedule(2, 3, replicas=2), optimiser, mode)


@pytest.mark.parametrize("location", ELSEWHERE)
@pytest.mark.parametrize("mode", ["tiles", "native"])
@pytest.mark.parametrize("optimiser", [Sgd(lr=0.1), Adam(lr=0.01)])
def test_training__with_weights_or_sums_elsewhere__is_what_it_is_on_the_chip(
    location: str, mode: str, optimiser: Optimiser
) -> None:
    made = trained(network(), Schedule(2, 3, replicas=2, locations=ELSEWHERE[location]), optimiser, mode)
    assert_same(made, accumulated_on_chip(optimiser, mode), 0.0 if mode == "tiles" else 1e-7)


def test_pipeline__with_everything_elsewhere__is_what_it_is_on_the_chip() -> None:
    net, schedule, optimiser = network(stages=3), Schedule(2, 6), Adam(lr=0.01)
    everything = Locations(BOTH, weights=AWAY, activations=AWAY, accumulators=AWAY)
    made = trained(net, replace(schedule, locations=everything), optimiser)
    assert_same(made, trained(net, schedule, optimiser))
    names = made.compiled.executable.graph.remote_buffers
    assert {name.rstrip("0123456789").split("/")[0].rstrip("0123456789") for name in names} == {
        "ring",
        "weights",
        "sums",
        "optimiser",
    }


def test_inference__with_weights_elsewhere__is_what_it_is_on_the_chip() -> None:
    net = network(stages=1)
    weights = {p.name: np.full(p.shape, 0.1, np.float32) for p in net.parameters}
    x = batch(net, Schedule(2))
    expected = Session.of(net, Schedule(2), weights=weights)(x)[0]
    made = Session.of(net, Schedule(2, locations=Locations(weights=AWAY)), weights=weights)
    np.testing.assert_array_equal(made(x)[0], expected)
    made.weights["v"] = np.zeros((7, 8), np.float32)
    made.weights["c"] = np.full(7, 2.0, np.float32)
    np.testing.assert_array_equal(made(x)[0], np.full(2, 4.0, np.float32))


def test_memory__of_everything_elsewhere__is_that_of_one_part_at_a_time() -> None:
    net = deep(256, 6)
    groups, schedule = [Group(Adam(lr=0.01), net.parameters)], Schedule(1, 2)
    usual = compile_network(net, schedule, groups=groups)
    away = Locations(AWAY, weights=AWAY, accumulators=AWAY)
    made = compile_network(net, replace(schedule, locations=away), groups=groups)
    parameters = 4 * 6 * (256 * 256 + 256)
    assert variables_bytes(usual) - variables_bytes(made) == 3 * parameters
    # At most one layer and what is made of it, the gradients of a micro-batch, and all sums at the update.
    assert variables_bytes(made, "temporaries") <= variables_bytes(usual, "temporaries") + parameters


def deep(width: int, layers: int) -> Network:
    """Products one after the other, each followed by a function of its own, so that no two layers are alike."""
    net = NetworkBuilder()
    hidden = net.input((4, width), f32, "x")
    for number in range(layers):
        weight, bias = net.parameter((width, width), f32, f"w{number}"), net.parameter((width,), f32, f"b{number}")
        hidden = build.map_(net, arg(0) * float(number + 1), [build.linear(net, hidden, weight, bias)])
    net.loss = build.mean(net, build.map_(net, arg(0) * arg(0), [hidden]), [0, 1])
    net.output(net.loss)
    return net.finish()


# --- what cannot be ---------------------------------------------------------------------------------------------------


def test_streaming_memory__of_a_system_without__is_an_error_with_the_remedy() -> None:
    net = network()
    schedule = Schedule(locations=Locations(AWAY))
    with pytest.raises(MachineError, match="c600 has no streaming memory") as error:
        compile_network(net, schedule, groups=[Group(Adam(), net.parameters)], settings=Settings(system="c600"))
    assert "optimiser" in str(error.value.because)
    assert "bow-2000" in str(error.value.remedy)


@pytest.mark.parametrize("kind", ["weights", "activations", "accumulators"])
def test_shares__of_anything_but_state__are_refused(kind: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"replicas cannot share {kind}"):
        Locations(**{kind: SHARED})


def test_activations__away_from_a_network_of_one_stage__are_refused() -> None:
    net = network()
    with pytest.raises(InvalidOptionError, match="the network is no pipeline"):
        compile_network(net, Schedule(locations=Locations(activations=AWAY)), groups=[Group(Adam(), net.parameters)])


def test_shared_state__of_several_ranks__is_refused() -> None:
    with pytest.raises(GraphReplicationError, match="replicas of 2 ranks cannot share"):
        Schedule(replicas=4, ranks=2, locations=Locations(SHARED))


@pytest.mark.parametrize("given", [-1, 1.5, True])
def test_location__with_a_least_number_that_is_none__is_refused(given: object) -> None:
    with pytest.raises(InvalidOptionError, match="min_elements_sharded is a whole number from 0 on"):
        TensorLocation(min_elements_sharded=given)  # type: ignore[arg-type]
