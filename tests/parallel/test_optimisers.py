"""Optimisers on the device against torch.optim in float64, over several steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from meaning import Meaning

from abele.errors import InvalidOptionError
from abele.expr.derivative import arg
from abele.graph import Graph
from abele.kernels.nest.ir import apply
from abele.parallel import Adam, Group, NetworkBuilder, Optimiser, Schedule, Sgd, training_program
from abele.parallel.ops import build

torch = pytest.importorskip("torch")

STEPS = 5
START = np.linspace(-1.0, 1.0, 7)

CASES: dict[str, tuple[Optimiser, Callable[[Any], Any]]] = {
    "sgd": (Sgd(lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
    "momentum": (Sgd(lr=0.1, momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    "dampening": (
        Sgd(lr=0.1, momentum=0.9, dampening=0.3),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3),
    ),
    "nesterov": (
        Sgd(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.02),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.02),
    ),
    "maximize": (Sgd(lr=0.01, maximize=True), lambda p: torch.optim.SGD(p, lr=0.01, maximize=True)),
    "all_variable": (
        Sgd(
            lr=0.1,
            momentum=0.9,
            dampening=0.3,
            weight_decay=0.02,
            variable=frozenset({"lr", "momentum", "dampening", "weight_decay"}),
        ),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.02),
    ),
    "adam": (Adam(lr=0.05), lambda p: torch.optim.Adam(p, lr=0.05)),
    "adam_decay": (
        Adam(lr=0.05, beta1=0.8, beta2=0.95, weight_decay=0.1),
        lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.8, 0.95), weight_decay=0.1),
    ),
    "adamw": (
        Adam(
            lr=0.05,
            weight_decay=0.1,
            decoupled=True,
            variable=frozenset({"lr", "beta1", "beta2", "weight_decay", "eps"}),
        ),
        lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1),
    ),
    "adam_maximize": (Adam(lr=0.05, maximize=True), lambda p: torch.optim.Adam(p, lr=0.05, maximize=True)),
}


def device_steps(optimiser: Optimiser) -> Any:
    """The parameter after some steps on Σ sin(w)·x."""
    net, graph = NetworkBuilder(), Graph("bow-2000")
    x, w = net.input((7,), "f32", "x"), net.parameter((7,), "f32", "w")
    net.loss = build.reduce(net, build.map_(net, apply("sin", arg(0)) * arg(1), [w, x]), [0])
    made = training_program(net.finish(), graph, Schedule(STEPS), [Group(optimiser, (w,))])
    state = Meaning(graph, {made.inputs[0].name: [data(step) for step in range(STEPS)]})
    state.write(made.weights["w"], START)
    state.run(made.program)
    return state.read(made.weights["w"])


def data(step: int) -> Any:
    return np.cos(np.arange(7) + step)


@pytest.mark.parametrize("name", CASES)
def test_update__several_steps__equal_pytorch(name: str) -> None:
    rule, make = CASES[name]
    w = torch.nn.Parameter(torch.from_numpy(START.copy()))
    optimiser = make([w])
    for step in range(STEPS):
        optimiser.zero_grad()
        (torch.sin(w) * torch.from_numpy(data(step))).sum().backward()
        optimiser.step()
    np.testing.assert_allclose(device_steps(rule), w.detach().numpy(), rtol=3e-6, atol=1e-6)


def test_check_replacement__constant_that_changed__is_named() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        Sgd(momentum=0.9).check_replacement(Sgd(lr=0.5, momentum=0.8))
    assert "Sgd.momentum was compiled as the constant 0.9, it cannot become 0.8" in str(caught.value)
    assert "mark momentum as variable before compiling" in str(caught.value)


def test_check_replacement__variable_that_changed__passes() -> None:
    Sgd(lr=0.1).check_replacement(Sgd(lr=0.5))


def test_check_replacement__another_rule__is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="compiled for Sgd, not Adam"):
        Sgd().check_replacement(Adam())
