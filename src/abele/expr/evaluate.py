"""Evaluation of an expression in NumPy, on whole arrays that broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from abele.arrays import Array
from abele.expr.nodes import Apply, Cast, Const, Expr, Load
from abele.expr.numpy_meaning import as_integers
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
            if value.dtype.kind == "f" and expression.type.kind in ("int", "uint"):
                return as_integers(value, expression.type.np)
            return value if keep else value.astype(expression.type.np)
        case Apply():
            with np.errstate(all="ignore"):
                return TABLE[expression.op].meaning(*_arguments(expression, arrays))
    raise TypeError(f"{expression!r} is no element-wise expression")


def _arguments(expression: Apply, arrays: Sequence[Array]) -> list[Array]:
    """Arguments of an operation; numbers take the type that the others compute in."""
    values = [evaluate(a, arrays) for a in expression.args]
    args = [np.asarray(v) for v in values]
    own = [v.dtype for v, a in zip(args, expression.args, strict=True) if not isinstance(a, Const)]
    if expression.op == "select":
        own = own[0 if isinstance(expression.args[0], Const) else 1 :]
    if not own or own[0].kind not in "iuf":
        return args
    kinds = "iuf" if own[0].kind == "f" else "iu"
    constant = [isinstance(a, Const) and v.dtype.kind in kinds for v, a in zip(args, expression.args, strict=True)]
    computed = np.dtype(f"{own[0].kind}{max(own[0].itemsize, 4)}")
    return [v.astype(computed) if c else v for v, c in zip(args, constant, strict=True)]
