"""Gradients that an automatic scale of the loss follows: their counts against gradients worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from meaning import Meaning

from abele.distribution import training_program
from abele.errors import InvalidOptionError
from abele.expr.derivative import arg
from abele.graph import Graph
from abele.graph.debug import DebugRecord
from abele.kernels.nest.ir import apply
from abele.network import (
    BlockBuilder,
    Group,
    Network,
    NetworkBuilder,
    Schedule,
    Sgd,
    Value,
    differentiate,
    evaluate,
    parse,
    training_pipeline,
)
from abele.network.automatic_scale import AutomaticLossScale, GradientTracking
from abele.network.ops import build
from abele.network.passes import Outline
from abele.numerics import f16

ALL, PRODUCTS, NAMED = GradientTracking
SAMPLES, WIDTH, OUT = 5, 4, 3
RNG = np.random.default_rng(4)
ARRAYS = {
    "x": RNG.normal(size=(SAMPLES, WIDTH)),
    "one.weight": RNG.normal(size=(WIDTH, WIDTH)),
    "two.weight": RNG.normal(size=(WIDTH, OUT)),
}


def network() -> tuple[Network, list[Value]]:
    """Σ (tanh(x·one) reshaped, turned and turned back)·two, each op in the module of its weight."""
    net = NetworkBuilder()
    x = net.input(ARRAYS["x"].shape, f16, "x")
    one, two = (net.parameter(ARRAYS[n].shape, f16, n) for n in ("one.weight", "two.weight"))
    with net.at(DebugRecord("matmul", "one")):
        hidden = build.matmul(net, x, one)
    with net.at(DebugRecord("tanh", "one/act")):
        hidden = build.nonlinearity(net, "tanh", hidden)
    with net.at(DebugRecord("matmul", "two")):
        turned = build.permute(net, build.permute(net, hidden, [1, 0]), [1, 0])
        result = build.matmul(net, turned, two)
    net.loss = build.reduce(net, result, [0, 1])
    return net.finish(), [one, two]


def gradients() -> dict[str, np.ndarray]:
    """Those of every result and parameter."""
    x, one, two = ARRAYS.values()
    hidden = np.tanh(x @ one)
    of_result = np.ones((SAMPLES, OUT))
    of_hidden = of_result @ two.T
    of_product = of_hidden * (1 - hidden**2)
    return {
        "result": of_result,
        "hidden": of_hidden,
        "product": of_product,
        "two.weight": hidden.T @ of_result,
        "one.weight": x.T @ of_product,
    }


def counts_of(net: Network, arrays: dict[str, Any]) -> np.ndarray:
    """Counts in one micro-batch."""
    (total,) = net.accumulators
    given = {v: arrays[v.name] for v in (*net.inputs, *net.parameters)} | {total: np.zeros(2)}
    return evaluate(net, given)[net.updates[total]]


TRACKED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "all": ({}, ["result", "hidden", "product", "two.weight", "one.weight"]),
    "products": ({"tracking": PRODUCTS}, ["hidden", "two.weight", "one.weight"]),
    "parameter": ({"tracking": NAMED, "tensors": ("one.weight",)}, ["one.weight"]),
    "module": ({"tracking": NAMED, "tensors": ("one",)}, ["hidden", "product", "one.weight"]),
    "inner_module": ({"tracking": NAMED, "tensors": ("one.act",)}, ["hidden"]),
    "pattern": ({"tracking": NAMED, "tensors": ("*.weight", "two")}, ["result", "hidden", "two.weight", "one.weight"]),
}


@pytest.mark.parametrize("name", TRACKED)
def test_gradients__tracked_by_a_method__are_counted_once(name: str) -> None:
    told, counted = TRACKED[name]
    for edge in (0.3, 0.9, 1.5):
        scale = AutomaticLossScale(edge_proportion=edge / 65504, **told)
        net, weights = network()
        made = differentiate(net, weights, variable_scale=1.0, counted=scale)
        elements = np.abs(np.concatenate([gradients()[n].ravel() for n in counted]))
        small = (elements < scale.edge).sum()
        np.testing.assert_array_equal(counts_of(made, ARRAYS), [small, elements.size - small])


def test_gradients__counted__network_reads_back_equal() -> None:
    net, weights = network()
    scale = AutomaticLossScale(period=3)
    made = training_pipeline(Schedule(2), [Group(Sgd(), tuple(weights))], automatic_loss_scale=scale).run(net)
    assert {"magnitudes", "sum_counts", "add_counts"} <= {op.kind for op in made.ops}
    assert parse(str(made)) == made


def test_gradients__of_parameters__are_counted_where_they_are_made() -> None:
    net, weights = network()
    ops = differentiate(net, weights, variable_scale=1.0, counted=AutomaticLossScale()).ops
    makers = {v: n for n, op in enumerate(ops) for v in op.outputs}
    distances = [n - makers[op.inputs[0]] for n, op in enumerate(ops) if op.kind == "magnitudes"]
    assert max(distances) == 1


# --- blocks -----------------------------------------------------------------------------------------------------------

LAYERS = 3


def layer(net: BlockBuilder, x: Value, weight: Value) -> Value:
    """Layer that is repeated: nine ops, all of one shape."""
    for function in ("tanh", "sigmoid", "tanh", "sigmoid", "tanh"):
        x = build.nonlinearity(net, function, build.map_(net, arg(0) * arg(1), [x, weight]))
    return build.map_(net, apply("square", arg(0)) + arg(0), [x])


def in_line(net: NetworkBuilder, x: Value, weight: Value) -> Value:
    for _ in range(LAYERS):
        x = layer(net, x, weight)
    return x


def in_checkpoints(net: NetworkBuilder, x: Value, weight: Value) -> Value:
    for _ in range(LAYERS):
        now = x

        def body(region: BlockBuilder, now: Value = now) -> list[Value]:
            return [layer(region, region.read(now), region.read(weight))]

        (x,) = build.checkpoint(net, body)
    return x


def in_a_loop(net: NetworkBuilder, x: Value, weight: Value) -> Value:
    (x,) = build.loop(net, LAYERS, [x], lambda region, _, now: [layer(region, now, region.read(weight))])
    return x


def in_branches(net: NetworkBuilder, x: Value, weight: Value) -> Value:
    yes = net.constant(True, "bool")
    for _ in range(LAYERS):
        now = x

        def taken(region: BlockBuilder, now: Value = now) -> list[Value]:
            return [layer(region, region.read(now), region.read(weight))]

        def other(region: BlockBuilder, now: Value = now) -> list[Value]:
            return [build.nonlinearity(region, "relu", region.read(now))]

        (x,) = build.cond(net, yes, taken, other)
    return x


def repeated(body: Callable[[NetworkBuilder, Value, Value], Value]) -> tuple[Network, Value]:
    net = NetworkBuilder()
    x, weight = net.input((6,), f16, "x"), net.parameter((6,), f16, "w")
    net.loss = build.reduce(net, body(net, x, weight), [0])
    return net.finish(), weight


def repeated_counts(body: Callable[..., Value], edge: float, *, outlined: bool = False) -> np.ndarray:
    net, weight = repeated(body)
    if outlined:
        net = Outline().run(net)
        assert any(op.kind == "call" for op in net.ops)
    made = differentiate(net, [weight], variable_scale=1.0, counted=AutomaticLossScale(edge_proportion=edge / 65504))
    arrays = {"x": np.linspace(-1, 1, 6), "w": np.linspace(0.5, 3, 6)}
    return counts_of(made, arrays)


@pytest.mark.parametrize("body", [in_line, in_checkpoints, in_a_loop, in_branches])
@settings(max_examples=5)
@given(edge=st.floats(0.01, 2.0))
def test_counts__in_blocks__are_those_of_the_same_ops_in_line(body: Callable[..., Value], edge: float) -> None:
    expected = repeated_counts(in_line, edge)
    assert expected.sum() == 6 * (10 * LAYERS + LAYERS + 1)  # Each result, and the parameter.
    np.testing.assert_array_equal(repeated_counts(body, edge), expected)
    if body is in_line:
        np.testing.assert_array_equal(repeated_counts(body, edge, outlined=True), expected)


# --- on the device ----------------------------------------------------------------------------------------------------


def moved(slopes: Any, scale: AutomaticLossScale, *, accumulation: int = 1, replicas: int = 1) -> float:
    """The scale's factor after a run on the loss Σ slope·(w/1024): the gradient of w is 2⁻¹⁰ of that of the product."""
    net, graph = NetworkBuilder(), Graph("bow-2000", replicas=replicas)
    x, w = net.input((3,), "f16", "x"), net.parameter((3,), "f16", "w")
    with net.at(DebugRecord("shrink", "inside")):
        small = build.map_(net, arg(0) * 2.0**-10, [w])
    net.loss = build.reduce(net, build.map_(net, arg(0) * arg(1), [x, small]), [0])
    schedule = Schedule(len(slopes) // accumulation, accumulation=accumulation)
    groups = [Group(Sgd(lr=0.0), (w,))]
    made = training_program(net.finish(), graph, schedule, groups, automatic_loss_scale=scale)
    state = Meaning(graph, {made.inputs[0].name: list(np.asarray(slopes, float)[:, None] * np.ones(3))})
    state.run(made.program)
    assert made.scale is not None
    return float(state.read(made.scale.state["loss_scaling/factor"]))


def test_scale__of_large_gradients_of_activations_alone__is_halved() -> None:
    weights = AutomaticLossScale(tracking=NAMED, tensors=("w",))
    inside = AutomaticLossScale(tracking=NAMED, tensors=("inside",))
    assert moved([16384.0], AutomaticLossScale()) == 0.5
    assert moved([16384.0], inside) == 0.5
    assert moved([16384.0], weights) == 2.0


@pytest.mark.parametrize(("edge", "factor"), [(0.25, 0.5), (0.26, 2.0), (0.0, 0.5), (1.0, 2.0)])
def test_scale__by_its_edge__turns_there(edge: float, factor: float) -> None:
    # 16,376 is a quarter of 65,504.
    assert moved([16376.0], AutomaticLossScale(edge_proportion=edge)) == factor


@pytest.mark.parametrize(("threshold", "factor"), [(0.0, 0.5), (0.33, 0.5), (0.34, 2.0), (1.0, 2.0)])
def test_scale__by_its_threshold__turns_there(threshold: float, factor: float) -> None:
    # A third of the gradients are large: not those of the weight and of what is summed.
    assert moved([16384.0], AutomaticLossScale(threshold_proportion=threshold)) == factor


def test_scale__with_a_period__moves_by_the_last_of_its_steps() -> None:
    scale = AutomaticLossScale(period=3)
    assert [moved([1.0] * steps, scale) for steps in range(1, 8)] == [1, 1, 2, 2, 2, 4, 4]
    assert moved([16384.0, 16384.0, 1.0], scale) == 2.0
    assert moved([1.0, 1.0, 16384.0], scale) == 0.5
    assert moved([1.0, 1.0, 1.0, 1.0, 1.0, 16384.0], scale, accumulation=2) == 0.5


# --- what is refused --------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "edge": ({"edge_proportion": 1.5}, "the edge of automatic loss scaling is a proportion from 0 to 1, not 1.5"),
    "not_a_number": ({"edge_proportion": float("nan")}, "the edge of automatic loss scaling is a proportion"),
    "threshold": ({"threshold_proportion": -1.0}, "the threshold of automatic loss scaling is a proportion"),
    "period": ({"period": 0}, "moves every 1 or more updates, not every 0"),
    "no_names": ({"tracking": NAMED}, "is to follow named gradients, and none are named"),
    "names_and_all": ({"tensors": ("w",)}, r"has names of gradients to follow \(w\), but is to track all"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_automatic_scale__that_cannot_be__is_refused(name: str) -> None:
    told, text = REFUSED[name]
    with pytest.raises(InvalidOptionError, match=text):
        AutomaticLossScale(**told)


def test_names__that_nothing_has__are_refused_with_the_nearest() -> None:
    net, weights = network()
    with pytest.raises(InvalidOptionError, match=r"follow the gradients of 'one.wieght', and there are none") as caught:
        differentiate(
            net, weights, variable_scale=1.0, counted=AutomaticLossScale(tracking=NAMED, tensors=("one.wieght",))
        )
    assert caught.value.remedy == "did you mean 'one.weight'?"


def test_products__in_a_network_without_any__are_refused() -> None:
    with pytest.raises(InvalidOptionError, match="no float16 gradients to follow") as caught:
        moved([1.0], AutomaticLossScale(tracking=PRODUCTS))
    assert "none at all" in str(caught.value.because)
