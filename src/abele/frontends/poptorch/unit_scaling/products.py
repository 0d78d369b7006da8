"""Factors of sums, multiplied before the sums.

A product sums many terms, and its factor makes the sum's variance 1 again. Multiplied afterwards, as formulas have it,
the bare sum has to fit the type first: the gradient of a layer of width 64 in float16 becomes infinite when it is to be
8188, an eighth of the largest number, and the gradient of a weight over 65,536 positions from 256 on. In training
gradients do become that large: variance 1 is how they begin. So each operand is multiplied, and no sum is larger than
what comes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from abele.frontends.poptorch.unit_scaling.rules import Factors

# Multiplying a value by one factor on the way forth and its gradient by another on the way back.


class _Scaled(torch.autograd.Function):
    """x times one factor, whose gradient is multiplied by another."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, forward: float, backward: float) -> torch.Tensor:
        ctx.factor = backward
        return value * forward if forward != 1 else value.view_as(value)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad * ctx.factor if ctx.factor != 1 else grad, None, None


def scaled(value: torch.Tensor, forward: float = 1.0, backward: float = 1.0) -> torch.Tensor:
    """``value`` times ``forward``; the gradient that reaches it is the incoming one times ``backward``.

    The two need not agree: what is returned is no function whose derivative PyTorch would take.

    Args:
        value: Any floating-point tensor.
        forward: Factor of the value.
        backward: Factor of its gradient.
    """
    if forward == backward:
        return value if forward == 1 else value * forward
    made: torch.Tensor = _Scaled.apply(value, forward, backward)  # type: ignore[no-untyped-call]
    return made


def scale_forward(value: torch.Tensor, factor: float) -> torch.Tensor:
    """``value`` times ``factor``, with the gradient of ``value``."""
    return scaled(value, factor, 1.0)


def scale_backward(value: torch.Tensor, factor: float) -> torch.Tensor:
    """``value``, with its gradient times ``factor``."""
    return scaled(value, 1.0, factor)


_inside: ContextVar[bool] = ContextVar("unit_scaling_inside", default=False)


@contextmanager
def unscaled() -> Iterator[None]:
    """PyTorch's functions mean themselves inside, also in a model that :func:`unit_scale` made."""
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)


def is_unscaled() -> bool:
    """True inside :func:`unscaled`."""
    return _inside.get()


Product = Callable[[Tensor, Tensor, Tensor | None, Factors], Tensor]
"""Features [..., in], weights [out, in] and a bias [out] or None to features [..., out], with their factors."""

LEAST = 2.0**-8
"""The smallest factor of an operand. float16 has full precision for 14 octaves below 1; a factor that is smaller still
multiplies the other operand, or the sum."""


def before_sums(factor: float) -> float:
    """Part of a factor of a sum that multiplies its terms: all of it, but nothing below :data:`LEAST` or above 1."""
    return max(min(factor, 1.0), LEAST)


def scaled_product(
    function: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    value: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    factors: Factors,
) -> Tensor:
    """A product and its gradients, times their factors.

    Args:
        function: Multiplies value and weights, and adds the bias if there is one.
        value: Value to multiply.
        weight: By what.
        bias: Added to the scaled product; its gradient has the factor of the weights'. None for none.
        factors: Of the result and of the gradients.

    Method: with early · late the result's factor and b a part of both gradients',

        y  = (early · x) (late · w)
        dx = (b · dy) (late · w) · dx factor / (b · late)
        dw = (b · dy) (early · x) · dw factor / (b · early)

    where the last factors are at least 1, so that the sums before them are smaller than what comes of them.
    """
    early = before_sums(factors.output)
    late = factors.output / early
    b = before_sums(min(factors.input_grad, factors.weight_grad))
    made = function(
        scaled(value, early, factors.input_grad / (b * late)),
        scaled(weight, late, factors.weight_grad / (b * early)),
        None if bias is None else scale_backward(bias, factors.weight_grad / b).to(value.dtype),
    )
    return scale_backward(made, b)


def linear_product(value: Tensor, weight: Tensor, bias: Tensor | None, factors: Factors) -> Tensor:
    """The scaled product of a fully connected layer, in the type of its operands."""
    return scaled_product(F.linear, value, weight, bias, factors)


def scaled_sums(function: Callable[[Tensor, float], Tensor], value: Tensor, factor: float) -> Tensor:
    """A function of a value and of parameters, whose gradients are sums over positions and multiplied by ``factor``.

    Args:
        function: Takes the value, and what is left of the factor for the parameters' gradients.
        value: Its gradient stays as it is.
        factor: Of the parameters' gradients.
    """
    before = before_sums(factor)
    return scale_backward(function(scale_backward(value, 1 / before), factor / before), before)
