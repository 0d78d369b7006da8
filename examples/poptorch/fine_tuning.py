"""Fine-tune a network: a body that was trained on one task stays as it is, and a new head learns another.

The body learns to tell even from odd digits. With it frozen, the new head learns which digit an image shows. No
gradient of the body is computed in the second part: ``requires_grad`` decides when the model is compiled.

    python examples/poptorch/fine_tuning.py
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn

from abele import poptorch


class Tuned(nn.Module):
    """A body and a head; with labels, the loss."""

    def __init__(self, body: nn.Module, classes: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(64, classes)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores and loss."""
        scores = self.head(self.body(x))
        return scores, nn.functional.cross_entropy(scores, labels)


def train(model: nn.Module, x: torch.Tensor, labels: torch.Tensor, *, runs: int, lr: float) -> list[float]:
    """Train those parameters that are to be; returns the loss of each run."""
    options = poptorch.Options().deviceIterations(8)
    trained = [p for p in model.parameters() if p.requires_grad]
    training = poptorch.trainingModel(model, options, poptorch.optim.AdamW(trained, lr=lr))
    losses = [float(training(x, labels)[1]) for _ in range(runs)]
    training.destroy()
    return losses


def main(*, runs: int = 20) -> tuple[bool, list[float]]:
    """Both parts; returns whether the body stayed as it was in the second, and its losses."""
    torch.manual_seed(0)
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32)[:1536] / 16
    target = torch.tensor(digits.target)[:1536]
    body = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
    first = train(Tuned(body, 2), x, target % 2, runs=runs, lr=2e-3)
    before = [p.detach().clone() for p in body.parameters()]
    body.requires_grad_(False)
    second = train(Tuned(body, 10), x, target, runs=runs, lr=1e-2)
    kept = all(torch.equal(a, b) for a, b in zip(before, body.parameters(), strict=True))
    print(f"even or odd: loss {first[0]:.3f} → {first[-1]:.3f}")
    print(f"which digit: loss {second[0]:.3f} → {second[-1]:.3f}; the body {'stayed' if kept else 'CHANGED'}")
    return kept, second


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    main(runs=parser.parse_args().runs)
