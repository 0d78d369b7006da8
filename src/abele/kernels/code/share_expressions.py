"""Share equal expressions of a nest (hash consing), so that each is computed once.

Code generation remembers values by the identity of their expression, which is quick; it is right only if equal
expressions are one object.
"""

from __future__ import annotations

from dataclasses import replace

from abele.kernels.nest.ir import Apply, Cast, Expr, Rounded
from abele.kernels.nest.loop_nest import LoopNest, RowFetch


def shared_expressions(nest: LoopNest) -> LoopNest:
    """``nest`` with equal expressions shared."""
    known: dict[Expr, Expr] = {}
    accumulates = tuple(replace(a, value=_shared(a.value, known)) for a in nest.accumulates)
    outs = tuple(o.with_values(lambda value: _shared(value, known)) for o in nest.outs)
    values = tuple(_shared(value, known) for value in nest.locals)
    return replace(nest, accumulates=accumulates, outs=outs, locals=values)


def _shared(expression: Expr, known: dict[Expr, Expr]) -> Expr:
    if expression not in known:
        match expression:
            case Apply():
                rebuilt: Expr = Apply(expression.op, (_shared(a, known) for a in expression.args))
            case Cast():
                rebuilt = Cast(expression.type, _shared(expression.arg, known))
            case Rounded():
                rebuilt = expression.of(tuple(_shared(a, known) for a in expression.args))
            case RowFetch():
                rebuilt = expression.at_row(_shared(expression.place.row, known))
            case _:
                rebuilt = expression
        known[expression] = rebuilt
    return known[expression]
