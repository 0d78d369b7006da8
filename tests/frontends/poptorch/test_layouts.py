"""Where networks captured from PyTorch lie: nothing crowds one tile, and layers cost what they do by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from abele import poptorch
from abele.report import Report

pytestmark = pytest.mark.usefixtures("whole_machine")

TINY_BYTES = 16_384
"""What a tile may hold whatever the others do: a fortieth of its memory."""
REDUCES = ("popops.reduce", "poplin.norm", "popnn.softmax", "popnn.log_softmax", "poplin.bias")
DATA = ("variables", "temporaries")


class Tokens(nn.Module):
    """All tokens normalised, and the loss of the first: the gradient is zeros but for a slice."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.head = nn.Linear(256, 256), nn.LayerNorm(256), nn.Linear(256, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.norm(self.linear(x))
        return y, self.head(y[:, 0])


class Decoder(nn.Module):
    """A block of a language model."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(65, width), nn.LayerNorm(width)
        self.qkv, self.out, self.head = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 65)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.table(tokens)
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, 4, -1).transpose(1, 2) for t in self.qkv(self.norm(x)).split(width, 2))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x, self.head(x).flatten(0, 1)


class Images(nn.Module):
    """Convolutions with a norm of some kind."""

    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv, self.norm, self.deep = nn.Conv2d(3, 32, 3, padding=1), norm(32), nn.Conv2d(32, 32, 3, padding=1)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = functional.relu(self.norm(self.conv(x)))
        return y, self.head((y + self.deep(y)).mean((2, 3)))


class WithLoss(nn.Module):
    """A model with cross entropy."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, scores = self.model(x)
        return y, functional.cross_entropy(scores, target)


ZOO: dict[str, Callable[[], tuple[nn.Module, torch.Tensor, int]]] = {
    "first token": lambda: (Tokens(), torch.zeros(8, 128, 256), 8),
    "decoder": lambda: (Decoder(), torch.zeros(8, 64, dtype=torch.int64), 512),
    "batch norm": lambda: (Images(nn.BatchNorm2d), torch.zeros(16, 3, 32, 32), 16),
    "group norm": lambda: (Images(lambda n: nn.GroupNorm(4, n)), torch.zeros(16, 3, 32, 32), 16),
}


def trained(model: nn.Module, x: torch.Tensor, targets: int) -> Report:
    """The report of a training step."""
    whole = WithLoss(model)
    options = poptorch.Options()
    options.Abele.allowOutOfMemory()
    training = poptorch.trainingModel(whole, options, optimizer=torch.optim.SGD(whole.parameters(), lr=0.1))
    training.compile(x, torch.zeros(targets, dtype=torch.int64))
    return training.report()


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n != "batch norm")) for n in ZOO])
def test_reductions_and_norms__any_network__leave_no_tile_with_twice_the_mean(name: str) -> None:
    report = trained(*ZOO[name]())
    memory = report.memory
    fixed = sum(
        np.repeat(held, memory.run_tiles)
        for category, held in zip(memory.categories, memory.run_bytes, strict=True)
        if category not in DATA
    )
    kinds = report.ops["kind"]
    looked_at = 0
    for step, row in enumerate(report.steps.rows()):
        if row["kind"] != "compute" or not str(kinds[row["op"]]).startswith(REDUCES):
            continue
        data = report.memory_at(step) - fixed
        looked_at += 1
        assert data.max() <= max(2 * data.mean(), TINY_BYTES), f"{row['name']}: {data.max()} of {data.mean():.0f} B"
    assert looked_at > 5


def test_captured_layer__beside_the_same_by_hand__keeps_to_the_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    captured: Any = __import__("captured")
    try:
        rows = captured.measured("ResNet-50 bottleneck forward")
        assert [row["partials"] for row in rows] == ["f32", "f16"]
        for row in rows:
            for figure, bar in captured.BARS.items():
                assert captured.ratio(row, figure) <= bar
    finally:
        for module in ("captured", "networks_bert"):
            sys.modules.pop(module, None)
