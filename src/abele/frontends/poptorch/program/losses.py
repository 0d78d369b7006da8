"""``identity_loss``: the mark of the value that training minimises."""

from __future__ import annotations

from typing import Protocol

import torch

from abele.frontends.poptorch.errors import Error

_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


@torch.library.custom_op("abele::identity_loss", mutates_args=())
def _identity_loss(value: torch.Tensor, reduction: int) -> torch.Tensor:
    return value.mean() if reduction == 1 else value.sum() if reduction == 2 else value.clone()


@_identity_loss.register_fake
def _(value: torch.Tensor, reduction: int) -> torch.Tensor:
    return torch.empty_like(value) if reduction == 0 else value.new_empty(())


class _SavedForward(Protocol):
    """Context kept from the forward pass to the backward pass."""

    shape: torch.Size
    reduction: int


def _setup_context(ctx: _SavedForward, inputs: tuple[torch.Tensor, int], output: object) -> None:
    ctx.shape, ctx.reduction = inputs[0].shape, inputs[1]


def _backward(ctx: _SavedForward, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
    scale = 1 / ctx.shape.numel() if ctx.reduction == 1 else 1.0
    return (grad * scale).expand(ctx.shape), None


_identity_loss.register_autograd(_backward, setup_context=_setup_context)


def identity_loss(x: torch.Tensor, reduction: str | int) -> torch.Tensor:
    """Mark ``x`` as the loss, reduced by ``"sum"``, ``"mean"`` or ``"none"`` (also 0, 1, 2 as in PopART).

    Raises:
        Error: An unknown reduction.
    """
    by_number = {0: "sum", 1: "mean", 2: "none"}
    name = by_number.get(reduction) if isinstance(reduction, int) else reduction.lower()
    if name not in _REDUCTIONS:
        raise Error(f"Unsupported reduction type {reduction!r} for identity_loss", remedy="sum, mean or none")
    result: torch.Tensor = _identity_loss(x, _REDUCTIONS[name])
    return result
