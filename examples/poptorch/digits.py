"""Classify small images: a network is trained and tested through ``poptorch``, as on MNIST.

The images are scikit-learn's 8 × 8 digits. Weights stay on the device between calls; the wrapper for inference takes
over what training has learnt.

    python examples/poptorch/digits.py --epochs 10
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from abele import poptorch


class Classifier(nn.Module):
    """Two convolutions and two dense layers; with labels, its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten()
        )
        self.head = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Scores of the classes; with labels, the loss too."""
        scores = self.head(self.features(x))
        return scores if labels is None else (scores, self.loss(scores, labels))


def images(count: int | None = None) -> tuple[TensorDataset, TensorDataset]:
    """Images to train on and images to test on."""
    digits = load_digits()
    x = torch.tensor(digits.images[:count], dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(digits.target[:count])
    last = len(x) * 4 // 5
    return TensorDataset(x[:last], labels[:last]), TensorDataset(x[last:], labels[last:])


def main(epochs: int = 10, count: int | None = None) -> float:
    """Train and test; returns the part of the test images that are classified rightly."""
    torch.manual_seed(0)
    train, test = images(count)
    model = Classifier()
    options = poptorch.Options().deviceIterations(4).randomSeed(0)
    optimizer = poptorch.optim.Adam(model.parameters(), lr=2e-3)
    training = poptorch.trainingModel(model, options, optimizer)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for epoch in range(epochs):
        for x, labels in poptorch.DataLoader(options, train, batch_size=16, shuffle=True):
            _, loss = training(x, labels)
        print(f"epoch {epoch + 1}: loss {float(loss):.4f}")
        schedule.step()
        training.setOptimizer(optimizer)
    training.detachFromDevice()
    inference = poptorch.inferenceModel(model)
    right = total = 0
    for x, labels in poptorch.DataLoader(poptorch.Options(), test, batch_size=24):
        right += int((inference(x).argmax(1) == labels).sum())
        total += len(labels)
    print(f"{right} of {total} test images are classified rightly")
    return right / total


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    main(parser.parse_args().epochs)
