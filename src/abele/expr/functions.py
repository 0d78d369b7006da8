"""Functions of one number that are made of the operations of the table: hyperbolic and circular ones, and inverses.

Each takes an expression and gives one; gradients flow through them, so that they are smooth where the function is.
"""

from __future__ import annotations

import math

from abele.expr.nodes import Expr, apply, select

_LARGE = 1e9
"""A number from which on 1 + x² is x² in f32."""


def _size(x: Expr) -> Expr:
    """|x|, with a slope of 1 at zero: functions of it are smooth there."""
    return select(x < 0.0, -x, x)


def _odd(x: Expr, value: Expr) -> Expr:
    """A value that is of |x| with the sign of x, and x itself at zero of either sign."""
    return select(x.eq(0.0), x, select(x < 0.0, -value, value))


def arc_sinh(x: Expr) -> Expr:
    """log(|x| + √(x² + 1)) with the sign of x; small x keep their digits in log1p."""
    size = _size(x)
    small = apply("log1p", size + size * size / (1.0 + apply("sqrt", size * size + 1.0)))
    return _odd(x, select(size > _LARGE, apply("log", size) + math.log(2.0), small))


def arc_cosh(x: Expr) -> Expr:
    """log(x + √(x² − 1)), NaN below 1."""
    above = x - 1.0
    # Two roots, as that of the product has a value below -1.
    near = apply("log1p", above + apply("sqrt", above) * apply("sqrt", x + 1.0))
    return select(x > _LARGE, apply("log", x) + math.log(2.0), near)


def arc_tanh(x: Expr) -> Expr:
    """Half the logarithm of (1 + x) / (1 − x)."""
    return 0.5 * (apply("log1p", x) - apply("log1p", -x))


def arc_cosine(x: Expr) -> Expr:
    """The angle of a cosine."""
    return apply("atan2", apply("sqrt", (1.0 - x) * (1.0 + x)), x)


def arc_tangent(x: Expr) -> Expr:
    """The angle of a tangent."""
    return apply("atan2", x, 1.0)


def hyperbolic_sine(x: Expr) -> Expr:
    """(eˣ − e⁻ˣ) / 2 by e^|x| − 1, which keeps the digits of small x; e^(|x|/2) twice where e^|x| overflows."""
    size = _size(x)
    grown = apply("expm1", size)
    half = apply("exp", size * 0.5)
    return _odd(x, select(size > 40.0, 0.5 * half * half, 0.5 * (grown + grown / (grown + 1.0))))


def hyperbolic_cosine(x: Expr) -> Expr:
    """(eˣ + e⁻ˣ) / 2."""
    half = apply("exp", apply("abs", x) * 0.5)
    grown = apply("exp", apply("abs", x))
    return select(apply("abs", x) > 40.0, 0.5 * half * half, 0.5 * (grown + 1.0 / grown))
