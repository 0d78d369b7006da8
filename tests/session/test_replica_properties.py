"""Invariants of replicas however they are set up: they are one model on the whole batch, and agree to the bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from abele.expr.derivative import arg
from abele.network import Adam, Group, MeanStrategy, NetworkBuilder, Optimiser, OutputMode, Sgd
from abele.network.ops import build
from abele.numerics import f16, f32
from abele.poplibs.gcl import CommGroup
from abele.session import Schedule, Session, Settings

BATCH, FEATURES = 3, 5
QUICK = settings(
    max_examples=10, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], database=None
)


@dataclass(frozen=True)
class Setup:
    """Training of a model on replicas."""

    replicas: int
    accumulation: int
    group: CommGroup
    mean: bool
    strategy: MeanStrategy
    outputs: OutputMode
    half: bool
    adam: bool

    @property
    def optimiser(self) -> Optimiser:
        """With accumulators in f16 or f32."""
        kind = f16 if self.half else f32
        # Steps by sums are longer than steps by means.
        rate = 0.05 if self.mean else 0.05 / (self.replicas * self.accumulation)
        return (
            Adam(lr=0.01, eps=1e-2, accumulation=kind) if self.adam else Sgd(lr=rate, momentum=0.5, accumulation=kind)
        )

    def schedule(self, **changes: Any) -> Schedule:
        """Of replicas, or with changes of one that does the same."""
        given = {
            "accumulation": self.accumulation,
            "mean": self.mean,
            "strategy": self.strategy,
            "outputs": self.outputs,
            "replicas": self.replicas,
            "input_groups": self.group,
        }
        return Schedule(2, **(given | changes))


@st.composite
def setups(draw: st.DrawFn) -> Setup:
    """Any of them."""
    replicas = draw(st.sampled_from([2, 3, 4]))
    groups = [CommGroup.none(), CommGroup.consecutive(replicas), CommGroup.orthogonal(replicas)]
    groups += [CommGroup.consecutive(2), CommGroup.orthogonal(2)] if replicas == 4 else []
    return Setup(
        replicas,
        draw(st.sampled_from([1, 2, 3])),
        draw(st.sampled_from(groups)),
        draw(st.booleans()),
        draw(st.sampled_from(list(MeanStrategy))),
        draw(st.sampled_from([OutputMode.ALL, OutputMode.SUM, OutputMode.FINAL])),
        draw(st.booleans()),
        draw(st.booleans()),
    )


def session(schedule: Schedule, optimiser: Optimiser) -> Session:
    net = NetworkBuilder()
    x = net.input((BATCH, FEATURES), "f32", "x")
    weight, bias = net.parameter((4, FEATURES), "f32", "weight"), net.parameter((4,), "f32", "bias")
    y = build.nonlinearity(net, "tanh", build.linear(net, x, weight, bias))
    net.loss = build.mean(net, build.map_(net, arg(0) * arg(0) - arg(0), [y]), [0, 1])
    net.output(net.loss)
    net.output(y)
    rng = np.random.default_rng(2)
    weights = {p.name: rng.normal(size=p.shape).astype(np.float32) for p in net.parameters}
    return Session.of(
        net.finish(),
        schedule,
        groups=[Group(optimiser, tuple(net.parameters))],
        settings=Settings(system="bow-2000"),
        weights=weights,
    )


@given(setup=setups())
@QUICK
def test_replicas__however_set_up__are_one_model_on_the_whole_batch(setup: Setup) -> None:
    schedule = setup.schedule()
    x = np.random.default_rng(0).normal(size=(schedule.micro_batches * BATCH, FEATURES)).astype(np.float32)
    many = session(schedule, setup.optimiser)
    losses, outputs = many(x)
    # One replica that sees, one after the other, what each of the many was given.
    seen = x.reshape(schedule.rounds, -1, BATCH, FEATURES)[:, list(schedule.input_of)].reshape(-1, FEATURES)
    alone = setup.schedule(
        accumulation=setup.accumulation * setup.replicas,
        replicas=1,
        input_groups=CommGroup.none(),
        outputs=OutputMode.ALL,
    )
    one = session(alone, setup.optimiser)
    each, every = one(seen)
    tolerance = 3e-3 if setup.half else 2e-5
    for name in ("weight", "bias"):
        np.testing.assert_allclose(many.weights[name], one.weights[name], rtol=tolerance, atol=tolerance, err_msg=name)
    by_round = every.reshape(schedule.rounds, setup.replicas, BATCH, 4)
    wanted = {OutputMode.ALL: by_round, OutputMode.SUM: by_round.sum(0), OutputMode.FINAL: by_round[-1]}
    np.testing.assert_allclose(outputs, wanted[setup.outputs].reshape(-1, 4), rtol=tolerance, atol=4 * tolerance)
    rounds = each.reshape(schedule.rounds, setup.replicas)
    of_loss = {OutputMode.ALL: rounds, OutputMode.SUM: rounds.sum(0), OutputMode.FINAL: rounds[-1]}
    np.testing.assert_allclose(losses, of_loss[setup.outputs].ravel(), rtol=tolerance, atol=4 * tolerance)
    # Whatever order sums have, all replicas have the same one.
    engine, ends = many._loaded("be looked at"), many.compiled.ends
    for end in (*ends.weights.values(), *ends.state.values()):
        rows = engine.read(end.handle)
        bits = np.ascontiguousarray(rows).view(np.uint8).reshape(setup.replicas, -1)
        assert (bits == bits[0]).all(), end.name


@pytest.mark.parametrize("together", [CommGroup.none(), CommGroup.consecutive(2), CommGroup.orthogonal(2)], ids=str)
def test_dropout__on_replicas__differs_between_models_and_not_inside_of_one(together: CommGroup) -> None:
    net = NetworkBuilder()
    x = net.input((64,), "f32", "x")
    dropped = build.dropout(net, x, 0.5)
    # Of every replica, as outputs are those of the first of a model.
    net.output(build.replica_gather(net, build.reshape(net, dropped, (1, 64)), 0, CommGroup.consecutive(4)))
    drawn = Session.of(
        net.finish(),
        Schedule(replicas=4, tensor_parallel=together, input_groups=together),
        settings=Settings(system="bow-2000"),
    )
    drawn.random_state = [11, 0]
    masks = drawn(np.ones(64 * len(together.members(4)), np.float32))[0][:4] > 0
    model = np.argsort(together.members(4).ravel()) // together.members(4).shape[1]
    for a in range(4):
        for b in range(a):
            share = (masks[a] == masks[b]).mean()
            assert share == 1.0 if model[a] == model[b] else 0.2 < share < 0.8
    assert drawn.random_state[0] == 11
