"""Optimisers of float16 weights with moments and sums by type, against NumPy that rounds where they are stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from abele import poptorch

SIZE, STEPS, SCALE, MICRO = 512, 6, 128.0, 2
START = np.linspace(-2, 2, SIZE).astype(np.float16)
HALF, SINGLE = torch.half, torch.float
DATA = np.random.default_rng(8).normal(size=(STEPS, MICRO, SIZE)).astype("f4")


class Slope(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(START))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return poptorch.identity_loss((self.weight.float() * x).sum(), reduction="none")


def stored(value: np.ndarray, kind: torch.dtype) -> np.ndarray:
    return value.astype("f2").astype("f8") if kind == HALF else value.astype("f4").astype("f8")


def gradients() -> np.ndarray:
    """Of each step: halves of the scaled loss, their mean in f32, the scale taken out."""
    halves = stored(SCALE * DATA, HALF)
    return halves.mean(1) / SCALE


def sgd(w: np.ndarray, g: np.ndarray, state: dict[str, Any], kind: torch.dtype) -> np.ndarray:
    v = 0.9 * state.get("v", 0.0) + (g + 0.01 * w)
    state["v"] = stored(v, kind)
    return w - 0.05 * v


def adam(w: np.ndarray, g: np.ndarray, state: dict[str, Any], kind: torch.dtype, decay: float = 0.0) -> np.ndarray:
    t = state["t"] = state.get("t", 0) + 1
    m, v = 0.9 * state.get("m", 0.0) + 0.1 * g, 0.99 * state.get("v", 0.0) + 0.01 * g * g
    state["m"], state["v"] = stored(m, kind), stored(v, SINGLE)
    x = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.99**t)) + 1e-5) + decay * w
    return w - 0.05 * x


def adamw(w: np.ndarray, g: np.ndarray, state: dict[str, Any], kind: torch.dtype) -> np.ndarray:
    return adam(w, g, state, kind, 0.1)


def lamb(w: np.ndarray, g: np.ndarray, state: dict[str, Any], kind: torch.dtype) -> np.ndarray:
    x = (w - adam(w, g, state, kind, 0.1)) / 0.05
    return w - 0.05 * np.linalg.norm(w) / np.linalg.norm(x) * x


def clipped(w: np.ndarray, g: np.ndarray, state: dict[str, Any], kind: torch.dtype) -> np.ndarray:
    return adamw(w, g * min(1.0, 5.0 / np.linalg.norm(g)), state, kind)


MOMENTS: dict[str, Any] = {"betas": (0.9, 0.99), "eps": 1e-5, "loss_scaling": SCALE, "lr": 0.05}
Rule = tuple[Callable[..., np.ndarray], Callable[[Any, torch.dtype], Any]]
RULES: dict[str, Rule] = {
    "sgd": (
        sgd,
        lambda p, kind: poptorch.optim.SGD(
            p,
            lr=0.05,
            momentum=0.9,
            weight_decay=0.01,
            loss_scaling=SCALE,
            velocity_accum_type=kind,
            use_combined_accum=False,
        ),
    ),
    "adam": (adam, lambda p, kind: poptorch.optim.Adam(p, first_order_momentum_accum_type=kind, **MOMENTS)),
    "adamw": (
        adamw,
        lambda p, kind: poptorch.optim.AdamW(p, weight_decay=0.1, first_order_momentum_accum_type=kind, **MOMENTS),
    ),
    "lamb": (
        lamb,
        lambda p, kind: poptorch.optim.LAMB(p, weight_decay=0.1, first_order_momentum_accum_type=kind, **MOMENTS),
    ),
    "max_grad_norm": (
        clipped,
        lambda p, kind: poptorch.optim.AdamW(
            p, weight_decay=0.1, max_grad_norm=5.0, first_order_momentum_accum_type=kind, **MOMENTS
        ),
    ),
}


def trained(rule: str, kind: torch.dtype, *, random: bool = False) -> np.ndarray:
    options = poptorch.Options().deviceIterations(STEPS)
    options.Training.gradientAccumulation(MICRO)
    options.Abele.threads(1)
    options.Precision.enableStochasticRounding(random)
    model = Slope()
    training = poptorch.trainingModel(model, options, RULES[rule][1](model.parameters(), kind))
    training(torch.tensor(DATA.reshape(STEPS * MICRO, SIZE)))
    return model.weight.detach().double().numpy()


def expected(rule: str, kind: torch.dtype) -> np.ndarray:
    w, state = START.astype("f8"), dict[str, Any]()
    for g in gradients():
        w = stored(RULES[rule][0](w, g, state, kind), HALF)
    return w


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", [HALF, SINGLE], ids=str)
def test_half_weights__with_moments_of_a_type__are_numpys(rule: str, kind: torch.dtype) -> None:
    got, want = trained(rule, kind), expected(rule, kind)
    # A step computed in f32 falls on the other side of a half now and then.
    step = np.spacing(np.abs(want).astype("f2")).astype("f8")
    assert (np.abs(got - want) <= 2 * step).all()
    assert (got == want).mean() > 0.97


@pytest.mark.parametrize("rule", ["adamw", pytest.param("sgd", marks=pytest.mark.slow)])
def test_half_weights__rounded_at_random__stay_near_exact_ones(rule: str) -> None:
    w, state = START.astype("f8"), dict[str, Any]()
    for g in DATA.astype("f8").mean(1):
        w = RULES[rule][0](w, g, state, SINGLE)
    # Adam's first step is the sign of a gradient, whatever its size; near zero, rounding decides the sign.
    clear = np.abs(DATA[0].mean(0)) > 4 * np.spacing(np.abs(stored(SCALE * DATA[0], HALF)).astype("f2")).max(0) / SCALE
    assert clear.mean() > 0.95
    error = (trained(rule, HALF, random=True) - w)[clear]
    # Six roundings: each by less than the distance of halves near the largest weight, and of mean zero.
    step = float(np.spacing(np.abs(START).max()))
    assert np.abs(error).max() < STEPS * step
    assert abs(error.mean()) < 4 * np.sqrt(STEPS / 12) * step / np.sqrt(SIZE)
