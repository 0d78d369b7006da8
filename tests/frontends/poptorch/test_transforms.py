"""Functions that PyTorch maps over rows, differentiates forward, or combines in the order of a scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from poptorch_kit import check_against_torch
from torch import Tensor, nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from abele import poptorch
from abele.frontends.poptorch.capture import capture

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


def curved(v: Tensor) -> Tensor:
    """Detached and quiet parts have no gradients."""
    with torch.no_grad():
        scale = v.sin()
    return (v.tanh() * v.exp()).sum() + (scale * v + v.detach() * v).sum()


@pytest.mark.parametrize(
    "transformed",
    [
        torch.func.grad(curved),
        torch.func.grad(lambda v: torch.func.grad(curved)(v).pow(2).sum()),
        torch.func.grad_and_value(lambda v: (curved(v), v.cos()), has_aux=True),
        torch.func.vmap(torch.func.grad(curved)),
        torch.func.vmap(torch.func.vmap(lambda v: v.sin() * v.exp(), in_dims=0), in_dims=1, out_dims=1),
        lambda x: torch.func.vjp(torch.tanh, x)[1](x.cos())[0],
        torch.func.vmap(torch.func.jacrev(lambda v: torch.outer(v, v.sin())[0])),
        lambda x: torch.func.jacfwd(lambda v: v * v.sum())(x[0]),
        lambda x: torch.func.hessian(curved)(x[0]),
    ],
)
def test_transforms__gradients_of_functions__are_those_of_the_host(transformed: Callable[[Tensor], Any]) -> None:
    torch.testing.assert_close(poptorch.inferenceModel(transformed)(X), transformed(X), rtol=1e-4, atol=1e-5)


class Physics(nn.Module):
    """A loss of derivatives of a network by its input, as functions give them, and of each row's own gradient."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))

    def value(self, row: Tensor) -> Tensor:
        with torch.no_grad():
            scale = self.net(row.cos())
        return (self.net(row) * scale + self.net(row).detach() * row.sum()).squeeze()

    def forward(self, x: Tensor) -> Tensor:
        slopes = torch.func.vmap(torch.func.grad(self.value))(x)
        curves = torch.func.vmap(torch.func.hessian(lambda row: self.net(row).squeeze()))(x)
        per_row = torch.func.vmap(
            torch.func.grad(lambda p, row: torch.func.functional_call(self.net, p, (row,)).sum()), in_dims=(None, 0)
        )(dict(self.net.named_parameters()), x)
        return slopes.pow(2).mean() + curves.pow(2).mean() + per_row["0.weight"].pow(2).mean()


def test_transforms__gradients_of_functions_in_training__are_differentiated_again() -> None:
    check_against_torch(Marked(Physics()), (X,), twin=Physics(), rtol=1e-6)


class Marked(nn.Module):
    """The loss of another model, marked."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        for name, child in model.named_children():
            setattr(self, name, child)
        self.of = [model]

    def forward(self, *args: Tensor) -> Tensor:
        return poptorch.identity_loss(self.of[0](*args), reduction="none")


# --- flex_attention ---------------------------------------------------------------------------------------------------

SLOPES = torch.tensor([0.5, 0.25])


def causal(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return i >= j


def biased(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return score - SLOPES.to(score.dtype)[h] * (i - j).abs()


class Flexible(nn.Module):
    """Attention whose scores and mask are functions."""

    def __init__(self, score: Any, mask: Any) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.qkv = nn.Linear(8, 24)
        self.score, self.mask = score, mask

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        return poptorch.identity_loss(self.attention(q, k, v).pow(2).sum(), reduction="none")

    def attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mask = self.mask and create_block_mask(self.mask, None, None, q.shape[2], k.shape[2], device="cpu")
        made: Tensor = flex_attention(q, k, v, score_mod=self.score, block_mask=mask, scale=0.4)
        return made


class Dense(Flexible):
    """The same, with scores and masks as tensors."""

    def attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        bias = torch.zeros(1, 2, q.shape[2], k.shape[2], dtype=q.dtype)
        apart = torch.arange(q.shape[2]).unsqueeze(1) - torch.arange(k.shape[2])
        if self.score is not None:
            bias = bias - SLOPES.to(q.dtype).reshape(2, 1, 1) * apart.abs()
        if self.mask is not None:
            bias = bias.masked_fill(apart < 0, -torch.inf)
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=0.4)


@pytest.mark.parametrize(("score", "mask"), [(None, None), (biased, None), (None, causal), (biased, causal)])
def test_flex_attention__scores_and_masks_as_functions__are_those_as_tensors(score: Any, mask: Any) -> None:
    x = torch.rand(2, 5, 8, generator=torch.Generator().manual_seed(5))
    check_against_torch(Flexible(score, mask), (x,), twin=Dense(score, mask), rtol=1e-6)


def test_flex_attention__known_mask__is_a_constant() -> None:
    net = capture(Flexible(None, causal), (torch.rand(2, 5, 8),), training=True).net
    assert [op.kind for op in net.walk()].count("matmul") == 2
    assert any(op.kind == "constant" and op.output.shape[-2:] == (5, 5) for op in net.walk())
