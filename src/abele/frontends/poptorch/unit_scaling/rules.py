"""Factors of unit scaling: those of an operation's result and gradients, so that each has variance 1.

Two bodies of rules are published and differ in places. ``library`` has the rules of the PyTorch library that its
authors maintain; ``demo`` those of the programs behind the paper. Both start from the same idea: where inputs, weights
and incoming gradients are independent and have variance 1, a sum of n products has variance n, and n^-1/2 makes it 1.

Source: Blake et al., Unit Scaling, arXiv:2303.11257, sections 3 to 5 and appendices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from abele.errors import nearest
from abele.frontends.poptorch.errors import OptionValueError


@dataclass(frozen=True)
class Factors:
    """Factors of an operation with weights.

    Attributes:
        output: The result.
        input_grad: The gradient of its input.
        weight_grad: The gradient of its weights.
    """

    output: float
    input_grad: float
    weight_grad: float


@dataclass(frozen=True)
class Rules:
    """One published body of rules.

    Attributes:
        name: ``library`` or ``demo``.
        sum_power: A gradient that sums over n positions is multiplied by n to minus this power: 1/2 gives it variance
            1, 1 makes it a mean.
        constraint: Rule that makes scales agree where the caller says nothing, a name of
            :data:`CONSTRAINTS`.
        interpolates: True if activation functions have factors by their input multiplier, between a linear limit and
            that of a step; otherwise their standard deviations on normal inputs are divided by.
    """

    name: str
    sum_power: float
    constraint: str
    interpolates: bool


LIBRARY = Rules("library", 0.5, "forward", True)
DEMO = Rules("demo", 1.0, "geometric", False)
RULES: Mapping[str, Rules] = MappingProxyType({"library": LIBRARY, "demo": DEMO})
"""The published rules by name."""


def rules_of(rules: str | Rules) -> Rules:
    """The rules of a name.

    Raises:
        OptionValueError: There are none of that name.
    """
    if isinstance(rules, Rules):
        return rules
    if rules not in RULES:
        raise _unknown("rules", rules, RULES)
    return RULES[rules]


# --- constraints ------------------------------------------------------------------------------------------------------


def _geometric(scales: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, scales)) / len(scales))


def _arithmetic(scales: Sequence[float]) -> float:
    """The scale of the mean size: of scales n^-1/2, the mean of all n to the power -1/2."""
    return float((sum(scale**-2.0 for scale in scales) / len(scales)) ** -0.5)


CONSTRAINTS: Mapping[str, Callable[[Sequence[float]], float] | None] = MappingProxyType(
    {
        "geometric": _geometric,
        "arithmetic": _arithmetic,
        "min": min,
        "forward": lambda scales: scales[0],
        "backward": lambda scales: scales[1],
        "separate": None,
    }
)
"""Rules that make one scale of those of a result and of its inputs' gradients.

In order: the geometric mean, that of the arithmetic mean of sizes, the smaller, that of the result, that of the first
input's gradient, or none.

A tensor on a cut edge of the graph (one without which the graph falls apart) needs no constraint. Elsewhere gradients
from several ways are added, and are right up to a common factor only if each way back multiplies as its way forth.
"""


def constrained(constraint: str, *scales: float) -> tuple[float, ...]:
    """Scales that agree as ``constraint`` says.

    Args:
        constraint: A name of :data:`CONSTRAINTS`.
        *scales: Of the result, and of the gradient of each input.

    Raises:
        OptionValueError: There is no such constraint.
    """
    if constraint not in CONSTRAINTS:
        raise _unknown("constraint", constraint, CONSTRAINTS)
    chosen = CONSTRAINTS[constraint]
    return scales if chosen is None else (chosen(scales),) * len(scales)


def _unknown(what: str, given: object, known: Mapping[str, object]) -> OptionValueError:
    close = nearest(given, known) if isinstance(given, str) else None
    names = ", ".join(map(repr, known))
    return OptionValueError(
        f"unit scaling has no {what} {given!r}", remedy=f"did you mean {close!r}?" if close else f"one of {names}"
    )


# --- operations with weights ------------------------------------------------------------------------------------------


def product_factors(
    rules: Rules, fan_in: float, fan_out: float, positions: float, constraint: str | None = None
) -> Factors:
    """Factors of a product with weights.

    Args:
        rules: Rules of the factors.
        fan_in: Products that an element of the result sums.
        fan_out: Products that an element of the input's gradient sums.
        positions: Products that an element of the weights' gradient sums.
        constraint: Rule that makes result and input's gradient one; None as the rules have it.
    """
    output, grad = constrained(constraint or rules.constraint, fan_in**-0.5, fan_out**-0.5)
    return Factors(output, grad, positions**-rules.sum_power)


def readout_factors(rules: Rules, fan_in: float, fan_out: float, positions: float) -> Factors:
    """Factors of the last layer, which gives scores: the result by ``fan_in`` to the power -1, nothing constrained."""
    return Factors(1 / fan_in, fan_out**-0.5, positions**-rules.sum_power)


def embedding_factor(rules: Rules, rows: int, positions: int) -> float:
    """By what the gradient of a table of ``rows`` is multiplied, of which ``positions`` are looked up: each row sums
    ``positions / rows`` gradients in the mean."""
    return float((rows / positions) ** rules.sum_power)


def cross_entropy_factor(rows: int, classes: int) -> float:
    """By what the gradient of scores is multiplied, [``rows``, ``classes``], of a mean over rows.

    At scores that tell nothing, a row's gradient is 1/c everywhere but -(1 - 1/c) at its class, over the number of
    rows: a root mean square of (c - 1)^1/2 / c.
    """
    return rows * classes / math.sqrt(classes - 1) if classes > 1 else float(rows)


def residual_factors(rules: Rules, tau: float) -> tuple[float, float]:
    """Factors of what goes past a branch, and of the branch; their squares add up to 1.

    Args:
        rules: Rules of the factors.
        tau: ``library``: the branch's share relative to what goes past it, 1 for equal ones. ``demo``: the branch's
            part of the variance, between 0 and 1.

    Raises:
        OptionValueError: No such share.
    """
    if rules.name == "demo":
        if not 0 <= tau <= 1:
            raise OptionValueError(f"a branch's part of the variance is from 0 to 1, not {tau}")
        return math.sqrt(1 - tau), math.sqrt(tau)
    if not (tau >= 0 and math.isfinite(tau)):
        raise OptionValueError(f"a branch's share is a number from 0 on, not {tau}")
    return 1 / math.hypot(1, tau), tau / math.hypot(1, tau)
