"""Primitives of every element: arithmetic, functions, comparisons, choices and conversions."""

from __future__ import annotations

from typing import Any

from abele.expr.derivative import arg
from abele.frontends.jaxpr.registry import PrimitiveCall, primitive
from abele.frontends.jaxpr.types import element_type
from abele.kernels.nest.ir import Expr, apply, select
from abele.network import Value
from abele.network.ops import build
from abele.numerics import bool_

x, y, z = arg(0), arg(1), arg(2)

# --- expressions ------------------------------------------------------------------------------------------------------

_FLOATS: dict[str, Expr] = {
    "exp": apply("exp", x),
    "exp2": apply("exp2", x),
    "expm1": apply("expm1", x),
    "log": apply("log", x),
    "log1p": apply("log1p", x),
    "sqrt": apply("sqrt", x),
    "rsqrt": apply("rsqrt", x),
    "cbrt": apply("cbrt", x),
    "sin": apply("sin", x),
    "cos": apply("cos", x),
    "tan": apply("tan", x),
    "tanh": apply("tanh", x),
    "logistic": apply("sigmoid", x),
    "erf": apply("erf", x),
    "erfc": apply("erfc", x),
    "atan2": apply("atan2", x, y),
    "floor": apply("floor", x),
    "ceil": apply("ceil", x),
}
"""Functions of floats by name."""

_NUMBERS: dict[str, Expr] = {
    "add": x + y,
    "add_any": x + y,
    "sub": x - y,
    "mul": x * y,
    "neg": -x,
    "abs": apply("abs", x),
    "sign": apply("signum", x),
    "square": x * x,
    "max": apply("max", x, y),
    "min": apply("min", x, y),
}
"""Functions of numbers by name."""


def _register(name: str, expression: Expr) -> None:
    @primitive(name)
    def function(call: PrimitiveCall, *operands: Value) -> Value:
        return call.map(expression, *operands)


for _name, _expression in (_FLOATS | _NUMBERS).items():
    _register(_name, _expression)


@primitive("div")
def divide(call: PrimitiveCall, value: Value, by: Value) -> Value:
    """The quotient; of integers truncated towards zero."""
    return call.map(apply("div", x, y), value, by)


@primitive("integer_pow")
def integer_power(call: PrimitiveCall, value: Value, *, y: int) -> Value:
    """A power with a known whole exponent, by squaring."""
    if y == 0:
        return build.full(call.net, 1, call.shape, call.dtype)
    result: Expr | None = None
    square: Expr = x
    left = abs(y)
    while left:
        if left & 1:
            result = square if result is None else result * square
        left >>= 1
        if left:
            square = square * square
    assert result is not None
    return call.map(result if y > 0 else 1.0 / result, value)


# --- comparisons and choices ------------------------------------------------------------------------------------------

_COMPARISONS: dict[str, Expr] = {
    "eq": x.eq(y),
    "ne": x.ne(y),
    "lt": x < y,
    "le": x <= y,
    "gt": x > y,
    "ge": x >= y,
}


def _register_comparison(name: str, expression: Expr) -> None:
    @primitive(name)
    def compared(call: PrimitiveCall, first: Value, second: Value) -> Value:
        return call.map(expression, first, second, common=first.dtype, dtype=bool_)


for _name, _expression in _COMPARISONS.items():
    _register_comparison(_name, _expression)


@primitive("is_finite")
def is_finite(call: PrimitiveCall, value: Value) -> Value:
    """True for numbers, false for infinities and NaN."""
    return call.map(apply("is_finite", x), value, common=value.dtype, dtype=bool_)


@primitive("select_n")
def select_n(call: PrimitiveCall, which: Value, *cases: Value) -> Value:
    """The case whose number ``which`` holds; a bool chooses the second where it is true."""
    if len(cases) == 1:
        return cases[0]
    if which.dtype == bool_:
        return call.map(select(z, y, x), cases[0], cases[1], which, masks={2})
    result: Expr = arg(0)
    number = arg(len(cases))
    for place in range(1, len(cases)):
        result = select(number >= place, arg(place), result)
    return call.map(result, *cases, which, masks={len(cases)})


@primitive("clamp")
def clamp(call: PrimitiveCall, low: Value, value: Value, high: Value) -> Value:
    """The value, kept between two others."""
    return call.map(apply("min", apply("max", y, x), z), low, value, high)


# --- conversions ------------------------------------------------------------------------------------------------------


@primitive("convert_element_type")
def convert_element_type(call: PrimitiveCall, value: Value, *, new_dtype: Any) -> Value:
    """The value in another type; a number is true as a bool unless it is zero."""
    dtype = element_type(new_dtype)
    if dtype == bool_ and value.dtype != bool_:
        return call.map(x.ne(0.0), value, common=value.dtype, dtype=bool_)
    return build.cast(call.net, value, dtype)


@primitive("copy")
def same(call: PrimitiveCall, *values: Value) -> Any:
    """The values as they are."""
    return values if len(values) != 1 else values[0]


@primitive("stop_gradient")
def stop_gradient(call: PrimitiveCall, value: Value) -> Value:
    """The value, through which no gradient flows."""
    return build.detach(call.net, value)
