"""Derivatives of expressions, as expressions.

``arg(i)`` stands for an element of operand i.

>>> from abele.expr import apply
>>> print(partial(arg(0) * apply("exp", arg(1)), 1))
%0[] * exp(%1[])

Forward accumulation over the tree of an expression: the chain rule at each operation, with the slopes that the table of
operations gives, simplified as it is built, so that zeros never spread. Composite operations without a slope of their
own are differentiated through what they are made of. Expressions are a handful of operations; networks are
differentiated in reverse, op by op (:mod:`abele.network.autodiff.differentiate`), and use these slopes.
"""

from __future__ import annotations

from collections.abc import Callable

from abele.errors import UnsupportedOpError
from abele.expr.nodes import Apply, Cast, Const, Expr, Load, apply
from abele.expr.operation import TABLE
from abele.expr.simplify import is_number, product, simplified, total
from abele.numerics import f32

ZERO = Const(0.0)
ONE = Const(1.0)


def arg(operand: int) -> Load:
    """The element of operand ``operand``, counted from 0."""
    return Load(operand, ())


def operands(expression: Expr) -> set[int]:
    """Numbers of the operands that an expression reads."""
    return {e.operand for e in expression.walk() if isinstance(e, Load)}


def substitute(expression: Expr, replace: Callable[[int], Expr]) -> Expr:
    """The expression with every operand ``i`` replaced by ``replace(i)``."""
    match expression:
        case Load():
            return replace(expression.operand)
        case Apply():
            return simplified(Apply(expression.op, [substitute(a, replace) for a in expression.args]))
        case Cast():
            return Cast(expression.type, substitute(expression.arg, replace))
    return expression


def partial(expression: Expr, operand: int) -> Expr:
    """∂expression / ∂operand.

    Raises:
        UnsupportedOpError: An operation of the expression has no derivative.
    """
    match expression:
        case Load():
            return ONE if expression.operand == operand else ZERO
        case Cast():
            return partial(expression.arg, operand)
        case Apply() if operand in operands(expression):
            return _chain(expression, operand)
    return ZERO


def _chain(expression: Apply, operand: int) -> Expr:
    if expression.op == "select":
        condition, then, otherwise = expression.args
        branches = partial(then, operand), partial(otherwise, operand)
        return simplified(apply("select", condition, *branches))
    operation = TABLE[expression.op]
    if operation.slopes is None and not operation.is_primitive and not operation.gives_bool:
        return _of_parts(expression, operand)
    if operation.slopes is None:
        raise UnsupportedOpError(f"the element-wise operation {expression.op!r} has no derivative")
    sum_: Expr = ZERO
    for inner, outer in zip(expression.args, operation.slopes, strict=True):
        step = partial(inner, operand)
        if not is_number(step, 0):
            sum_ = total(sum_, product(outer(*expression.args), step))
    return sum_


def _of_parts(expression: Apply, operand: int) -> Expr:
    """Derivative of a composite through its expansion, for operands that are floats."""
    expansion = TABLE[expression.op].expansion
    assert expansion is not None
    count = max(operands(expression)) + 1
    return partial(expansion((f32,) * count, *expression.args), operand)
