"""Parts shared by the demos: options, a model with its loss, training and predicting through PopTorch's names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from rich.console import Console
from torch import Tensor, nn, optim

from abele import poptorch
from abele.garden.progress import progress_bar
from abele.garden.result import Stopwatch
from abele.garden.settings import DemoSettings
from abele.report import Report


def options(settings: DemoSettings) -> poptorch.Options:
    """Options that training and inference share."""
    opts = poptorch.Options().randomSeed(settings.seed)
    opts.Abele.system(settings.system)
    if settings.threads is not None:
        opts.Abele.threads(settings.threads)
    if settings.dump_passes is not None:
        opts.Abele.dumpPasses(settings.dump_passes)
    return opts


class WithLoss(nn.Module):
    """A network with its loss: PopTorch runs forward, backward and update in one call.

    Args:
        model: The network; it takes all inputs but the last.
        loss: Loss of what the network gives and the last input.
    """

    def __init__(self, model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, *inputs: Tensor) -> Tensor:
        """The loss."""
        return self.loss(self.model(*inputs[:-1]), inputs[-1])


@dataclass(frozen=True)
class Trained:
    """Mean loss of the last epoch, and what training costs on the modelled machine."""

    loss: float
    report: Report


@dataclass(frozen=True, kw_only=True)
class Training:
    """Training of a demo.

    Attributes:
        data: Batches of inputs; the last of them is what the loss compares with.
        options: PopTorch's options.
        epochs: Passes over the data.
        title: Title of the progress bar.
        shown: Format of losses.
    """

    data: poptorch.DataLoader
    options: poptorch.Options
    epochs: int
    title: str = "training"
    shown: str = ".4f"

    def run(self, model: nn.Module, optimizer: optim.Optimizer, watch: Stopwatch, console: Console) -> Trained:
        """Compile, train and take the weights back into ``model``, which gives its loss, alone or last."""
        executor = poptorch.trainingModel(model, self.options, optimizer=optimizer)
        with watch.measure("compile"):
            executor.compile(*next(iter(self.data)))
        calls, losses = self.epochs * len(self.data), torch.zeros(0)
        with watch.measure("train"), progress_bar(console, self.title, calls) as advance:
            for _ in range(self.epochs):
                epoch = []
                for batch in self.data:
                    made = executor(*batch)
                    loss = made[-1] if isinstance(made, tuple) else made
                    epoch.append(loss)
                    advance(f"loss {loss.mean().item():{self.shown}}")
                losses = torch.cat([loss.reshape(-1) for loss in epoch])
        report = executor.report(self.data)
        executor.detachFromDevice()
        return Trained(float(losses.double().mean()), report)


class Predictor:
    """A network in inference, a batch of fixed size at a time.

    Args:
        model: The network.
        options: PopTorch's options.
        batch: Samples of a call; what is left of the last call is filled up and cut off.
    """

    def __init__(self, model: nn.Module, options: poptorch.Options, batch: int) -> None:
        self.executor = poptorch.inferenceModel(model, options)
        self.batch = batch

    def __call__(self, inputs: Tensor) -> Tensor:
        """Outputs of the network for ``inputs``, whose first dim counts samples."""
        parts = []
        for part in torch.split(inputs, self.batch):
            filled = torch.cat([part, part[-1:].expand(self.batch - len(part), *part.shape[1:])])
            parts.append(self.executor(filled)[: len(part)])
        return torch.cat(parts)
