"""Cheaper expressions of the same value: no products with 1 or -1, constant powers as products.

Slopes lose their zeros as well: a slope of 0 stays 0 beside an infinite factor, which a product of values does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from abele.expr.nodes import Apply, Const, Expr, apply
from abele.numerics import bool_

POWERS = {2.0: "square", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "inv"}
"""Constant exponents that are operations of their own."""
_ZERO, _ONE = Const(0.0), Const(1.0)
_FOLDS: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
}


def total(a: Expr, b: Expr) -> Expr:
    """The slope a + b, simplified."""
    return b if is_number(a, 0) else a if is_number(b, 0) else simplified(a + b)


def product(a: Expr, b: Expr) -> Expr:
    """The slope a · b, simplified; zero where a factor is, even if the other one is infinite or NaN, as in PyTorch."""
    for one, other in ((a, b), (b, a)):
        if is_number(one, 0):
            return _ZERO
        match one:
            case Apply(op="select", args=(condition, then, otherwise)) if is_number(then, 0) or is_number(otherwise, 0):
                return Apply("select", (condition, product(then, other), product(otherwise, other)))
    return simplified(a * b)


def is_number(expression: Expr, number: float) -> bool:
    """True if it is the constant ``number``."""
    return isinstance(expression, Const) and expression.value == number


def simplified(expression: Expr) -> Expr:
    """The expression without products with 1 or -1, and operations on constants alone."""
    if not isinstance(expression, Apply):
        return expression
    match expression.op, expression.args:
        case "sub", (a, Const(value=b)) if b == 0 and math.copysign(1, b) > 0:
            return a
        case "mul", (a, b):
            return _simplified_product(expression, a, b)
        case "div", (a, b) if is_number(b, 1):
            return a
        case "div", (a, Const(value=float(by), type=kind)) if kind.is_float and _is_power_of_two(by):
            return _simplified_product(Apply("mul", (a, Const(1 / by, kind))), a, Const(1 / by, kind))
        # Exact for the exponents that have an operation of their own, and much cheaper than exp(log(a) · exponent).
        case "pow", (a, Const(value=exponent)):
            return _simplified_power(expression, a, float(exponent))
        case "select", (_, a, b) if isinstance(a, Const) and a == b:
            return a
    return _folded(expression)


def _is_power_of_two(number: float) -> bool:
    """True for numbers whose inverse is exact in f16 as well."""
    return abs(math.frexp(number)[0]) == 0.5 and 2**-14 <= abs(number) <= 2**14


def _simplified_product(whole: Apply, a: Expr, b: Expr) -> Expr:
    for one, other in ((a, b), (b, a)):
        if is_number(one, 1):
            return other
        if is_number(one, -1):
            return _folded(Apply("neg", (other,)))
    return _folded(whole)


def _simplified_power(power: Apply, base: Expr, exponent: float) -> Expr:
    if exponent in POWERS:
        return apply(POWERS[exponent], base)
    match exponent:
        case 0.0:
            return _ONE
        case 1.0:
            return base
        case 3.0:
            return apply("square", base) * base
    return power


def _folded(expression: Apply) -> Expr:
    """The constant that an operation on constants of one type is, or the operation itself."""
    constants = [a for a in expression.args if isinstance(a, Const) and a.type != bool_]
    if expression.op not in _FOLDS or len(constants) != len(expression.args):
        return expression
    if len({c.type for c in constants}) != 1:
        return expression
    return Const(_FOLDS[expression.op](*(c.value for c in constants)), constants[0].type)
