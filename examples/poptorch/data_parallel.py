"""Train digits on several replicas, whose batch norms share statistics: the same as one model on the whole batch.

python examples/poptorch/data_parallel.py
"""

from __future__ import annotations

import argparse
import copy

import torch
from sklearn.datasets import load_digits
from torch import nn

from abele import poptorch


class Classifier(nn.Module):
    """A layer, a batch norm, and a layer; with labels, the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores and loss."""
        scores = self.body(x)
        return scores, nn.functional.cross_entropy(scores, labels)


def main(replicas: int = 4, each: int = 32, runs: int = 8) -> tuple[float, float]:
    """Train on replicas and in PyTorch; returns the last loss, and by how much weights differ at most.

    Args:
        replicas: Number of replicas.
        each: Images of one replica.
        runs: Updates.
    """
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target)
    torch.manual_seed(0)
    model = Classifier()
    twin = copy.deepcopy(model)

    options = poptorch.Options().replicationFactor(replicas).outputMode(poptorch.OutputMode.All)
    options.Abele.batchNormReplicas(replicas)
    trained = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9))
    reference = torch.optim.SGD(twin.parameters(), lr=0.2, momentum=0.9)
    loss = 0.0
    for run in range(runs):
        part = slice(run * replicas * each, (run + 1) * replicas * each)
        _, losses = trained(images[part], labels[part])
        loss = float(losses.mean())
        reference.zero_grad()
        twin(images[part], labels[part])[1].backward()
        reference.step()
    pairs = zip(trained.state_dict().values(), twin.state_dict().values(), strict=True)
    apart = max(float((a.double() - b.double()).abs().max()) for a, b in pairs)
    print(f"{replicas} replicas: loss {loss:.3f}; weights and statistics within {apart:.1e} of PyTorch's")
    trained.destroy()
    return loss, apart


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--runs", type=int, default=8)
    arguments = parser.parse_args()
    main(arguments.replicas, runs=arguments.runs)
