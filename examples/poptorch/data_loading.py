"""Load data while the device trains: samples that take time to make are made ahead, by other processes.

    python examples/poptorch/data_loading.py --sample-ms 5 --workers 0

The script trains one epoch with each of two loaders and says how many samples per second each gives.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from abele import poptorch


class SlowSamples(Dataset[Any]):
    """Signals that take a while to make, with the numbers of their shapes."""

    def __init__(self, count: int, milliseconds: float) -> None:
        self.count = count
        self.milliseconds = milliseconds

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(self.milliseconds / 1000)  # Stands for reading and decoding a file.
        made = torch.Generator().manual_seed(index)
        kind, phase = index % 4, torch.rand(1, generator=made) * 6.28
        signal = torch.sin(torch.linspace(0, 6.28 * (kind + 1), 256) + phase)
        return signal + 0.3 * torch.randn(256, generator=made), kind


class Net(nn.Module):
    """A small network of convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(1, width, 9, stride=2), nn.ReLU(), nn.Conv1d(width, width, 9, stride=2), nn.ReLU()
        )
        self.head = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor, kinds: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores and loss."""
        scores = self.head(self.layers(x[:, None]).mean(2))
        return scores, nn.functional.cross_entropy(scores, kinds)


def samples_per_second(loader: poptorch.DataLoader, training: Any, *, epochs: int) -> float:
    """Samples per second of training with a loader, the first batch aside."""
    total = 0
    with loader:
        for epoch in range(epochs):
            for number, (x, kinds) in enumerate(loader):
                if epoch == number == 0:
                    training(x, kinds)
                    start = time.perf_counter()
                    continue
                training(x, kinds)
                total += len(kinds)
        return total / (time.perf_counter() - start)


def main(*, count: int = 256, sample_ms: float = 5.0, workers: int = 0, width: int = 64, epochs: int = 1) -> float:
    """Train with both loaders; returns how many times faster the asynchronous one is."""
    torch.manual_seed(0)
    options = poptorch.Options().deviceIterations(2)
    model = Net(width)
    training = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    data = SlowSamples(count, sample_ms)
    rates = {}
    for mode in (poptorch.DataLoaderMode.Sync, poptorch.DataLoaderMode.Async):
        ahead = {"early_preload": True, "buffer_size": 3, "sharing_strategy": poptorch.SharingStrategy.Fork}
        extra = {"async_options": ahead} if mode == poptorch.DataLoaderMode.Async else {}
        loader = poptorch.DataLoader(options, data, batch_size=8, num_workers=workers, mode=mode, **extra)
        rates[mode] = samples_per_second(loader, training, epochs=epochs)
        print(f"{mode.name:<5}  {rates[mode]:8.0f} samples/s")
    return rates[poptorch.DataLoaderMode.Async] / rates[poptorch.DataLoaderMode.Sync]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample-ms", type=float, default=5.0)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--width", type=int, default=64)
    given = parser.parse_args()
    print(f"{main(sample_ms=given.sample_ms, workers=given.workers, width=given.width):.2f} times as fast")
