"""Batch norm over several replicas: PyTorch's over the samples of all of them, in training and running statistics."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import nn

import abele.poptorch as poptorch


class Block(nn.Module):
    """Two convolutions beside a short cut."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.short: nn.Module = nn.Identity()
        if before != width:
            self.short = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.norm2(self.second(torch.relu(self.norm1(self.first(x)))))
        return torch.relu(made + self.short(x))


class ResNet(nn.Module):
    """A residual network for small images, and its loss."""

    def __init__(self, blocks: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        torch.manual_seed(0)
        before, layers = widths[0], list[nn.Module]()
        for number, width in enumerate(widths):
            for block in range(blocks):
                layers.append(Block(before, width, 2 if number and not block else 1))
                before = width
        self.stem, self.norm = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0])
        self.body, self.head = nn.Sequential(*layers), nn.Linear(before, 10)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.body(torch.relu(self.norm(self.stem(x))))
        scores = self.head(hidden.mean((2, 3)))
        return scores, nn.functional.cross_entropy(scores, labels)


@contextmanager
def running_statistics_kept(model: nn.Module) -> Iterator[None]:
    """Norms whose running statistics stay as they are."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    momenta = [m.momentum for m in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum


def step(model: ResNet, optimiser: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor, groups: int) -> list[float]:
    """One update in PyTorch, of parts whose samples share statistics; the first part's become the running ones."""
    losses = []
    optimiser.zero_grad()
    for number, (part, labels) in enumerate(zip(x.chunk(groups), y.chunk(groups), strict=True)):
        if number:
            with running_statistics_kept(model):
                loss = model(part, labels)[1]
        else:
            loss = model(part, labels)[1]
        (loss / groups).backward()
        losses.append(loss.item())
    optimiser.step()
    return losses


def compare(model: ResNet, size: int, each: int, replicas: int, together: int, updates: int, tolerance: float) -> None:
    """Train on replicas and in PyTorch, and hold one against the other."""
    reference = copy.deepcopy(model)
    opts = poptorch.Options().replicationFactor(replicas).outputMode(poptorch.OutputMode.All)
    opts.Abele.batchNormReplicas(together)
    wrapped = poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    theirs = torch.optim.SGD(reference.parameters(), lr=0.05, momentum=0.9)
    made = torch.Generator().manual_seed(1)
    for _ in range(updates):
        x = torch.randn(replicas * each, 3, size, size, generator=made) * 2 + 1
        y = torch.randint(0, 10, (replicas * each,), generator=made)
        losses = wrapped(x, y)[1].reshape(-1, together).mean(1)
        expected = torch.tensor(step(reference, theirs, x, y, replicas // together))
        torch.testing.assert_close(losses, expected, rtol=tolerance, atol=tolerance)
    state = wrapped.state_dict()
    for name, tensor in reference.state_dict().items():
        if "num_batches" not in name:
            torch.testing.assert_close(
                state[name], tensor, rtol=10 * tolerance, atol=10 * tolerance, msg=lambda t, n=name: f"{n}: {t}"
            )


@pytest.mark.parametrize(
    ("together", "widths"), [(2, (4,)), *(pytest.param(n, (4, 6), marks=pytest.mark.slow) for n in (2, 4))]
)
def test_batch_norm__over_replicas__trains_as_pytorch_on_their_samples(together: int, widths: tuple[int, ...]) -> None:
    compare(ResNet(1, widths), 6, 3, 4, together, 2, 1e-4)


@pytest.mark.slow
def test_resnet20__on_eight_replicas_with_norms_over_two__trains_as_pytorch() -> None:
    compare(ResNet(3, (16, 32, 64)), 32, 4, 8, 2, 4, 1e-3)


def test_batch_norm__over_as_many_as_do_not_divide__is_refused() -> None:
    opts = poptorch.Options().replicationFactor(4)
    opts.Abele.batchNormReplicas(3)
    model = ResNet(1, (4,))
    wrapped = poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(poptorch.Error, match="over 3 replicas: there are 4"):
        wrapped(torch.zeros(4, 3, 4, 4), torch.zeros(4, dtype=torch.long))


def test_batch_norm__without_running_statistics_over_replicas__normalises_all_samples() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(3, track_running_stats=False)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = self.norm(x)
            return y, poptorch.identity_loss(y * y * y, "sum")

    model = Scaled()
    opts = poptorch.Options().replicationFactor(2).outputMode(poptorch.OutputMode.All)
    opts.Abele.batchNormReplicas(2)
    wrapped = poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), lr=0.0))
    x = torch.randn(10, 3, generator=torch.Generator().manual_seed(4))
    torch.testing.assert_close(wrapped(x)[0], nn.functional.batch_norm(x, None, None, training=True))
