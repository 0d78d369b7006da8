"""Cheaper operations for the same result, before an expression is lowered."""

from __future__ import annotations

import abele.expr as ir
from abele.expr.simplify import POWERS
from abele.poplibs.popops.expr import Expr, parts


def simplified(expression: Expr) -> Expr:
    """``expression`` with constant powers as squares, roots, inverses and products.

    Parts that are shared stay shared.
    """
    found: dict[int, ir.Expr] = {}
    for node in parts(expression.node):
        found[id(node)] = _simplified(node, [found[id(a)] for a in node.args])
    result = found[id(expression.node)]
    return expression if result is expression.node else Expr(result)


def _simplified(node: ir.Expr, args: list[ir.Expr]) -> ir.Expr:
    same = all(a is b for a, b in zip(args, node.args, strict=True))
    if isinstance(node, ir.Apply):
        power = _power(*args) if node.op == "pow" else None
        return power or (node if same else ir.Apply(node.op, args))
    return ir.Cast(node.type, args[0]) if isinstance(node, ir.Cast) and not same else node


def _power(base: ir.Expr, exponent: ir.Expr) -> ir.Expr | None:
    if not isinstance(exponent, ir.Const):
        return None
    value = float(exponent.value)
    if value in POWERS:
        return ir.apply(POWERS[value], base)
    return ir.apply("mul", base, ir.apply("square", base)) if value == 3.0 else None
