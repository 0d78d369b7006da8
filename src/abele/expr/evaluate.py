"""Evaluation of an expression in NumPy, on whole arrays that broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from abele.arrays import Array
from abele.expr.nodes import Apply, Cast, Const, Expr, Load
from abele.expr.operation import TABLE


def evaluate(expression: Expr, arrays: Sequence[Array]) -> Any:
    """``expression`` in NumPy's own types; operations by their meanings, composite ones included.

    Args:
        expression: Over loads ``%i[]``; indices and random bits have no meaning here.
        arrays: The operands, which broadcast. Those in 64 bits stay so, as an oracle for tests.
    """
    match expression:
        case Load():
            return arrays[expression.operand]
        case Const():
            return expression.value
        case Cast():
            value = np.asarray(evaluate(expression.arg, arrays))
            keep = expression.type.is_float and value.dtype == np.float64
            return value if keep else value.astype(expression.type.np)
        case Apply():
            args = [np.asarray(evaluate(a, arrays)) for a in expression.args]
            with np.errstate(all="ignore"):
                return TABLE[expression.op].meaning(*args)
    raise TypeError(f"{expression!r} is no element-wise expression")
