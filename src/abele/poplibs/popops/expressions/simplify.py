"""Cheaper operations for the same result, before an expression is lowered."""

from __future__ import annotations

from abele.poplibs.popops.expr import Cast, Const, Expr, Op

POWERS = {2.0: "square", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "inv"}
"""Constant exponents that are operations of their own."""


def simplified(expression: Expr) -> Expr:
    """``expression`` with constant powers as squares, roots, inverses and products.

    Parts that are shared stay shared.
    """
    return _simplified(expression, {})


def _simplified(expression: Expr, seen: dict[int, Expr]) -> Expr:
    key = id(expression)
    if key in seen:
        return seen[key]
    result = expression
    if isinstance(expression, Cast):
        arg = _simplified(expression.arg, seen)
        result = expression if arg is expression.arg else Cast(arg, expression.type)
    elif isinstance(expression, Op):
        args = [_simplified(a, seen) for a in expression.args]
        changed = any(a is not b for a, b in zip(args, expression.args, strict=True))
        power = _power(args[0], args[1]) if _is_power(expression) else None
        rebuilt = Op(expression.name, *args) if changed else expression
        result = rebuilt if power is None else power
    seen[key] = result
    return result


def _is_power(expression: Op) -> bool:
    return expression.name == "pow" and len(expression.args) == 2 and isinstance(expression.args[1], Const)


def _power(base: Expr, exponent: Expr) -> Expr | None:
    assert isinstance(exponent, Const)
    value = float(exponent.value)
    if value in POWERS:
        return Op(POWERS[value], base)
    if value == 3.0:
        return Op("mul", base, Op("square", base))
    return None
