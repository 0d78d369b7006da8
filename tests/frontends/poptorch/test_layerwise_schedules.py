"""LARS and LAMB as published runs use them, against NumPy in float64: warm-up, polynomial decay, and biases left out.

The network is a linear layer with a squared error, whose gradients are written out here, so that neither PyTorch's
derivatives nor its optimisers take part in what is expected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR, LinearLR, PolynomialLR, SequentialLR

from abele import poptorch

F64 = npt.NDArray[np.float64]
Arrays = dict[str, F64]
STEPS, WARM = 12, 4
LARS, LAMB = poptorch.optim.LARS, poptorch.optim.LAMB


class Line(torch.nn.Module):
    """Mean squared error of a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.line = torch.nn.Linear(5, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return poptorch.identity_loss(((self.line(x) - y) ** 2).mean(), reduction="none")


def batches(count: int = STEPS) -> list[tuple[torch.Tensor, torch.Tensor]]:
    made = torch.Generator().manual_seed(8)
    return [(torch.randn(4, 5, generator=made), torch.randn(4, 3, generator=made)) for _ in range(count)]


def gradients(p: Arrays, x: F64, y: F64) -> Arrays:
    """Of the mean over all elements of (x Wᵀ + b − y)²."""
    off = 2 * (x @ p["weight"].T + p["bias"] - y) / y.size
    return {"weight": off.T @ x, "bias": off.sum(axis=0)}


def published_rate(step: int, peak: float, power: float) -> float:
    """Linear warm-up from peak/4 at the first step, then a polynomial to zero."""
    if step < WARM:
        return peak * (step + 1) / WARM
    return peak * (1 - (step - WARM) / (STEPS - WARM)) ** power


def lars(p: Arrays, g: Arrays, kept: Arrays, rate: float, *, decay: float, trust: float) -> None:
    """You et al. 2017 with momentum of steps; the bias takes a plain step without decay."""
    size, slope = math.sqrt((p["weight"] ** 2).sum()), math.sqrt((g["weight"] ** 2).sum())
    local = trust * size / (slope + decay * size)
    kept["weight"] = 0.9 * kept["weight"] + rate * local * (g["weight"] + decay * p["weight"])
    kept["bias"] = 0.9 * kept["bias"] + rate * g["bias"]
    for name in p:
        p[name] = p[name] - kept[name]


def lamb(
    p: Arrays, g: Arrays, kept: Arrays, rate: float, *, decay: float, step: int, decayed: tuple[str, ...] = ("weight",)
) -> None:
    """You et al. 2020, algorithm 2; the bias has no decay unless it is named."""
    for name in p:
        m = kept["m" + name] = 0.9 * kept.get("m" + name, 0.0) + 0.1 * g[name]
        v = kept["v" + name] = 0.999 * kept.get("v" + name, 0.0) + 0.001 * g[name] ** 2
        r = m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-6)
        r = r + (decay if name in decayed else 0.0) * p[name]
        p[name] = p[name] - rate * math.sqrt((p[name] ** 2).sum()) / math.sqrt((r**2).sum()) * r


def scheduled(kind: str, optimiser: Any, peak: float, power: float) -> Any:
    """Schedulers of PyTorch that say :func:`published_rate`, or the function itself."""
    if kind == "function":
        return LambdaLR(optimiser, lambda step: published_rate(step, peak, power) / peak)
    rising = LinearLR(optimiser, start_factor=1 / WARM, end_factor=1.0, total_iters=WARM - 1)
    falling = PolynomialLR(optimiser, total_iters=STEPS - WARM, power=power)
    return SequentialLR(optimiser, [rising, falling], milestones=[WARM])


def trained(make: Callable[[Any], Any], scheduler: Callable[[Any], Any]) -> tuple[Arrays, list[float]]:
    """The parameters after all steps, and the rates of the steps."""
    model = Line()
    optimiser = make([{"params": [model.line.weight]}, {"params": [model.line.bias], "weight_decay": 0.0}])
    moved = scheduler(optimiser)
    training = poptorch.trainingModel(model, poptorch.Options(), optimiser)
    rates = []
    for batch in batches():
        rates.append(float(optimiser.param_groups[0]["lr"]))
        training.setOptimizer(optimiser)
        training(*batch)
        moved.step()
    training.copyWeightsToHost()
    return parameters(model), rates


