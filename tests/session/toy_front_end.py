"""A front end in a page: functions of traced values, trained and run on sessions, with NumPy alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.arrays import Array
from abele.expr.derivative import arg
from abele.network import Group, Network, NetworkBuilder, Optimiser, Value
from abele.network.ops import build
from abele.numerics import f32
from abele.session import Schedule, Session, SessionCache, Settings, SharedArrays, Signature
from abele.session.feeds import micro_batch_shape

ONE = Schedule()


@dataclass(frozen=True)
class Traced:
    """A value of the network that is being built."""

    net: NetworkBuilder
    value: Value

    def _map(self, expression: Any, *others: Traced) -> Traced:
        return Traced(self.net, build.map_(self.net, expression, [self.value, *(o.value for o in others)]))

    def __mul__(self, other: Traced | float) -> Traced:
        return self._map(arg(0) * arg(1), other) if isinstance(other, Traced) else self._map(arg(0) * other)

    def __sub__(self, other: Traced) -> Traced:
        return self._map(arg(0) - arg(1), other)

    def __add__(self, other: Traced) -> Traced:
        return self._map(arg(0) + arg(1), other)

    def linear(self, weight: Traced, bias: Traced) -> Traced:
        return Traced(self.net, build.linear(self.net, self.value, weight.value, bias.value))

    def tanh(self) -> Traced:
        return Traced(self.net, build.nonlinearity(self.net, "tanh", self.value))

    def mean(self) -> Traced:
        return Traced(self.net, build.mean(self.net, self.value, list(range(self.value.ndim))))


Function = Callable[[Mapping[str, Traced], list[Traced]], list[Traced]]


def trace(function: Function, weights: SharedArrays, signature: Signature, schedule: Schedule) -> Network:
    """The network of a function whose first result is its loss."""
    net = NetworkBuilder()
    shapes = [micro_batch_shape(spec.shape, schedule) for spec in signature.arrays]
    inputs = [Traced(net, net.input(shape, f32, f"x{i}")) for i, shape in enumerate(shapes)]
    named = {name: Traced(net, net.parameter(weights.cell(name).shape, f32, name)) for name in weights}
    results = function(named, inputs)
    net.loss = results[0].value
    net.outputs += [r.value for r in results]
    return net.finish()


class Trainer:
    """Trains and evaluates one function; each form of its arguments is compiled once."""

    def __init__(self, function: Function, weights: Mapping[str, Array], optimiser: Optimiser, **settings: Any) -> None:
        self.function = function
        self.weights = SharedArrays(weights)
        self.state = SharedArrays()
        self.optimiser = optimiser
        self.settings = Settings(**settings)
        self.sessions = SessionCache(self._compile, most=3)

    def _compile(self, signature: Signature) -> Session:
        mode, schedule = signature.static
        assert isinstance(schedule, Schedule)
        net = trace(self.function, self.weights, signature, schedule)
        groups = [Group(self.optimiser, net.parameters)] if mode == "train" else None
        return Session.of(net, schedule, groups=groups, settings=self.settings, weights=self.weights, state=self.state)

    def train(self, *inputs: Array, schedule: Schedule = ONE) -> tuple[Array, ...]:
        return self.sessions[Signature.of(inputs, "train", schedule)](*inputs)

    def evaluate(self, *inputs: Array, schedule: Schedule = ONE) -> tuple[Array, ...]:
        return self.sessions[Signature.of(inputs, "evaluate", schedule)](*inputs)


def mlp(weights: Mapping[str, Traced], inputs: list[Traced]) -> list[Traced]:
    """Two layers, and the mean squared error as the loss."""
    x, target = inputs
    hidden = x.linear(weights["in.weight"], weights["in.bias"]).tanh()
    scores = hidden.linear(weights["out.weight"], weights["out.bias"])
    error = scores - target
    return [(error * error).mean(), scores]


def mlp_weights(seed: int = 0, features: int = 3, hidden: int = 5, classes: int = 2) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        "in.weight": rng.normal(size=(hidden, features)).astype(np.float32),
        "in.bias": rng.normal(size=hidden).astype(np.float32),
        "out.weight": rng.normal(size=(classes, hidden)).astype(np.float32),
        "out.bias": np.zeros(classes, np.float32),
    }


def mlp_batch(size: int, seed: int = 1, features: int = 3, classes: int = 2) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(size, features)).astype(np.float32), rng.normal(size=(size, classes)).astype(np.float32)


def mlp_gradients(weights: Mapping[str, Array], x: Array, target: Array) -> tuple[float, dict[str, Array]]:
    """The loss and its gradients in NumPy, in float64."""
    w = {name: np.asarray(a, np.float64) for name, a in weights.items()}
    hidden = np.tanh(x @ w["in.weight"].T + w["in.bias"])
    scores = hidden @ w["out.weight"].T + w["out.bias"]
    error = 2 * (scores - target) / scores.size
    inner = (error @ w["out.weight"]) * (1 - hidden**2)
    gradients = {
        "in.weight": inner.T @ x,
        "in.bias": inner.sum(0),
        "out.weight": error.T @ hidden,
        "out.bias": error.sum(0),
    }
    return float(((scores - target) ** 2).mean()), gradients


def mlp_trained(
    weights: Mapping[str, Array], x: Array, target: Array, schedule: Schedule, *, lr: float, momentum: float = 0.0
) -> tuple[dict[str, Array], list[float]]:
    """Weights after one run, and the loss of each micro-batch, in NumPy."""
    w = {name: np.asarray(a, np.float64) for name, a in weights.items()}
    velocity = {name: np.zeros_like(a) for name, a in w.items()}
    xs, targets = (np.split(a, schedule.micro_batches) for a in (x, target))
    losses = []
    for step in range(schedule.device_iterations):
        total = {name: np.zeros_like(a) for name, a in w.items()}
        for i in range(step * schedule.accumulation, (step + 1) * schedule.accumulation):
            loss, gradients = mlp_gradients(w, xs[i], targets[i])
            losses.append(loss)
            for name, gradient in gradients.items():
                total[name] += gradient / (schedule.accumulation if schedule.mean else 1)
        for name, gradient in total.items():
            velocity[name] = momentum * velocity[name] + gradient
            w[name] -= lr * velocity[name]
    return w, losses
