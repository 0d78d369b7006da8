"""Marks: operators that stand in a recorded graph for concepts without an ATen operator. Each is an identity or has no
meaning of its own on the host.

* ``abele::loss(x)``: x is the result of a loss of PyTorch.
* ``abele::detached(x)``: x, as code that ran without gradients left it.
* ``abele::gradients(results, given, sources, keep)``: gradients by ``torch.autograd.grad`` in a forward pass; gradients
  flow on through it where ``keep`` is true.
* ``abele::incoming(like, number)``: the gradient that will reach a result of call ``number`` of a user's function.
* ``abele::own_backward(number, results, sources, gradients)``: the results of that call, with the gradients that its
  backward pass makes of incoming ones for its sources.

A forward pass with ``torch.autograd.grad(y, x)`` records ``abele::gradients([y], [ones_like(y)], [x], keep)``. A first
call of ``Round.apply(x)``, with a backward pass that returns ``2 * grad``, records its result y as::

    grad = abele::incoming(y, 0)
    y = abele::own_backward(0, [y], [x], [2 * grad])
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.fx.node import has_side_effect

from abele.frontends.poptorch.program import losses

assert losses, "importing it registers its operator"


@torch.library.custom_op("abele::loss", mutates_args=())
def loss(value: torch.Tensor) -> torch.Tensor:
    """Mark ``value`` as a loss of PyTorch's."""
    return value.clone()


@torch.library.custom_op("abele::detached", mutates_args=())
def detached(value: torch.Tensor) -> torch.Tensor:
    """Mark ``value`` as made without gradients."""
    return value.clone()


@torch.library.custom_op("abele::incoming", mutates_args=())
def incoming(like: torch.Tensor, number: int) -> torch.Tensor:
    """Stand for the gradient of a result."""
    return torch.zeros_like(like)


@torch.library.custom_op("abele::own_backward", mutates_args=())
def own_backward(
    number: int, results: Sequence[torch.Tensor], sources: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Give results gradients of their own."""
    return [t.clone() for t in results]


@torch.library.custom_op("abele::gradients", mutates_args=())
def gradients(
    results: Sequence[torch.Tensor], given: Sequence[torch.Tensor], sources: Sequence[torch.Tensor], keep: bool
) -> list[torch.Tensor]:
    """Stand for gradients of sources."""
    return [torch.zeros_like(t) for t in sources]


@gradients.register_fake
def _(
    results: Sequence[torch.Tensor], given: Sequence[torch.Tensor], sources: Sequence[torch.Tensor], keep: bool
) -> list[torch.Tensor]:
    return [torch.empty_like(t) for t in sources]


@loss.register_fake
@detached.register_fake
def _(value: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(value)


@incoming.register_fake
def _(like: torch.Tensor, number: int) -> torch.Tensor:
    return torch.empty_like(like)


@own_backward.register_fake
def _(
    number: int, results: Sequence[torch.Tensor], sources: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    return [torch.empty_like(t) for t in results]


LOSS, INCOMING, OWN_BACKWARD = "abele.loss", "abele.incoming", "abele.own_backward"
GRADIENTS = "abele.gradients"

has_side_effect(torch.ops.abele.identity_loss.default)
has_side_effect(torch.ops.abele.loss.default)
