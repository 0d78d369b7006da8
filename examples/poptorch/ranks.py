"""Data-parallel training by several processes: abele run --ranks 2 --replicas 4 examples/poptorch/ranks.py.

A network learns to tell two spirals apart. Started again after an interruption, with as many ranks or with others, it
goes on from its last checkpoint; the outcome is the same to the bit. It runs in one process too.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from abele import poptorch

SAMPLES = 512  # of one update, all replicas together


class Spirals(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2)
        )
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, points: torch.Tensor, arms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.layers(points)
        return out, self.loss(out, arms)


def spirals(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The points of one update: they depend on its number alone, so all ranks can make them, at any time."""
    made = torch.Generator().manual_seed(number)
    arms = torch.randint(0, 2, (SAMPLES,), generator=made)
    turns = torch.rand(SAMPLES, generator=made) * 3
    angle = 2 * torch.pi * turns / 2 + torch.pi * arms
    return torch.stack([turns * angle.cos(), turns * angle.sin()], 1) / 3, arms


def train(updates: int, checkpoint: Path, every: int) -> float:
    """Train up to a number of updates, from the checkpoint if there is one; the last loss of this rank's replicas."""
    torch.manual_seed(0)
    options = poptorch.Options()  # replicationFactor is what abele run says
    model = Spirals()
    training = poptorch.trainingModel(model, options, poptorch.optim.Adam(model.parameters(), lr=0.01))
    done = poptorch.load_checkpoint(checkpoint, training)["updates"] if checkpoint.is_file() else 0
    ranks, rank = options.Distributed.numProcesses, options.Distributed.processId
    loss = torch.tensor(0.0)
    for number in range(done, updates):
        points, arms = (part.chunk(ranks)[rank] for part in spirals(number))
        _, loss = training(points, arms)
        if (number + 1) % every == 0 or number + 1 == updates:
            poptorch.save_checkpoint(checkpoint, training, updates=number + 1)
    return float(loss.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--checkpoint", type=Path, default=Path("spirals.checkpoint"))
    parser.add_argument("--every", type=int, default=50, help="updates between checkpoints")
    given = parser.parse_args()
    loss = train(given.updates, given.checkpoint, given.every)
    print(f"loss after {given.updates} updates: {loss:.4f}")


if __name__ == "__main__":
    main()
