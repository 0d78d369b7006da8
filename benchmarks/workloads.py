"""The training workloads that the benchmarks measure."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from abele.garden.networks import BraggNetwork, DigitsNetwork
from abele.garden.peaks import simulate


class WithLoss(nn.Module):
    """A network followed by its loss, as a PopTorch training model needs it."""

    def __init__(self, network: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.network = network
        self.loss = loss

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Output and loss."""
        output = self.network(x)
        return output, self.loss(output, target)


@dataclass(frozen=True)
class Workload:
    """A model, a loss, a batch size, and where the data come from.

    Attributes:
        name: As it appears in results.
        batch: Samples of one update.
        steps: Updates of one timed call.
        network: Makes the model.
        loss: Loss of outputs and targets.
        data: Makes so many samples and targets.
    """

    name: str
    batch: int
    steps: int
    network: Callable[[], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]
    data: Callable[[int], tuple[Tensor, Tensor]]

    def model(self, seed: int = 0) -> WithLoss:
        """The model with reproducible weights."""
        torch.manual_seed(seed)
        return WithLoss(self.network(), self.loss)

    def samples(self) -> tuple[Tensor, Tensor]:
        """Data of one timed call: ``batch * steps`` samples."""
        return self.data(self.batch * self.steps)


def mlp() -> nn.Module:
    """The multi-layer perceptron 942→1000→1000→1000→1."""
    sizes = (942, 1000, 1000, 1000)
    hidden = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(sizes[-1], 1))


def digits_data(count: int) -> tuple[Tensor, Tensor]:
    """The first ``count`` handwritten digits, repeated where there are not enough."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    index = torch.arange(count) % len(digits.target)
    images = torch.tensor(digits.images / 16.0, dtype=torch.float32)[:, None]
    return images[index].contiguous(), torch.tensor(digits.target, dtype=torch.int64)[index]


def peaks_data(count: int) -> tuple[Tensor, Tensor]:
    """Simulated diffraction peaks."""
    patches, centres = simulate(count, seed=0)
    return torch.from_numpy(patches), torch.from_numpy(centres)


def mlp_data(count: int) -> tuple[Tensor, Tensor]:
    """Normally distributed features and the mean of each sample's as target."""
    features = torch.randn(count, 942, generator=torch.Generator().manual_seed(0))
    return features, features.mean(dim=1, keepdim=True)


WORKLOADS = (
    Workload("digits", 16, 89, DigitsNetwork, F.nll_loss, digits_data),
    Workload("braggnn", 512, 8, BraggNetwork, F.mse_loss, peaks_data),
    Workload("mlp", 32, 32, mlp, F.mse_loss, mlp_data),
)
