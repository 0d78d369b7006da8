"""Tensors kept for the backward pass beside linear layers of 8-bit floats: lifetimes in the report of a C600."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from torch import nn

from abele import poptorch
from abele.frontends.poptorch import fp8
from abele.machine import systems
from abele.report import Report

pytestmark = pytest.mark.torch

LAYERS, ROWS, WIDTH = 2, 64, 32
ACTIVATIONS, WEIGHTS = LAYERS * ROWS * WIDTH, (LAYERS - 1) * WIDTH * WIDTH
"""Elements of the operands of products; of the weights through which gradients go on, all but the first."""


class Stack(nn.Module):
    def __init__(self, between: type[nn.Module]) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = [part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH, bias=False), between())]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Any) -> Any:
        return poptorch.identity_loss(self.layers(x).float().square().mean(), reduction="none")


def training(recipe: fp8.Fp8Recipe | None, between: type[nn.Module] = nn.Identity) -> tuple[Stack, Any]:
    model = Stack(between).half()
    if recipe is not None:
        fp8.fp8_linear(model, recipe)
    options = poptorch.Options()
    options.Abele.system(systems.get("c600").evolve(ipu={"num_tiles": 64})).threads(1)
    made = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.1))
    made.compile(torch.randn(ROWS, WIDTH).half())
    return model, made


def waiting(report: Report) -> Counter[str]:
    """Bytes by element type of what is made before the first step of the backward pass, and read after it began.

    The loss's own float32 values, which the first steps of the backward pass read, are not among them.
    """
    names = [str(name) for name in report.steps["name"]]
    first = next(n for n, name in enumerate(names) if "/grad" in name)
    found: Counter[str] = Counter()
    lifetimes, variables = report.lifetimes, report.variables
    for row, begin, end in zip(lifetimes["variable"], lifetimes["first_step"], lifetimes["last_step"], strict=True):
        if begin < first <= end:
            found[str(variables["type"][row])] += int(variables["bytes"][row])
    return found


def waits(recipe: fp8.Fp8Recipe | None, between: type[nn.Module] = nn.Identity) -> tuple[int, int]:
    """Bytes that wait in float16 and in 8-bit floats."""
    found = waiting(training(recipe, between)[1]._compiled.session.executable.report)
    return found["f16"], sum(count for name, count in found.items() if name.startswith("f8"))


CONSTANT = fp8.Fp8Recipe.constant(2)
AGAIN = fp8.Fp8Recipe.constant(2, keep_weights=False)


def test_waiting__copies_of_activations__take_half_the_bytes_of_float16() -> None:
    assert waits(None) == (2 * ACTIVATIONS, 0)
    assert waits(AGAIN) == (0, ACTIVATIONS)


def test_waiting__copies_of_weights__come_besides_where_they_are_kept() -> None:
    assert waits(CONSTANT) == (0, ACTIVATIONS + WEIGHTS)


def test_waiting__inputs_of_gelu__stay_in_float16() -> None:
    """Four bytes become three, for each element of an activation that is the input of one and the result of another."""
    assert waits(None, nn.GELU) == (4 * ACTIVATIONS, 0)
    assert waits(AGAIN, nn.GELU) == (2 * ACTIVATIONS, ACTIVATIONS)


@pytest.mark.slow
def test_waiting__scales_that_follow_data__wait_besides() -> None:
    assert waits(fp8.Fp8Recipe(keep_weights=False)) == (0, ACTIVATIONS)


def test_weights__cast_again__train_to_the_same_bits() -> None:
    made = []
    for recipe in (CONSTANT, AGAIN):
        model, wrapped = training(recipe)
        for step in range(2):
            wrapped(torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(step)).half())
        made.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*made, strict=True))
    start = list(Stack(nn.Identity).half().parameters())
    assert not any(torch.equal(a, b) for a, b in zip(made[0], start, strict=True))


def test_weights__cast_again_in_pytorch__have_the_same_gradients() -> None:
    gradients = []
    for recipe in (fp8.Fp8Recipe(), fp8.Fp8Recipe(keep_weights=False)):
        model = fp8.fp8_linear(Stack(nn.GELU), recipe)
        x = torch.linspace(-1, 1, ROWS * WIDTH).reshape(ROWS, WIDTH).requires_grad_()
        model.layers(x).square().sum().backward()
        gradients.append([x.grad, *(p.grad for p in model.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
