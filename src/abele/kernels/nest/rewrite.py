"""Rewrite expressions: the one walk that every pass changes expressions with."""

from __future__ import annotations

from collections.abc import Callable

from abele.kernels.nest.ir import Apply, Cast, Expr, Rounded, RowLoad
from abele.kernels.nest.loop_nest import RowFetch


def rewrite(expression: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """``expression`` with every part for which ``change`` gives something replaced by it, outermost first."""
    changed = change(expression)
    if changed is not None:
        return changed
    match expression:
        case Apply():
            args = [rewrite(a, change) for a in expression.operands]
            # What stays is kept, not made anew: its types, and that it is legal, are known by identity.
            if all(new is old for new, old in zip(args, expression.operands, strict=True)):
                return expression
            return Apply(expression.op, args)
        case Cast():
            return Cast(expression.type, rewrite(expression.arg, change))
        case Rounded():
            return expression.of(tuple(rewrite(a, change) for a in expression.args))
        case RowLoad() | RowFetch():
            return expression.at_row(rewrite(expression.args[0], change))
    return expression
