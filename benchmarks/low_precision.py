"""Training in f16 with stochastic rounding beside f32 and f16 to nearest, on this host: process time of one thread.

The contestants take turns, and a ratio is the median of those of the rounds, so that a busy machine disturbs all alike.
With --vertices the vertices of the program are a contestant too, which is how stochastic rounding ran before host
kernels rounded at random. With --json one object is printed, {"rows": [...]}, each row with ``workload``, milliseconds
per step of each contestant, and the speed of the others over that of ``f32``.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from abele import poptorch

STEPS = 4
"""Batches of a call."""
BAR = 0.8
"""Speed over that of f32 that stochastic rounding is to reach."""


class WithLoss(nn.Module):
    """A network that classifies, and its loss, computed in f32."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The scores and the loss."""
        scores = self.network(x).float()
        return scores, self.loss(scores.flatten(0, -2), target.flatten())


def mlp() -> nn.Module:
    """256 features, two hidden layers of 512, 10 classes."""
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def cnn() -> nn.Module:
    """Three convolutions of 3 x 3 with batch norms on images of 16 x 16."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256, 10))


class CharTransformer(nn.Module):
    """A causal transformer over 64 characters: two layers of 128, four heads."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(96, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(128, 96)
        self.register_buffer("mask", torch.triu(torch.full((64, 64), -torch.inf), 1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of the next character at each place."""
        mask = self.mask.to(self.head.weight.dtype)
        scores: torch.Tensor = self.head(self.encoder(self.embedding(tokens), mask=mask, is_causal=True))
        return scores


@dataclass(frozen=True)
class LowPrecisionWork:
    """A network to train, with its data.

    Attributes:
        name: For the table.
        network: Makes it.
        batch: Samples of a batch.
        sample: Inputs of so many samples, and their classes.
    """

    name: str
    network: Callable[[], nn.Module]
    batch: int
    sample: Callable[[int], tuple[torch.Tensor, torch.Tensor]]


def features(*shape: int) -> Callable[[int], tuple[torch.Tensor, torch.Tensor]]:
    """Random inputs of a shape with one of ten classes."""
    return lambda n: (torch.randn(n, *shape), torch.randint(10, (n,)))


WORK = [
    LowPrecisionWork("MLP 256-512-512-10", mlp, 64, features(256)),
    LowPrecisionWork("CNN 16 x 16, 32-64-64", cnn, 32, features(3, 16, 16)),
    LowPrecisionWork(
        "transformer 2 x 128, 64 tokens",
        CharTransformer,
        8,
        lambda n: (torch.randint(96, (n, 64), dtype=torch.int32), torch.randint(96, (n, 64))),
    ),
]
OPTIMISERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: poptorch.optim.SGD(parameters, lr=1e-2, momentum=0.9, use_combined_accum=False),
    "adam": lambda parameters: poptorch.optim.AdamW(parameters, lr=1e-3),
}


def contestant(
    work: LowPrecisionWork, optimiser: str, dtype: torch.dtype, *, random: bool, mode: str
) -> Callable[[], Any]:
    """A call that trains some batches, warmed up."""
    torch.manual_seed(5)
    options = poptorch.Options().deviceIterations(STEPS)
    options.Abele.threads(1).mode(mode).allowOutOfMemory()
    options.Precision.enableStochasticRounding(random)
    model = WithLoss(work.network()).to(dtype)
    training = poptorch.trainingModel(model, options, OPTIMISERS[optimiser](model.parameters()))
    x, target = work.sample(STEPS * work.batch)
    x = x.to(dtype) if x.is_floating_point() else x
    training(x, target)
    training(x, target)
    return lambda: training(x, target)


def measure(work: LowPrecisionWork, optimiser: str, rounds: int, *, vertices: bool) -> dict[str, Any]:
    """One row of the result."""
    ways = {
        "f32": (torch.float32, False, "native"),
        "f16": (torch.float16, False, "native"),
        "f16_stochastic": (torch.float16, True, "native"),
    }
    if vertices:
        ways["f16_stochastic_vertices"] = (torch.float16, True, "tiles")
    ready = {name: contestant(work, optimiser, d, random=r, mode=m) for name, (d, r, m) in ways.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ready}
    gc.disable()
    for _ in range(rounds):
        for name, run in ready.items():
            start = time.process_time()
            run()
            seconds[name].append(time.process_time() - start)
    gc.enable()
    row: dict[str, Any] = {"workload": work.name, "optimiser": optimiser}
    for name, taken in seconds.items():
        row[name] = round(1e3 * min(taken) / STEPS, 3)
    for name, taken in seconds.items():
        if name != "f32":
            ratios = [base / own for base, own in zip(seconds["f32"], taken, strict=True)]
            row[f"{name}_over_f32"] = round(statistics.median(ratios), 3)
    return row


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--optimisers", nargs="+", choices=list(OPTIMISERS), default=list(OPTIMISERS))
    parser.add_argument("--only", default="", help="workloads whose name has this")
    parser.add_argument("--vertices", action="store_true", help="run the vertices of the program, too")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = [
        measure(work, optimiser, args.rounds, vertices=args.vertices)
        for work in WORK
        if args.only in work.name
        for optimiser in args.optimisers
    ]
    if args.json:
        print(json.dumps({"rows": rows}))
        return
    table = Table(title="training, ms of process time a step on one thread", title_justify="left", box=None)
    for heading in rows[0]:
        table.add_column(heading, justify="left" if heading in ("workload", "optimiser") else "right")
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(width=200).print(table)
    least = min(row["f16_stochastic_over_f32"] for row in rows)
    print(f"least speed of f16 with stochastic rounding over f32: {least:.2f} (bar {BAR})")


if __name__ == "__main__":
    main()
