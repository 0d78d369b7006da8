"""Derivatives of element-wise expressions, as expressions.

Expressions are those of :mod:`abele.kernels.nest.ir`; ``arg(i)`` stands for an element of operand i.

>>> print(partial(arg(0) * ir.apply("exp", arg(1)), 1))
%0[] * exp(%1[])
"""

from __future__ import annotations

import math
from collections.abc import Callable

from abele.errors import UnsupportedOpError
from abele.kernels.nest.ir import Apply, Cast, Const, Expr, Load, apply
from abele.numerics import bool_

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
            return simplify(Apply(expression.op, [substitute(a, replace) for a in expression.args]))
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
        return simplify(apply("select", condition, *branches))
    if expression.op not in _RULES:
        raise UnsupportedOpError(f"the element-wise operation {expression.op!r} has no derivative")
    total: Expr = ZERO
    for inner, outer in zip(expression.args, _RULES[expression.op], strict=True):
        step = partial(inner, operand)
        if not _is(step, 0):
            total = add(total, mul(outer(*expression.args), step))
    return total


def _where(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    return apply("select", condition, then, otherwise)


def _power_of_base(x: Expr, y: Expr) -> Expr:
    if isinstance(y, Const):
        return mul(y, simplify(apply("pow", x, Const(y.value - 1))))
    return mul(y, apply("pow", x, y - 1.0))


_STEP = Callable[..., Expr]
_FLAT: tuple[_STEP, ...] = (lambda *args: ZERO,)
_ERF_SLOPE = 2.0 / math.sqrt(math.pi)

_RULES: dict[str, tuple[_STEP, ...]] = {
    "add": (lambda x, y: ONE, lambda x, y: ONE),
    "sub": (lambda x, y: ONE, lambda x, y: Const(-1.0)),
    "mul": (lambda x, y: y, lambda x, y: x),
    "div": (lambda x, y: simplify(1.0 / y), lambda x, y: -(x / apply("square", y))),
    "pow": (_power_of_base, lambda x, y: mul(apply("pow", x, y), apply("log", x))),
    # Equal arguments share the gradient, as in PyTorch.
    "max": (lambda x, y: _share(x > y, x.eq(y)), lambda x, y: _share(x < y, x.eq(y))),
    "min": (lambda x, y: _share(x < y, x.eq(y)), lambda x, y: _share(x > y, x.eq(y))),
    "neg": (lambda x: Const(-1.0),),
    "abs": (lambda x: _where(x > 0.0, ONE, _where(x < 0.0, Const(-1.0), ZERO)),),
    "exp": (lambda x: apply("exp", x),),
    "log": (lambda x: 1.0 / x,),
    "tanh": (lambda x: 1.0 - apply("square", apply("tanh", x)),),
    "sigmoid": (lambda x: apply("sigmoid", x) * (1.0 - apply("sigmoid", x)),),
    "erf": (lambda x: _ERF_SLOPE * apply("exp", -apply("square", x)),),
    "sin": (lambda x: apply("cos", x),),
    "cos": (lambda x: -apply("sin", x),),
    "sqrt": (lambda x: 0.5 * apply("rsqrt", x),),
    "rsqrt": (lambda x: -0.5 * apply("rsqrt", x) / x,),
    "inv": (lambda x: -apply("square", apply("inv", x)),),
    "square": (lambda x: 2.0 * x,),
    "relu": (lambda x: _where(x > 0.0, ONE, ZERO),),
    "floor": _FLAT,
    "ceil": _FLAT,
    "round": _FLAT,
}


def _share(strictly: Expr, equal: Expr) -> Expr:
    return _where(strictly, ONE, _where(equal, Const(0.5), ZERO))


def add(a: Expr, b: Expr) -> Expr:
    """a + b, simplified."""
    return simplify(a + b)


def mul(a: Expr, b: Expr) -> Expr:
    """a · b, simplified."""
    return simplify(a * b)


def _is(expression: Expr, number: float) -> bool:
    return isinstance(expression, Const) and expression.value == number


def simplify(expression: Expr) -> Expr:
    """The expression without additions of 0, products with 0, 1 or −1, and operations on constants alone."""
    if not isinstance(expression, Apply):
        return expression
    match expression.op, expression.args:
        case "add", (a, b):
            return b if _is(a, 0) else a if _is(b, 0) else _folded(expression)
        case "sub", (a, b):
            return a if _is(b, 0) else _folded(expression)
        case "mul", (a, b):
            return _simplify_product(expression, a, b)
        case "div", (a, b) if _is(b, 1):
            return a
        case "pow", (a, Const(value=exponent)):
            return _simplify_power(expression, a, float(exponent))
        case "select", (_, a, b) if isinstance(a, Const) and a == b:
            return a
    return _folded(expression)


def _simplify_product(product: Apply, a: Expr, b: Expr) -> Expr:
    for one, other in ((a, b), (b, a)):
        if _is(one, 0):
            return ZERO
        if _is(one, 1):
            return other
        if _is(one, -1):
            return _folded(Apply("neg", (other,)))
        # A branch without slope stays zero even where the other factor is infinite or NaN, as in PyTorch.
        match one:
            case Apply(op="select", args=(condition, then, otherwise)) if _is(then, 0) or _is(otherwise, 0):
                return Apply("select", (condition, mul(then, other), mul(otherwise, other)))
    return _folded(product)


def _simplify_power(power: Apply, base: Expr, exponent: float) -> Expr:
    known: dict[float, Callable[[Expr], Expr]] = {
        0.0: lambda x: ONE,
        1.0: lambda x: x,
        2.0: lambda x: apply("square", x),
        3.0: lambda x: apply("square", x) * x,
        0.5: lambda x: apply("sqrt", x),
        -0.5: lambda x: apply("rsqrt", x),
        -1.0: lambda x: apply("inv", x),
    }
    return known[exponent](base) if exponent in known else power


_FOLDS: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
}


def _folded(expression: Apply) -> Expr:
    """The constant that an operation on constants of one type is, or the operation itself."""
    constants = [a for a in expression.args if isinstance(a, Const) and a.type != bool_]
    if expression.op not in _FOLDS or len(constants) != len(expression.args):
        return expression
    if len({c.type for c in constants}) != 1:
        return expression
    return Const(_FOLDS[expression.op](*(c.value for c in constants)), constants[0].type)
