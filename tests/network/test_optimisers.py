"""Optimisers on the device against torch.optim in float64, over several steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from meaning import Meaning

from abele.distribution import training_program
from abele.errors import InvalidOptionError
from abele.expr.derivative import arg
from abele.graph import Graph
from abele.kernels.nest.ir import apply
from abele.network import (
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    Group,
    Lamb,
    Lars,
    NAdam,
    NetworkBuilder,
    Optimiser,
    RAdam,
    RmsProp,
    Schedule,
    Sgd,
)
from abele.network.ops import build
from abele.numerics import f16
from support.examples import examples

torch = pytest.importorskip("torch")

STEPS, MANY = 5, 12
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
    "adamax": (Adamax(lr=0.05, weight_decay=0.1), lambda p: torch.optim.Adamax(p, lr=0.05, weight_decay=0.1)),
    "nadam": (NAdam(lr=0.05, weight_decay=0.1), lambda p: torch.optim.NAdam(p, lr=0.05, weight_decay=0.1)),
    "nadam_decoupled": (
        NAdam(lr=0.05, weight_decay=0.1, decoupled=True, momentum_decay=0.1, maximize=True),
        lambda p: torch.optim.NAdam(
            p, lr=0.05, weight_decay=0.1, decoupled_weight_decay=True, momentum_decay=0.1, maximize=True
        ),
    ),
    "radam": (RAdam(lr=0.05, weight_decay=0.1), lambda p: torch.optim.RAdam(p, lr=0.05, weight_decay=0.1)),
    "radam_short": (
        RAdam(lr=0.05, beta2=0.8, weight_decay=0.1, decoupled=True),
        lambda p: torch.optim.RAdam(p, lr=0.05, betas=(0.9, 0.8), weight_decay=0.1, decoupled_weight_decay=True),
    ),
    "rmsprop": (RmsProp(lr=0.05), lambda p: torch.optim.RMSprop(p, lr=0.05)),
    "rmsprop_centered": (
        RmsProp(lr=0.05, alpha=0.9, momentum=0.5, centered=True, weight_decay=0.1, eps=1e-3),
        lambda p: torch.optim.RMSprop(p, lr=0.05, alpha=0.9, momentum=0.5, centered=True, weight_decay=0.1, eps=1e-3),
    ),
    "adagrad": (
        Adagrad(lr=0.1, lr_decay=0.2, weight_decay=0.1, initial_accumulator_value=0.3),
        lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.2, weight_decay=0.1, initial_accumulator_value=0.3),
    ),
    "adadelta": (
        Adadelta(lr=0.5, rho=0.8, weight_decay=0.1),
        lambda p: torch.optim.Adadelta(p, lr=0.5, rho=0.8, weight_decay=0.1),
    ),
    "adam_maximize": (Adam(lr=0.05, maximize=True), lambda p: torch.optim.Adam(p, lr=0.05, maximize=True)),
}


def device_steps(optimiser: Optimiser, steps: int = STEPS) -> Any:
    """The parameter after some steps on Σ sin(w)·x."""
    net, graph = NetworkBuilder(), Graph("bow-2000")
    x, w = net.input((7,), "f32", "x"), net.parameter((7,), "f32", "w")
    net.loss = build.reduce(net, build.map_(net, apply("sin", arg(0)) * arg(1), [w, x]), [0])
    made = training_program(net.finish(), graph, Schedule(steps), [Group(optimiser, (w,))])
    state = Meaning(graph, {made.inputs[0].name: [data(step) for step in range(steps)]})
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
    steps = MANY if "radam" in name else STEPS
    for step in range(steps):
        optimiser.zero_grad()
        (torch.sin(w) * torch.from_numpy(data(step))).sum().backward()
        optimiser.step()
    np.testing.assert_allclose(device_steps(rule, steps), w.detach().numpy(), rtol=3e-6, atol=1e-6)


def lamb_step(w: Any, g: Any, moments: list[Any], step: int) -> Any:
    """LAMB of the paper, with decay 0.1, norms up to 1.2 and rate 0.05."""
    moments[0], moments[1] = 0.9 * moments[0] + 0.1 * g, 0.999 * moments[1] + 0.001 * g**2
    root = np.sqrt(moments[1] / (1 - 0.999**step)) + 1e-6
    x = moments[0] / (1 - 0.9**step) / root + 0.1 * w
    return w - 0.05 * min(np.linalg.norm(w), 1.2) / np.linalg.norm(x) * x


def test_lamb__several_steps__equals_the_published_formula() -> None:
    w, moments = START.copy(), [np.zeros(7), np.zeros(7)]
    for step in range(STEPS):
        w = lamb_step(w, np.cos(w) * data(step), moments, step + 1)
    rule = Lamb(lr=0.05, eps=1e-6, weight_decay=0.1, max_weight_norm=1.2)
    np.testing.assert_allclose(device_steps(rule), w, rtol=3e-6, atol=1e-6)


def test_lamb__of_a_parameter_that_is_zero__takes_the_step_of_adam() -> None:
    zero, gradient = np.zeros(3), np.array([1.0, -2.0, 3.0])
    np.testing.assert_allclose(Lamb(lr=0.5).first_step(zero, gradient), -0.5 * np.sign(gradient), rtol=1e-6)


def lars_step(w: Any, g: Any, momentum: Any) -> tuple[Any, Any]:
    """LARS of MLPerf, with decay 0.1, momentum 0.8, trust 0.02 and rate 2."""
    ratio = 0.02 * np.linalg.norm(w) / (np.linalg.norm(g) + 0.1 * np.linalg.norm(w))
    momentum = 0.8 * momentum + 2.0 * ratio * (g + 0.1 * w)
    return w - momentum, momentum


@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_lars__several_steps__equals_the_published_formula(scale: float) -> None:
    w, momentum = START.copy(), np.zeros(7)
    for step in range(STEPS):
        w, momentum = lars_step(w, np.cos(w) * data(step), momentum)
    rule = Lars(lr=2.0, momentum=0.8, weight_decay=0.1, trust_coefficient=0.02, loss_scaling=scale)
    np.testing.assert_allclose(device_steps(rule), w, rtol=3e-6, atol=1e-6)
    state: dict[str, Any] = {}
    meant = START.copy()
    for step in range(STEPS):
        meant = rule.step(state, meant, np.cos(meant) * data(step))
    np.testing.assert_allclose(meant, w, rtol=1e-9)


def test_lars__of_a_parameter_that_is_zero__takes_the_step_of_sgd() -> None:
    gradient = np.array([1.0, -2.0, 3.0])
    np.testing.assert_allclose(Lars(lr=0.5).first_step(np.zeros(3), gradient), -0.5 * gradient)


def test_lars__of_cut_gradients__is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="max_grad_value cuts gradients"):
        Lars(max_grad_value=1.0)


def test_rmsprop__with_eps_inside__adds_it_under_the_root() -> None:
    rule = RmsProp(lr=0.5, alpha=0.5, eps=0.5, eps_inside=True)
    np.testing.assert_allclose(rule.first_step(np.zeros(1), np.array([1.0])), [-0.5])


def half(values: Any) -> Any:
    return np.asarray(values, np.float16).astype(np.float64)


def test_state__in_half__is_rounded_to_it() -> None:
    rule, w, velocity = Sgd(lr=0.1, momentum=0.9, velocity_type=f16), START.copy(), np.zeros(7)
    for step in range(STEPS):
        moved = 0.9 * velocity + np.cos(w) * data(step)
        w, velocity = w - 0.1 * moved, half(moved)
    np.testing.assert_allclose(device_steps(rule), w, rtol=3e-6, atol=1e-6)


def test_velocity__that_is_scaled__makes_the_same_steps() -> None:
    plain, scaled = Sgd(momentum=0.9, nesterov=True), Sgd(momentum=0.9, nesterov=True, velocity_scaling=1024.0)
    np.testing.assert_allclose(device_steps(scaled), device_steps(plain), rtol=1e-6)


SMALL = st.floats(0.0, 1.0).map(lambda x: round(x, 3))
DECAY = st.floats(0.1, 0.99).map(lambda x: round(x, 3))
RATE = st.floats(1e-3, 0.5)
MOMENTS = {"lr": RATE, "betas": st.tuples(DECAY, DECAY), "eps": st.floats(1e-8, 1e-2), "weight_decay": SMALL}
BOTH = st.booleans()
FAMILIES: dict[str, tuple[type[Optimiser], dict[str, Any]]] = {
    "SGD": (Sgd, {"lr": RATE, "momentum": DECAY, "weight_decay": SMALL, "nesterov": BOTH, "maximize": BOTH}),
    "Adam": (Adam, {**MOMENTS, "maximize": BOTH}),
    "AdamW": (Adam, {**MOMENTS, "maximize": BOTH}),
    "Adamax": (Adamax, {**MOMENTS, "maximize": BOTH}),
    "NAdam": (NAdam, {**MOMENTS, "momentum_decay": SMALL, "decoupled_weight_decay": BOTH, "maximize": BOTH}),
    "RAdam": (RAdam, {**MOMENTS, "decoupled_weight_decay": BOTH, "maximize": BOTH}),
    "RMSprop": (
        RmsProp,
        {
            "lr": RATE,
            "alpha": DECAY,
            "eps": st.floats(1e-4, 1e-2),
            "weight_decay": SMALL,
            "momentum": SMALL,
            "centered": BOTH,
            "maximize": BOTH,
        },
    ),
    "Adagrad": (
        Adagrad,
        {"lr": RATE, "lr_decay": SMALL, "weight_decay": SMALL, "initial_accumulator_value": SMALL, "maximize": BOTH},
    ),
    "Adadelta": (Adadelta, {"lr": RATE, "rho": DECAY, "weight_decay": SMALL, "maximize": BOTH}),
}


def as_rule(family: str, given: dict[str, Any]) -> Optimiser:
    numbers = dict(given)
    if "betas" in numbers:
        numbers["beta1"], numbers["beta2"] = numbers.pop("betas")
    numbers["decoupled"] = numbers.pop("decoupled_weight_decay", family == "AdamW")
    kind = FAMILIES[family][0]
    return kind(**{k: v for k, v in numbers.items() if k in kind.__dataclass_fields__})


@pytest.mark.parametrize("family", FAMILIES)
def test_rule__any_hyper_parameters__takes_pytorch_s_steps(family: str) -> None:
    @examples(8)
    @given(st.fixed_dictionaries(FAMILIES[family][1]))
    def check(numbers: dict[str, Any]) -> None:
        w = torch.nn.Parameter(torch.from_numpy(START.copy()))
        optimiser, rule = getattr(torch.optim, family)([w], **numbers), as_rule(family, numbers)
        state: dict[str, Any] = {}
        values = START.copy()
        for step in range(12):
            gradient = data(step)
            w.grad = torch.from_numpy(gradient.copy())
            optimiser.step()
            values = rule.step(state, values, -gradient if rule.maximises else gradient)
        np.testing.assert_allclose(values, w.detach().numpy(), rtol=1e-5, atol=1e-6)

    check()


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
