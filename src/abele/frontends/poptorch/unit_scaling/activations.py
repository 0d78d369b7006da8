"""Factors of activation functions, softmax and attention.

``library`` knows an input multiplier μ: how sharp a function is. Its factors lie between two limits, on a logarithmic
scale: a linear one for small μ, and a step for large μ, where GELU and SiLU are max(0, x) and softmax is one-hot. What
weight the limits have is a fit of theirs. ``demo`` divides by the standard deviation on normal inputs.

Where neither has published a formula (tanh with a multiplier), the standard deviation is integrated here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from abele.arrays import Float64
from abele.frontends.poptorch.errors import OptionValueError
from abele.frontends.poptorch.unit_scaling.rules import Rules

_STEP_OUTPUT = math.sqrt(2 / (1 - 1 / math.pi))
"""One over the standard deviation of max(0, x)."""


def checked_multiplier(mult: float) -> float:
    """An input multiplier.

    Raises:
        OptionValueError: It is no finite number above 0.
    """
    if isinstance(mult, bool) or not isinstance(mult, (int, float)) or not (0 < mult < math.inf):
        raise OptionValueError(f"an input multiplier is a number above 0, not {mult!r}")
    return float(mult)


def between(weight: float, lower: float, upper: float) -> float:
    """``upper`` with ``weight``, ``lower`` with the rest, on a logarithmic scale."""
    return math.exp(weight * math.log(upper) + (1 - weight) * math.log(lower))


def activation_factors(rules: Rules, function: str, mult: float = 1.0) -> tuple[float, float]:
    """Factors of f(μx)/μ and of its gradient, where x is normal with variance 1.

    Args:
        rules: Rules of the factors.
        function: ``gelu``, ``silu``, ``tanh`` or ``relu``.
        mult: μ.
    """
    checked_multiplier(mult)
    if rules.interpolates and function in ("gelu", "silu"):
        early, late = 1 / (1 + 1 / (4 * mult**2)), 1 / (1 + 1 / mult**2)
        grad_weight = early if function == "gelu" else late
        return between(early, 2.0, _STEP_OUTPUT), between(grad_weight, 2.0, math.sqrt(2))
    output, grad = deviations(function, mult)
    return 1 / output, 1 / grad


def gated_silu_factor(mult: float = 1.0) -> float:
    """The factor of a·b·sigmoid(μb), and of both gradients."""
    return between(1 / (1 + 1 / checked_multiplier(mult) ** 2), 2.0, math.sqrt(2))


def softmax_factors(size: int, mult: float = 1.0) -> tuple[float, float]:
    """Factors of softmax(μx) over ``size`` elements, and of its gradient.

    The linear limit is μx/N beside a mean of 1/N; one-hot rows have a standard deviation of N^-1/2, and a gradient only
    where the two largest are within 1/μ of each other.
    """
    weight = 1 / (1 + 4 / checked_multiplier(mult) ** 2)
    return between(weight, size / mult, math.sqrt(size)), between(weight, size / mult, math.sqrt(size / mult))


def attention_factor(
    width: int,
    positions: int,
    *,
    causal: bool,
    mult: float = 1.0,
    dropout: float = 0.0,
    correlation: float = 0.0,
) -> float:
    """The factor of attention whose scores are μ/``width`` times products of queries and keys, and of its gradients.

    Scores that tell nothing average ``positions`` values, or in causal attention 1, 2, … of them, whose mean variance
    is log(N)/N if values are independent; sharp scores choose one.

    Args:
        width: Of a key.
        positions: Values that are averaged.
        causal: True if a position averages itself and those before it.
        mult: μ.
        dropout: Odds with which a weight is dropped.
        correlation: Of values at different positions, 0 as published. What they have in common is not averaged out: a
            mean of variance v becomes one of correlation + (1 - correlation) · v. At 1 attention is never made larger.

    Raises:
        OptionValueError: A multiplier or correlation out of range.
    """
    weight = 1 / (1 + 4 * width / checked_multiplier(mult) ** 2)
    # One position sees itself alone.
    averaged = (math.log(positions) if causal and positions > 1 else 1) / positions
    if not 0 <= correlation <= 1:
        raise OptionValueError(f"the correlation of values is from 0 to 1, not {correlation!r}")
    averaged = correlation + (1 - correlation) * averaged
    return math.sqrt(1 - dropout) / between(weight, math.sqrt(averaged), 1.0)


# --- standard deviations by integration -------------------------------------------------------------------------------


def _erf(x: Float64) -> Float64:
    made: Float64 = np.vectorize(math.erf, otypes=[np.float64])(x)
    return made


def _sigmoid(x: Float64) -> Float64:
    made: Float64 = 0.5 * (1 + np.tanh(x / 2))
    return made


_FUNCTIONS: dict[str, Callable[[Float64], Any]] = {
    "gelu": lambda x: x * 0.5 * (1 + _erf(x / math.sqrt(2))),
    "silu": lambda x: x * _sigmoid(x),
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
}
_POINTS = 20_001


@cache
def deviations(function: str, mult: float = 1.0) -> tuple[float, float]:
    """Standard deviation of f(μx)/μ over normal x, and root mean square of its derivative.

    A sum over evenly spaced points converges faster than any power of their distance for smooth integrands that vanish
    at the ends; the derivative is that of the line between neighbours.
    """
    if function not in _FUNCTIONS:
        raise OptionValueError(
            f"unit scaling knows no factors of {function!r}", remedy=f"one of {', '.join(_FUNCTIONS)}"
        )
    x = np.linspace(-10, 10, _POINTS)
    made = np.asarray(_FUNCTIONS[function](mult * x), np.float64) / mult
    odds = np.exp(-(x**2) / 2)
    odds /= odds.sum()
    mean = float(odds @ made)
    middle = np.exp(-((x[1:] + x[:-1]) ** 2) / 8)
    slopes = np.diff(made) / np.diff(x)
    return math.sqrt(float(odds @ (made - mean) ** 2)), math.sqrt(float(middle @ slopes**2 / middle.sum()))
