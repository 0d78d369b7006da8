"""Entries of the benchmark of models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Batch = tuple[Tensor, ...]


@dataclass(frozen=True)
class ModelEntry:
    """A network that trains: ``forward`` takes the tensors of one batch and returns output and loss.

    Attributes:
        name: As it appears in results.
        batch: Samples of one update.
        network: Makes the module with random weights.
        data: Tensors of one batch of so many samples, drawn with a generator.
        needs: Packages beyond PyTorch that ``network`` imports.
    """

    name: str
    batch: int
    network: Callable[[], nn.Module]
    data: Callable[[int, torch.Generator], Batch]
    needs: tuple[str, ...] = ()

    def model(self, seed: int = 0) -> nn.Module:
        """The module with reproducible weights, in training mode and without dropout, so that runs can be compared."""
        torch.manual_seed(seed)
        return without_dropout(self.network().train())

    def batches(self, count: int, seed: int = 0) -> list[Batch]:
        """``count`` batches."""
        generator = torch.Generator().manual_seed(seed)
        return [self.data(self.batch, generator) for _ in range(count)]


def without_dropout(model: nn.Module) -> nn.Module:
    """``model`` with every dropout, of modules and of their numbers, set to nothing."""
    for module in model.modules():
        for name, value in list(vars(module).items()):
            kind = type(module).__name__
            if isinstance(value, float) and ((name == "p" and ("Drop" in kind or "Depth" in kind)) or "drop" in name):
                setattr(module, name, 0.0)
    return model


class WithLoss(nn.Module):
    """A network of one input followed by a loss of its output and a target."""

    def __init__(self, network: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.network = network
        self.loss = loss

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Output and loss."""
        output = self.network(x)
        return output, self.loss(output, target)


class Fields(nn.Module):
    """A network with a result of named fields, as output and loss."""

    def __init__(self, network: nn.Module, names: tuple[str, ...], output: str = "logits") -> None:
        super().__init__()
        self.network = network
        self.names = names
        self.output = output

    def forward(self, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        """Output and loss."""
        result = self.network(**dict(zip(self.names, tensors, strict=True)))
        return result[self.output], result["loss"]
