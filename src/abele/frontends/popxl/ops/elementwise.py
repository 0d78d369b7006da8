"""Ops of every element."""

from __future__ import annotations

from typing import Any

from abele.expr import Const, Expr, apply, select
from abele.expr.derivative import arg
from abele.frontends.popxl.dtypes import as_dtype
from abele.frontends.popxl.errors import GraphArgumentError
from abele.frontends.popxl.ops.common import change, check_same_types, checked, emit, mapped, of_floats
from abele.frontends.popxl.tensors import Tensor
from abele.network.ops import build
from abele.numerics import bool_, f32

x, y, z = arg(0), arg(1), arg(2)


def _unary(kind: str, expression: Any, t: Tensor, result: Any = None) -> Tensor:
    return emit(kind, mapped(expression, result), t)


def _of_floats(kind: str, expression: Any, t: Tensor) -> Tensor:
    return of_floats(kind, mapped(expression), t)


def _nonlinear(kind: str, function: str, t: Tensor) -> Tensor:
    return of_floats(kind, lambda net, v: build.nonlinearity(net, function, v), t, in_place=kind.endswith("_"))


def _binary(kind: str, expression: Any, lhs: Tensor, rhs: Tensor, result: Any = None) -> Tensor:
    checked(kind, lhs, rhs)
    check_same_types(kind, (lhs, rhs))
    return emit(kind, mapped(expression, result), lhs, rhs)


def abs(t: Tensor) -> Tensor:
    """The size of every element."""
    return _unary("abs", apply("abs", x), t)


def negate(t: Tensor) -> Tensor:
    """The negative of every element."""
    return _unary("negate", -x, t)


def ceil(t: Tensor) -> Tensor:
    """The next whole number up."""
    return _of_floats("ceil", apply("ceil", x), t)


def floor(t: Tensor) -> Tensor:
    """The next whole number down."""
    return _of_floats("floor", apply("floor", x), t)


def cos(t: Tensor) -> Tensor:
    """The cosine."""
    return _of_floats("cos", apply("cos", x), t)


def sin(t: Tensor) -> Tensor:
    """The sine."""
    return _of_floats("sin", apply("sin", x), t)


def exp(t: Tensor) -> Tensor:
    """The exponential."""
    return _of_floats("exp", apply("exp", x), t)


def exp_(t: Tensor) -> Tensor:
    """The exponential, in place."""
    return of_floats("exp_", mapped(apply("exp", x)), t, in_place=True)


def log(t: Tensor) -> Tensor:
    """The natural logarithm."""
    return _of_floats("log", apply("log", x), t)


def log2(t: Tensor) -> Tensor:
    """The logarithm of base 2."""
    return _of_floats("log2", apply("log", x) * 1.4426950408889634, t)


def sqrt(t: Tensor) -> Tensor:
    """The square root."""
    return _of_floats("sqrt", apply("sqrt", x), t)


def sign(t: Tensor) -> Tensor:
    """-1, 0 or 1."""
    return _unary("sign", apply("signum", x), t)


