"""One model over four IPUs: sharded, and as a pipeline, which does the same in fewer cycles.

Blocks cut a network of residual layers into four parts. Sharded, the IPUs work one after the other; in a pipeline each
works on another micro-batch, at the same time. Both learn what one IPU learns.

    python examples/poptorch/pipeline.py [--width 256] [--accumulation 16]
"""

from __future__ import annotations

import argparse

import torch
from torch import nn

from abele import poptorch

STAGES = 4


class Residual(nn.Module):
    """Two products beside the value itself."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of both."""
        return x + self.narrow(torch.relu(self.wide(self.norm(x))))


class Residuals(nn.Module):
    """Residual layers in equal parts, each of which begins a block; the head is in the last one."""

    def __init__(self, width: int, layers: int, *, blocks: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Residual(width) for _ in range(layers))
        self.head = nn.Linear(width, 1)
        if blocks:
            for stage in range(STAGES):
                poptorch.BeginBlock(self.layers[stage * layers // STAGES], f"part{stage}", ipu_id=stage)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The loss."""
        for layer in self.layers:
            x = layer(x)
        return poptorch.identity_loss((self.head(x) - target).square(), "mean")


def train(
    strategy: poptorch.options.ShardedExecution | None, *, width: int, layers: int, accumulation: int, updates: int
) -> tuple[list[float], int]:
    """Losses of some updates, and the cycles of one."""
    torch.manual_seed(0)
    model = Residuals(width, layers, blocks=strategy is not None)
    options = poptorch.Options().outputMode(poptorch.OutputMode.Sum)
    options.Training.gradientAccumulation(accumulation)
    if strategy is not None:
        options.setExecutionStrategy(strategy)
    training = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.01))
    x = torch.randn(16 * accumulation, width)
    target = x[:, :4].sin().sum(1, keepdim=True)
    losses = [float(training(x, target)) / accumulation for _ in range(updates)]
    cycles = training.executable.report.total_cycles
    training.destroy()
    return losses, cycles


def main(
    *, width: int = 256, layers: int = 2 * STAGES, accumulation: int = 16, updates: int = 5
) -> dict[str, tuple[list[float], int]]:
    """Train on one IPU, sharded and pipelined; returns losses and cycles of each."""
    ways = {"one IPU": None, "sharded": poptorch.ShardedExecution(), "pipelined": poptorch.PipelinedExecution()}
    found = {}
    for name, strategy in ways.items():
        sizes = {"width": width, "layers": layers, "accumulation": accumulation, "updates": updates}
        found[name] = losses, cycles = train(strategy, **sizes)
        print(f"{name:>9}: loss {losses[0]:.4f} → {losses[-1]:.4f}, {cycles:,} cycles for an update")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--accumulation", type=int, default=16)
    asked = parser.parse_args()
    main(width=asked.width, accumulation=asked.accumulation)
