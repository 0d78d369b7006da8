"""Factors of sums, multiplied before the sums.

A product sums many terms, and its factor makes the sum's variance 1 again. Multiplied afterwards, as formulas have it,
the bare sum has to fit the type first: the gradient of a layer of width 64 in float16 becomes infinite when it is to be
8188, an eighth of the largest number, and the gradient of a weight over 65,536 positions from 256 on. In training
gradients do become that large: variance 1 is how they begin. So each operand is multiplied, and no sum is larger than
what comes of it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from abele.frontends.poptorch.unit_scaling.rules import Factors
from abele.frontends.poptorch.unit_scaling.scaling import scale_backward, scaled

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
