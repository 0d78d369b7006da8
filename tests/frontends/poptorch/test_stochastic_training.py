"""Training in float16 whose results are rounded at random: what survives, and which bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from abele import poptorch

SMALL = 2.0**-14
"""An update too small for 1 when rounded to nearest: its neighbour below is 2^-11 away."""


def options_of(*, random: bool = True, threads: int = 1, mode: str = "native") -> poptorch.Options:
    options = poptorch.Options()
    options.Abele.threads(threads).mode(mode)
    options.Precision.enableStochasticRounding(random)
    return options


class Slope(nn.Module):
    """Weights of 1 whose gradient is 1 each."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size, dtype=torch.half))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return poptorch.identity_loss((self.weight.float() * x).sum(), reduction="none")


def weights_after(steps: int, optimiser: str, options: poptorch.Options, size: int = 1 << 12) -> np.ndarray:
    model = Slope(size)
    rules = {
        "sgd": lambda p: poptorch.optim.SGD(p, lr=SMALL),
        "momentum": lambda p: poptorch.optim.SGD(p, lr=SMALL / 2, momentum=0.5, use_combined_accum=False),
        "half_state": lambda p: poptorch.optim.SGD(
            p,
            lr=SMALL,
            momentum=0.0,
            accum_type=torch.half,
            velocity_accum_type=torch.half,
            use_combined_accum=False,
        ),
        "adam": lambda p: poptorch.optim.Adam(
            p, lr=SMALL, first_order_momentum_accum_type=torch.half, second_order_momentum_accum_type=torch.half
        ),
    }
    training = poptorch.trainingModel(model, options.deviceIterations(steps), rules[optimiser](model.parameters()))
    training(torch.ones(steps, size))
    return model.weight.detach().double().numpy()


@pytest.mark.parametrize("optimiser", ["sgd", "momentum", "half_state", "adam"])
@pytest.mark.parametrize("mode", ["native", "tiles"])
def test_small_updates__of_large_weights__survive_at_random_alone(optimiser: str, mode: str) -> None:
    steps = 64
    lost = weights_after(steps, optimiser, options_of(random=False, mode=mode))
    np.testing.assert_array_equal(lost, 1)
    got = weights_after(steps, optimiser, options_of(mode=mode))
    # Each step goes down one half-precision number, of 2^-11, with odds of an eighth.
    odds, moved = SMALL / 2.0**-11, 1 - got.mean()
    sigma = 2.0**-11 * np.sqrt(steps * odds * (1 - odds) / got.size)
    expected = steps * SMALL
    if optimiser == "momentum":
        expected = sum(SMALL / 2 * (2 - 0.5**n) for n in range(steps))
    assert abs(moved - expected) < 4 * sigma
    assert np.unique(got).size > 5


class Everything(nn.Module):
    """An embedding, a recurrent layer, attention with dropout, a norm and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.recurrent = nn.LSTM(16, 16, batch_first=True)
        self.attention = nn.MultiheadAttention(16, 2, dropout=0.1, batch_first=True)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 5)

    def forward(self, tokens: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, _ = self.recurrent(self.embedding(tokens))
        x = x + self.attention(x, x, x, need_weights=False)[0]
        scores = self.head(self.norm(x).mean(1)).float()
        return scores, nn.functional.cross_entropy(scores, target)


def trained(threads: int, *, seed: int = 3, random: bool = True, mode: str = "native") -> list[np.ndarray]:
    torch.manual_seed(2)
    model = Everything().half()
    options = options_of(random=random, threads=threads, mode=mode).randomSeed(seed).deviceIterations(3)
    rule = poptorch.optim.AdamW(model.parameters(), lr=0.01, first_order_momentum_accum_type=torch.half)
    training = poptorch.trainingModel(model, options, rule)
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(20, (3 * 8, 6), generator=generator, dtype=torch.int32)
    for _ in range(2):
        training(tokens, torch.randint(5, (3 * 8,), generator=generator))
    return [p.detach().float().numpy() for p in model.parameters()]


@pytest.mark.slow
def test_training__on_any_number_of_threads__gives_the_same_bits() -> None:
    first = trained(1)
    for threads in (2, 3):
        for one, other in zip(first, trained(threads), strict=True):
            np.testing.assert_array_equal(one, other)
    nearest = trained(1, random=False)
    assert all((a != b).any() for a, b in zip(first, nearest, strict=True))
    # Adam moves weights whose gradient is but rounding by a whole step as well: those are few.
    apart = np.concatenate([np.abs(a - b).ravel() for a, b in zip(first, nearest, strict=True)])
    assert np.median(apart) < 0.005
    assert any((a != b).any() for a, b in zip(first, trained(1, seed=4), strict=True))