def parameters(model: Line) -> Arrays:
    return {name: p.detach().double().numpy().copy() for name, p in model.line.named_parameters()}


def doubles() -> Iterator[tuple[F64, F64]]:
    return ((x.double().numpy(), y.double().numpy()) for x, y in batches())


# torch 2.x: SequentialLR calls its first scheduler with a deprecated argument.
@pytest.mark.filterwarnings("ignore:The epoch parameter in")
@pytest.mark.parametrize("kind", ["schedulers", pytest.param("function", marks=pytest.mark.slow)])
def test_lars__warm_up_then_square_decay__takes_the_published_steps(kind: str) -> None:
    wanted = parameters(Line())
    kept = {name: np.zeros_like(value) for name, value in wanted.items()}
    for step, (x, y) in enumerate(doubles()):
        lars(wanted, gradients(wanted, x, y), kept, published_rate(step, 2.0, 2.0), decay=0.05, trust=0.02)

    def make(groups: Any) -> Any:
        groups[1]["layerwise"] = False
        return LARS(groups, lr=2.0, momentum=0.9, weight_decay=0.05, trust_coefficient=0.02)

    found, rates = trained(make, lambda optimiser: scheduled(kind, optimiser, 2.0, 2.0))
    np.testing.assert_allclose(rates, [published_rate(step, 2.0, 2.0) for step in range(STEPS)], rtol=1e-12)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:The epoch parameter in")
@pytest.mark.parametrize("kind", ["schedulers", pytest.param("function", marks=pytest.mark.slow)])
def test_lamb__warm_up_then_linear_decay__takes_the_published_steps(kind: str) -> None:
    wanted, kept = parameters(Line()), {}
    for step, (x, y) in enumerate(doubles()):
        lamb(wanted, gradients(wanted, x, y), kept, published_rate(step, 0.1, 1.0), decay=0.3, step=step + 1)

    def make(groups: Any) -> Any:
        return LAMB(groups, lr=0.1, eps=1e-6, weight_decay=0.3)

    found, _ = trained(make, lambda optimiser: scheduled(kind, optimiser, 0.1, 1.0))
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=1e-6)


def test_lamb__decay_of_biases__would_be_seen() -> None:
    """The oracle tells biases with decay from those without: the comparison above can fail."""
    found = []
    for decayed in (("weight",), ("weight", "bias")):
        made, kept = parameters(Line()), {}
        for step, (x, y) in enumerate(doubles()):
            rate = published_rate(step, 0.1, 1.0)
            lamb(made, gradients(made, x, y), kept, rate, decay=0.3, step=step + 1, decayed=decayed)
        found.append(made["bias"])
    assert np.abs(found[1] - found[0]).max() > 1e-3


@pytest.mark.parametrize("factor", [pytest.param(4.0, marks=pytest.mark.slow), 1000.0])
@pytest.mark.parametrize("kind", ["LARS", "LAMB"])
def test_steps__of_a_loss_times_a_factor__are_those_of_the_loss(kind: str, factor: float) -> None:
    """What layers are trusted with takes the size of gradients out; the reason why one rate does for large batches."""

    class Louder(Line):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return poptorch.identity_loss(factor * super().forward(x, y), reduction="none")

    def moved(model: Line) -> torch.Tensor:
        weights = [model.line.weight]
        model.line.bias.requires_grad_(False)
        optimiser = LARS(weights, lr=1.0, trust_coefficient=0.1) if kind == "LARS" else LAMB(weights, lr=0.1, eps=0.0)
        training = poptorch.trainingModel(model, poptorch.Options(), optimiser)
        for batch in batches(3):
            training(*batch)
        training.copyWeightsToHost()
        return model.line.weight.detach().clone()

    torch.testing.assert_close(moved(Louder()), moved(Line()), rtol=1e-5, atol=1e-6)
