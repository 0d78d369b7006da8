"""Scales of the loss, shrinking of gradients, and sums of them over micro-batches, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from meaning import Meaning

from abele.distribution import training_program
from abele.errors import InvalidOptionError
from abele.expr.derivative import arg
from abele.graph import Graph
from abele.network import Group, MeanStrategy, NetworkBuilder, Optimiser, Schedule, Sgd, parse, training_pipeline
from abele.network.automatic_scale import AutomaticLossScale
from abele.network.ops import build
from abele.numerics import f16

VARIABLE = frozenset({"lr", "loss_scaling"})


def trained(
    optimisers: list[Optimiser],
    slopes: Any,
    schedule: Schedule | None = None,
    *,
    dtype: str = "f32",
    automatic: bool = False,
) -> tuple[list[Any], dict[str, Any]]:
    """Parameters from 0 after a run on the loss Σ w·slope, for one parameter per optimiser, and the state."""
    net, graph = NetworkBuilder(), Graph("bow-2000")
    x = net.input((3,), dtype, "x")
    weights = [net.parameter((3,), dtype, f"w{number}") for number in range(len(optimisers))]
    total = build.total(net, weights) if len(weights) > 1 else weights[0]
    net.loss = build.reduce(net, build.map_(net, arg(0) * arg(1), [x, total]), [0])
    groups = [Group(o, (w,)) for o, w in zip(optimisers, weights, strict=True)]
    scale = AutomaticLossScale() if automatic else None
    made = training_program(net.finish(), graph, schedule or Schedule(), groups, automatic_loss_scale=scale)
    state = Meaning(graph, {made.inputs[0].name: list(slopes)})
    state.run(made.program)
    assert made.scale is not None
    kept = {name: state.read(t) for name, t in made.scale.state.items()}
    return [state.read(made.weights[w.name]) for w in weights], kept


@pytest.mark.parametrize("variable", [VARIABLE, frozenset({"lr"})])
def test_loss_scaling__of_small_half_gradients__keeps_them(variable: frozenset[str]) -> None:
    slopes = np.full((1, 3), 2.0**-24)
    net_scale = Sgd(lr=2.0**15, loss_scaling=1024.0, variable=variable)
    (w,), _ = trained([net_scale], slopes, dtype="f16")
    np.testing.assert_array_equal(w, np.full(3, -(2.0**-9), np.float16))


def test_loss_scaling__groups_that_differ__are_refused() -> None:
    with pytest.raises(InvalidOptionError, match="different loss scales: 1, 2"):
        trained([Sgd(), Sgd(loss_scaling=2.0)], np.ones((1, 3)))


def test_max_grad_norm__long_gradients_of_all_parameters__are_shrunk_together() -> None:
    optimiser = Sgd(lr=1.0, max_grad_norm=2.0, loss_scaling=8.0)
    both, _ = trained([optimiser, optimiser], np.array([[1.0, 2.0, 2.0]]))
    gradient = np.array([1.0, 2.0, 2.0]) * 2 / np.sqrt(18)
    np.testing.assert_allclose(both, [-gradient, -gradient], rtol=1e-6)


def test_max_grad_norm__short_gradients__stay_as_they_are() -> None:
    (w,), _ = trained([Sgd(lr=1.0, max_grad_norm=5.0)], np.array([[1.0, 2.0, 2.0]]))
    np.testing.assert_array_equal(w, [-1, -2, -2])


def test_max_grad_norm__over_micro_batches__is_that_of_their_mean() -> None:
    optimiser = Sgd(lr=1.0, max_grad_norm=1.5, accumulation=f16)
    (w,), _ = trained([optimiser], np.array([[2.0, 4.0, 4.0], [0.0, 0.0, 0.0]]), Schedule(accumulation=2))
    np.testing.assert_allclose(w, [-0.5, -1, -1], rtol=1e-6)


def test_max_grad_value__large_elements__are_cut() -> None:
    (w,), _ = trained([Sgd(lr=1.0, max_grad_value=1.5)], np.array([[1.0, -2.0, 4.0]]))
    np.testing.assert_array_equal(w, [-1, 1.5, -1.5])


@pytest.mark.parametrize("rule", [Sgd(accumulation=f16, loss_scaling=4.0, variable=VARIABLE), Sgd(max_grad_norm=1.0)])
@pytest.mark.parametrize("strategy", MeanStrategy)
def test_scaled_network__written__reads_back_equal(rule: Optimiser, strategy: MeanStrategy) -> None:
    net = NetworkBuilder()
    x, w = net.input((3,), "f16", "x"), net.parameter((3,), "f16", "w")
    net.loss = build.reduce(net, build.map_(net, arg(0) * arg(1), [x, w]), [0])
    schedule = Schedule(accumulation=2, strategy=strategy)
    made = training_pipeline(schedule, [Group(rule, (w,))], automatic_loss_scale=AutomaticLossScale()).run(net.finish())
    assert {"loss_scale", "magnitudes"} <= {op.kind for op in made.ops}
    assert parse(str(made)) == made


AUTOMATIC = {
    "small": (np.full((3, 3), 1.0), 1.0, [8.0]),
    "large": (np.full((3, 3), 1e4), 1.0, [0.5]),
    "hovers": (np.full((4, 3), 1.0), 4096.0, [1.0]),
    "not_numbers": (np.full((1, 3), np.nan), 1.0, [0.5]),
}


@pytest.mark.parametrize("name", AUTOMATIC)
def test_automatic_scale__by_the_magnitude_of_gradients__doubles_or_halves(name: str) -> None:
    slopes, scale, factor = AUTOMATIC[name]
    rule = Sgd(lr=0.25, loss_scaling=scale)
    (w,), state = trained([rule], slopes, Schedule(len(slopes)), dtype="f16", automatic=True)
    assert [state["loss_scaling/factor"]] == factor
    np.testing.assert_array_equal(w, -0.25 * np.asarray(slopes, np.float16).sum(0, dtype=np.float16))


@pytest.mark.parametrize(("step", "factor"), [(8184.0, 2.0), (8192.0, 0.5)])
def test_automatic_scale__at_the_edge__turns(step: float, factor: float) -> None:
    _, state = trained([Sgd(lr=0.25)], np.full((1, 3), step), dtype="f16", automatic=True)
    assert state["loss_scaling/factor"] == factor


def test_automatic_scale__one_large_gradient_among_micro_batches__counts() -> None:
    slopes = np.array([[1.0, 1.0, 1.0], [9000.0, 1.0, 1.0]])
    _, state = trained([Sgd(lr=0.25)], slopes, Schedule(accumulation=2), dtype="f16", automatic=True)
    assert state["loss_scaling/factor"] == 0.5


def test_automatic_scale__only_float32_gradients__is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="no float16 gradients to follow") as caught:
        trained([Sgd(lr=0.25)], np.full((2, 3), 1e6), Schedule(2), automatic=True)
    assert "are f32" in str(caught.value.because)
    assert "model.half()" in str(caught.value.remedy)


def test_automatic_scale__at_the_threshold__alternates_between_half_and_twice() -> None:
    # 8,188 lies between two halves: 1.5 · 4,096 · f is above the edge from f = 2 on.
    factors = []
    for steps in range(1, 7):
        slopes = np.full((steps, 3), 6144.0)
        _, state = trained([Sgd(lr=0.25)], slopes, Schedule(steps), dtype="f16", automatic=True)
        factors.append(state["loss_scaling/factor"])
    assert factors == [2.0, 1.0, 2.0, 1.0, 2.0, 1.0]


SUMS: dict[str, tuple[Any, bool, MeanStrategy, Any]] = {
    "float32_sum": ("f32", False, MeanStrategy.POST, 60001.0),
    "float32_mean": ("f32", True, MeanStrategy.POST, 60001.0 / 3),
    "float32_running": ("f32", True, MeanStrategy.RUNNING, 60001.0 / 3),
    # 40,000 + 20,001 is not in float16, and neither is 60,000 + 1.
    "half_sum": ("f16", False, MeanStrategy.POST, 60000.0),
    "half_mean_after": ("f16", True, MeanStrategy.POST, 20000.0),
    "half_running": ("f16", True, MeanStrategy.RUNNING, 20000.0),
}


@pytest.mark.parametrize("name", SUMS)
def test_accumulation__in_either_type__sums_or_means(name: str) -> None:
    dtype, mean, strategy, expected = SUMS[name]
    slopes = np.outer([40000.0, 20000.0, 1.0], np.ones(3))
    rule = Sgd(lr=1.0, accumulation=f16 if dtype == "f16" else Sgd().accumulation)
    (w,), _ = trained([rule], slopes, Schedule(accumulation=3, mean=mean, strategy=strategy))
    np.testing.assert_allclose(-w, np.full(3, expected), rtol=1e-3 if dtype == "f16" else 1e-6)


def test_accumulation__running_half_mean_of_large_gradients__does_not_overflow() -> None:
    slopes = np.full((4, 3), 60000.0)
    rule = Sgd(lr=1.0, accumulation=f16)
    with np.errstate(over="ignore"):
        (after,), _ = trained([rule], slopes, Schedule(accumulation=4, strategy=MeanStrategy.POST))
    (running,), _ = trained([rule], slopes, Schedule(accumulation=4, strategy=MeanStrategy.RUNNING))
    assert np.isinf(after).all()
    np.testing.assert_allclose(running, -60000.0, rtol=1e-3)
