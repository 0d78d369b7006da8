"""Training on 1 to 16 host threads, also more than there are cores: the same bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn

from abele import poptorch
from abele.kernels.routines import costs

pytestmark = pytest.mark.torch
FEW, MANY = (1, 2, 16), (1, 3, 4, 8)


class Tagger(nn.Module):
    """Recurrent layer whose states are classified step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.classes = nn.LSTM(24, 40, batch_first=True), nn.Linear(40, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classes(self.cells(x)[0]).flatten(1)


class Attention(nn.Module):
    """Self-attention with a norm, and its mean over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.norm = nn.MultiheadAttention(48, 4, batch_first=True), nn.LayerNorm(48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.mix(x, x, x, need_weights=False)[0]).mean(1)


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 17, 3, padding=1),
        nn.BatchNorm2d(17),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(17, 8, 3),
        nn.Flatten(),
    )


def products() -> nn.Module:
    return nn.Sequential(nn.Linear(300, 270), nn.GELU(), nn.Linear(270, 33), nn.Softmax(-1))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "lstm": (Tagger, (7, 6, 24)),
    "attention": (Attention, (3, 33, 48)),
    "convolutions": (convolutions, (5, 3, 11, 11)),
    "products": (products, (130, 300)),
}


def trained(name: str, threads: int) -> list[np.ndarray]:
    """Losses of two steps, and the weights after them."""
    torch.manual_seed(4)
    make, shape = MODELS[name]
    body = make()

    class Trained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = body

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = self.body(x)
            return y, poptorch.identity_loss((y * y).mean(1), reduction="mean")

    options = poptorch.Options()
    options.Abele.threads(threads)
    training = poptorch.trainingModel(Trained(), options, optimizer=torch.optim.Adam(body.parameters(), lr=0.01))
    x = torch.randn(shape)
    found = [part.numpy().copy() for _ in range(2) for part in training(x)]
    training.copyWeightsToHost()
    training.destroy()
    return found + [p.detach().numpy().copy() for p in body.parameters()]


def check(name: str, numbers: tuple[int, ...] = FEW) -> None:
    first, *others = (trained(name, threads) for threads in numbers)
    assert any(np.abs(values).max() > 0 for values in first)
    for threads, other in zip(numbers[1:], others, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(first, other, strict=True)), threads


@pytest.mark.parametrize("name", MODELS)
def test_training__on_any_number_of_threads__gives_the_same_bits(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_training__on_further_numbers_of_threads__gives_the_same_bits(name: str) -> None:
    check(name, MANY)


@pytest.mark.parametrize("way", ["packed", "mkl"])
def test_products__by_one_way_on_any_number_of_threads__give_the_same_bits(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "mkl" and not torch.backends.mkl.is_available():
        pytest.skip("this PyTorch has no MKL")
    monkeypatch.setenv(costs.VARIABLE, way)
    check("products")
