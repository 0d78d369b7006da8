"""Functions that PyTorch maps over rows, differentiates forward, or combines in the order of a scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.associative_scan import associative_scan

from abele import poptorch

X = torch.rand(5, 4, generator=torch.Generator().manual_seed(1))


def scanned(x: Tensor) -> Any:
    return associative_scan(lambda a, b: a * b, x + 0.5, 0, combine_mode="generic")


def scanned_back(x: Tensor) -> Any:
    return associative_scan(torch.maximum, x, 1, reverse=True, combine_mode="generic")


def recurrence(x: Tensor) -> Any:
    """y[t] = a[t] y[t - 1] + b[t], as state-space models compute it."""
    return associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (x, x * 2), 0, combine_mode="generic")[1]


def mapped(x: Tensor) -> Any:
    return torch.func.vmap(lambda row: row * row.sum() + torch.arange(4) + torch.ones(4).cumsum(0))(x)


def mapped_over_columns(x: Tensor) -> Any:
    return torch.func.vmap(torch.dot, in_dims=(1, None))(x, torch.arange(5.0))


def forward_derivative(x: Tensor) -> Any:
    return torch.func.jvp(lambda v: v**3 * v.sum(), (x,), (x.sin(),))[1]


@pytest.mark.parametrize(
    "forward",
    [scanned, scanned_back, recurrence, mapped, mapped_over_columns, forward_derivative],
    ids=lambda f: f.__name__,
)
def test_transforms__on_the_device__give_what_the_host_gives(forward: Callable[[Tensor], Any]) -> None:
    torch.testing.assert_close(poptorch.inferenceModel(forward)(X), forward(X))


class Ensemble(nn.Module):
    """Three layers as one, by a map over their weights."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(2)
        self.weights = nn.Parameter(torch.randn(3, 2, 4, generator=generator))
        self.biases = nn.Parameter(torch.randn(3, 2, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        made = torch.func.vmap(lambda w, b: nn.functional.linear(x, w, b).relu())(self.weights, self.biases)
        return poptorch.identity_loss(made.pow(2).mean(), reduction="none")


def test_transforms__in_training__have_the_gradients_of_the_host() -> None:
    model, reference = Ensemble(), Ensemble()
    run = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    host = torch.optim.SGD(reference.parameters(), lr=0.1)
    for _ in range(2):
        loss = reference(X)
        host.zero_grad()
        loss.backward()
        host.step()
        torch.testing.assert_close(run(X), loss.detach())
    run.copyWeightsToHost()
    torch.testing.assert_close(model.weights.detach(), reference.weights.detach())


def test_transforms__gradients_of_functions__are_refused_with_a_remedy() -> None:
    with pytest.raises(poptorch.Error, match=r"torch.func.grad, vjp, jacrev and hessian cannot be recorded") as caught:
        poptorch.inferenceModel(torch.func.grad(lambda v: (v**3).sum()))(X)
    assert "torch.autograd.grad" in str(caught.value)