def tanh(t: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return _nonlinear("tanh", "tanh", t)


def relu(t: Tensor) -> Tensor:
    """Negative elements as zero."""
    return _nonlinear("relu", "relu", t)


def relu_(t: Tensor) -> Tensor:
    """Negative elements as zero, in place."""
    return _nonlinear("relu_", "relu", t)


def gelu(t: Tensor) -> Tensor:
    """Gaussian error linear units, by tanh."""
    return _nonlinear("gelu", "gelu", t)


def gelu_(t: Tensor) -> Tensor:
    """Gaussian error linear units, in place."""
    return _nonlinear("gelu_", "gelu", t)


def geluerf(t: Tensor) -> Tensor:
    """Gaussian error linear units, by the error function."""
    return _nonlinear("geluerf", "gelu_erf", t)


def geluerf_(t: Tensor) -> Tensor:
    """Gaussian error linear units by the error function, in place."""
    return _nonlinear("geluerf_", "gelu_erf", t)


def swish(t: Tensor) -> Tensor:
    """X times its sigmoid."""
    return _of_floats("swish", x * apply("sigmoid", x), t)


def swish_(t: Tensor) -> Tensor:
    """X times its sigmoid, in place."""
    return of_floats("swish_", mapped(x * apply("sigmoid", x)), t, in_place=True)


def clip(t: Tensor, min: float, max: float) -> Tensor:
    """Elements kept between two numbers."""
    return _of_floats("clip", apply("max", apply("min", x, float(max)), float(min)), t)


def increment_mod(t: Tensor, increment: float, modulus: float) -> Tensor:
    """(t + increment) mod modulus."""
    return emit("increment_mod", _incremented(t, increment, modulus), t)


def increment_mod_(t: Tensor, increment: float, modulus: float) -> Tensor:
    """(t + increment) mod modulus, in place."""
    return change("increment_mod_", _incremented(t, increment, modulus), t)


def _incremented(t: Tensor, increment: float, modulus: float) -> Any:
    kind = t.dtype.element
    number = float if t.dtype.is_floating_point else int
    return mapped(apply("rem", x + Const(number(increment), kind), Const(number(modulus), kind)))


def isfinite(t: Tensor) -> Tensor:
    """True for numbers that are finite."""
    return _unary("isfinite", apply("is_finite", x), t, bool_)


def isinf(t: Tensor) -> Tensor:
    """True for infinities."""
    return _unary("isinf", apply("is_inf", x), t, bool_)


def isnan(t: Tensor) -> Tensor:
    """True for what is no number."""
    return _unary("isnan", x.ne(x), t, bool_)


def add(lhs: Tensor, rhs: Tensor) -> Tensor:
    """The sum."""
    return _binary("add", x + y, lhs, rhs)


def add_(lhs: Tensor, rhs: Tensor) -> Tensor:
    """The sum, in place of ``lhs``."""
    check_same_types("add_", (lhs, rhs))
    return change("add_", mapped(x + y), lhs, rhs)


def sub(lhs: Tensor, rhs: Tensor) -> Tensor:
    """The difference."""
    return _binary("sub", x - y, lhs, rhs)


def mul(lhs: Tensor, rhs: Tensor) -> Tensor:
    """The product of elements."""
    return _binary("mul", x * y, lhs, rhs)


def div(lhs: Tensor, rhs: Tensor) -> Tensor:
    """The quotient; of integers the whole one."""
    return _binary("div", x / y, lhs, rhs)


def fmod(lhs: Tensor, rhs: Tensor) -> Tensor:
    """The rest of a division, with the sign of ``lhs``."""
    return _binary("fmod", apply("rem", x, y), lhs, rhs)


def pow(lhs: Tensor, rhs: Tensor) -> Tensor:
    """A power."""
    return _binary("pow", apply("pow", x, y), lhs, rhs)


def equal(lhs: Tensor, rhs: Tensor) -> Tensor:
    """True where elements are equal."""
    return _binary("equal", x.eq(y), lhs, rhs, bool_)


def greater(lhs: Tensor, rhs: Tensor) -> Tensor:
    """True where those of ``lhs`` are greater."""
    return _binary("greater", x > y, lhs, rhs, bool_)


def _truth(t: Tensor) -> Tensor:
    return t if t.dtype.name == "bool" else cast(t, "bool")


def logical_and(lhs: Tensor, rhs: Tensor) -> Tensor:
    """True where both are."""
    checked("logical_and", lhs, rhs)
    return emit("logical_and", mapped(apply("logical_and", x, y), bool_, bool_), _truth(lhs), _truth(rhs))


def logical_or(lhs: Tensor, rhs: Tensor) -> Tensor:
    """True where either is."""
    checked("logical_or", lhs, rhs)
    return emit("logical_or", mapped(apply("logical_or", x, y), bool_, bool_), _truth(lhs), _truth(rhs))


def logical_not(t: Tensor) -> Tensor:
    """True where it is not."""
    checked("logical_not", t)
    return emit("logical_not", mapped(apply("logical_not", x), bool_, bool_), _truth(t))


def maximum(*ts: Tensor) -> Tensor:
    """The largest of several tensors, element by element."""
    return _joined("maximum", "max", ts)


def _joined(kind: str, operation: str, ts: Any) -> Tensor:
    if not ts:
        raise GraphArgumentError(f"{kind} takes at least one tensor")
    checked(kind, *ts)
    check_same_types(kind, ts)
    expression: Expr = x
    for number in range(1, len(ts)):
        expression = apply(operation, expression, arg(number))
    return emit(kind, mapped(expression), *ts)


def sum_of(ts: Any) -> Tensor:
    """The sum of tensors of one shape."""
    checked("sum", *ts)
    return emit("sum", lambda net, *values: build.total(net, list(values)), *ts)


def where(condition: Tensor, lhs: Tensor, rhs: Tensor) -> Tensor:
    """Elements of ``lhs`` where a condition holds, else of ``rhs``."""
    checked("where", condition, lhs, rhs)
    check_same_types("where", (lhs, rhs))
    kind = lhs.dtype.element
    return emit(
        "where", lambda net, c, a, b: build.map_(net, select(x, y, z), [c, a, b], kind), _truth(condition), lhs, rhs
    )


def cast(t: Tensor, data_type: Any) -> Tensor:
    """It in another type."""
    kind = as_dtype(data_type).element
    if kind == bool_:
        zero = Const(0.0) if t.dtype.is_floating_point else Const(0, t.dtype.element)
        return (
            emit("cast", mapped(x.ne(zero), bool_), t) if t.dtype.name != "bool" else emit("cast", lambda net, v: v, t)
        )
    return emit("cast", lambda net, v: build.cast(net, v, kind), t)


def scaled_add(X: Tensor, Y: Tensor, a: Any = 1.0, b: Any = 1.0) -> Tensor:
    """A X + b Y, with numbers or tensors of one element."""
    return emit("scaled_add", *_scaled(X, Y, a, b))


def scaled_add_(X: Tensor, Y: Tensor, a: Any = 1.0, b: Any = 1.0) -> Tensor:
    """A X + b Y, in place of X."""
    return change("scaled_add_", *_scaled(X, Y, a, b))


def _scaled(first: Tensor, second: Tensor, a: Any, b: Any) -> Any:
    checked("scaled_add", first, second)
    tensors = [first, second]
    factors: list[Expr] = []
    for factor in (a, b):
        if isinstance(factor, Tensor):
            factors.append(arg(len(tensors)))
            tensors.append(factor)
        else:
            factors.append(Const(float(factor)))
    expression = factors[0] * x + factors[1] * y
    kind = first.dtype.element

    def meaning(net: Any, *values: Any) -> Any:
        common = f32 if any(v.dtype == f32 for v in values) else kind
        return build.cast(net, mapped(expression, common, common)(net, *values), kind)

    return (meaning, *tensors)


def identity(t: Tensor) -> Tensor:
    """A copy."""
    return emit("identity", lambda net, v: v, t)


def detach(t: Tensor) -> Tensor:
    """It, through which no gradient goes."""
    return emit("detach", lambda net, v: build.detach(net, v), t)


def lamb_square(t: Tensor) -> Tensor:
    """The sum of squares, f32."""
    return emit("lamb_square", lambda net, v: build.reduce(net, mapped(x * x, f32, f32)(net, v), range(v.ndim)), t)


__all__ = [
    "abs",
    "add",
    "add_",
    "cast",
    "ceil",
    "clip",
    "cos",
    "detach",
    "div",
    "equal",
    "exp",
    "exp_",
    "floor",
    "fmod",
    "gelu",
    "gelu_",
    "geluerf",
    "geluerf_",
    "greater",
    "identity",
    "increment_mod",
    "increment_mod_",
    "isfinite",
    "isinf",
    "isnan",
    "lamb_square",
    "log",
    "log2",
    "logical_and",
    "logical_not",
    "logical_or",
    "maximum",
    "mul",
    "negate",
    "pow",
    "relu",
    "relu_",
    "scaled_add",
    "scaled_add_",
    "sign",
    "sin",
    "sqrt",
    "sub",
    "sum_of",
    "swish",
    "swish_",
    "tanh",
    "where",
]
