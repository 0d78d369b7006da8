"""Train a network with a tenth of its weights: RigL beside the dense network, and beside a pattern that stays.

The images are scikit-learn's 8 × 8 digits. Every 20 steps RigL drops the smallest weights and grows those whose
gradients are largest; the compiled program stays the same. The last lines say what sparsity saves.

    python examples/poptorch/sparse_training.py --density 0.1 --epochs 40
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from sklearn.datasets import load_digits
from torch import nn

from abele import poptorch
from abele.poptorch import sparse

BATCH = 32
Layer = Callable[[int, int], nn.Module]


class Network(nn.Module):
    """Two hidden layers and the loss; ``layer`` makes the hidden ones."""

    def __init__(self, width: int, layer: Layer) -> None:
        super().__init__()
        self.body = nn.Sequential(layer(64, width), nn.ReLU(), layer(width, width), nn.ReLU())
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores of the classes, and the loss."""
        scores = self.head(self.body(x))
        return scores, nn.functional.cross_entropy(scores, labels)


def digits(count: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Images as rows of 64, and their labels, in an order that is drawn once."""
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(1))[:count]
    return torch.tensor(data.data, dtype=torch.float32)[order] / 16, torch.tensor(data.target)[order]


def train(name: str, network: Network, epochs: int, count: int | None, interval: int | None) -> list[float]:
    """Train on four fifths of the images; returns the share of the others that is classified rightly, by epoch."""
    x, labels = digits(count)
    last = len(x) * 4 // 5 // BATCH * BATCH
    steps = last // BATCH
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    model = poptorch.trainingModel(network, poptorch.Options(), optimizer)
    tester = poptorch.inferenceModel(network)
    rigl = sparse.RigL(model, interval=interval, end=steps * epochs * 3 // 4) if interval else None
    draw, curve = torch.Generator().manual_seed(2), list[float]()
    for epoch in range(epochs):
        for rows in torch.randperm(last, generator=draw).split(BATCH):
            _, loss = model(x[rows], labels[rows])
            if rigl is not None:
                rigl.step(x[rows], labels[rows])
        schedule.step()
        model.setOptimizer(optimizer)
        scores, _ = tester(x[last:], labels[last:])
        curve.append(float((scores.argmax(1) == labels[last:]).float().mean()))
        if epoch % 5 == 4 or epoch == epochs - 1:
            print(f"{name:>8} epoch {epoch + 1:3}: loss {float(loss):.4f}, accuracy {100 * curve[-1]:.1f} %")
    if rigl is not None:
        print(sparse.report(model))
    return curve


def bars(curve: list[float], lowest: float = 0.84) -> str:
    """A curve as blocks, one for each epoch, from ``lowest`` to 1."""
    return "".join("▁▂▃▄▅▆▇█"[max(0, min(7, int((a - lowest) / (1 - lowest) * 8)))] for a in curve)


def main(
    density: float = 0.1,
    block: int = 1,
    epochs: int = 40,
    *,
    width: int = 256,
    count: int | None = None,
    networks: tuple[str, ...] = ("dense", "fixed", "RigL"),
) -> dict[str, list[float]]:
    """Train the networks; returns the accuracy of each by epoch."""

    def thin(inputs: int, outputs: int) -> nn.Module:
        return sparse.SparseLinear(inputs, outputs, density=density, block=block, dynamic=True, rows=BATCH)

    layers: dict[str, tuple[Layer, int | None]] = {
        "dense": (nn.Linear, None),
        "fixed": (thin, None),
        "RigL": (thin, 20),
    }
    curves = {}
    for name in networks:
        layer, interval = layers[name]
        torch.manual_seed(0)
        curves[name] = train(name, Network(width, layer), epochs, count, interval)
    for name, curve in curves.items():
        print(f"{name:>8} {bars(curve)} {100 * curve[-1]:.1f} %")
    return curves


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--density", type=float, default=0.1)
    parser.add_argument("--block", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--width", type=int, default=256)
    given = parser.parse_args()
    main(given.density, given.block, given.epochs, width=given.width)
