"""Operators of every element: arithmetic, functions, comparisons, conversions and choices."""

from __future__ import annotations

import math
from functools import reduce

from onnx import TensorProto

from abele.expr import Expr, apply, functions, select
from abele.expr.derivative import arg
from abele.frontends.onnx.registry import Item, NodeCall, op
from abele.frontends.onnx.types import element_type, host_type, type_code
from abele.network import Value
from abele.network.ops import build
from abele.numerics import bool_, f32, i32, u32

x, y, z = arg(0), arg(1), arg(2)

# --- functions of one number ------------------------------------------------------------------------------------------

_FLOATS: dict[str, Expr] = {
    "Acos": functions.arc_cosine(x),
    "Acosh": functions.arc_cosh(x),
    "Asin": apply("asin", x),
    "Asinh": functions.arc_sinh(x),
    "Atan": functions.arc_tangent(x),
    "Atanh": functions.arc_tanh(x),
    "Ceil": apply("ceil", x),
    "Cos": apply("cos", x),
    "Cosh": functions.hyperbolic_cosine(x),
    "Erf": apply("erf", x),
    "Exp": apply("exp", x),
    "Floor": apply("floor", x),
    "Log": apply("log", x),
    "Reciprocal": apply("inv", x),
    "Round": apply("round", x),
    "Sin": apply("sin", x),
    "Sinh": functions.hyperbolic_sine(x),
    "Sqrt": apply("sqrt", x),
    "Tan": apply("tan", x),
}
"""Functions of floats by name; Round takes halves to the even one."""


def _register(name: str, expression: Expr) -> None:
    @op(name)
    def function(call: NodeCall, value: Value) -> Value:
        return call.map(expression, value)


for _name, _expression in _FLOATS.items():
    _register(_name, _expression)


def _library(name: str, function_name: str) -> None:
    @op(name)
    def function(call: NodeCall, value: Value) -> Value:
        return build.nonlinearity(call.net, function_name, value)


for _name in ("Sigmoid", "Tanh"):
    _library(_name, _name.lower())


@op("Abs")
def absolute(call: NodeCall, value: Value) -> Value:
    """The size of every element."""
    return value if value.dtype.kind == "uint" else call.map(apply("abs", x), value)


@op("Neg")
def negative(call: NodeCall, value: Value) -> Value:
    """The negative of every element."""
    return call.map(-x, value)


@op("Sign")
def sign(call: NodeCall, value: Value) -> Value:
    """-1, 0 or 1; NaN stays."""
    if value.dtype.is_float:
        return call.map(select(apply("abs", x) > 0.0, apply("copysign", 1.0, x), x), value)
    if value.dtype.kind == "uint":
        return call.map(apply("min", x, 1.0), value)
    return call.map(apply("signum", x), value)


@op("Not")
def logical_not(call: NodeCall, value: Value) -> Value:
    """True where the operand is not."""
    return call.map(apply("not", x), value, common=bool_)


@op("BitwiseNot")
def bitwise_not(call: NodeCall, value: Value) -> Value:
    """All bits turned."""
    return call.map(apply("not", x), value)


@op("IsNaN")
def is_nan(call: NodeCall, value: Value) -> Value:
    """True where the operand is no number."""
    return call.map(x.ne(x), value, dtype=bool_)


@op("IsInf")
def is_infinite(call: NodeCall, value: Value, *, detect_negative: int = 1, detect_positive: int = 1) -> Value:
    """True where the operand is infinite, of the signs that are looked for."""
    if detect_negative and detect_positive:
        return call.map(apply("abs", x).eq(math.inf), value, dtype=bool_)
    if not (detect_negative or detect_positive):
        return build.full(call.net, 0, value.shape, bool_)
    return call.map(x.eq(-math.inf if detect_negative else math.inf), value, dtype=bool_)


# --- functions of two and more ----------------------------------------------------------------------------------------


def aligned(call: NodeCall, first: Value, second: Value, broadcast: int, axis: int | None) -> Value:
    """The second operand of an operator before version 7, whose dimensions begin at ``axis`` of the first's."""
    if call.version >= 7 or not broadcast or axis is None or second.ndim == first.ndim:
        return second
    begin = call.axis(axis, first.ndim)
    return build.reshape(call.net, second, (*second.shape, *(1,) * (first.ndim - begin - second.ndim)))


def _pair(name: str, expression: Expr, *, logical: bool = False, compares: bool = False) -> None:
    @op(name)
    def function(call: NodeCall, first: Value, second: Value, *, broadcast: int = 0, axis: int | None = None) -> Value:
        other = aligned(call, first, second, broadcast, axis)
        return call.map(
            expression, first, other, common=bool_ if logical else None, dtype=bool_ if compares or logical else None
        )


for _name, _expression in {"Add": x + y, "Sub": x - y, "Mul": x * y}.items():
    _pair(_name, _expression)
for _name, _expression in {"Equal": x.eq(y), "Greater": x > y, "Less": x < y}.items():
    _pair(_name, _expression, compares=True)
for _name, _expression in {"GreaterOrEqual": x >= y, "LessOrEqual": x <= y}.items():
    _pair(_name, _expression, compares=True)
for _name in ("And", "Or", "Xor"):
    _pair(_name, apply(_name.lower(), x, y), logical=True)
for _name in ("And", "Or", "Xor"):
    _pair(f"Bitwise{_name}", apply(_name.lower(), x, y))


@op("Div")
def divide(call: NodeCall, first: Value, second: Value, *, broadcast: int = 0, axis: int | None = None) -> Value:
    """The quotient; of integers truncated towards zero."""
    return call.map(x / y, first, aligned(call, first, second, broadcast, axis))


@op("Mod")
def modulo(call: NodeCall, first: Value, second: Value, *, fmod: int = 0) -> Value:
    """The remainder, with the divisor's sign; with ``fmod`` the dividend's."""
    if fmod or first.dtype.kind == "uint":
        return call.map(apply("rem", x, y), first, second)
    rest = apply("rem", x, y)
    other_side = apply("and", rest.ne(0.0), (rest < 0.0).ne(y < 0.0))
    return call.map(select(other_side, rest + y, rest), first, second)


@op("Pow")
def power(call: NodeCall, base: Value, exponent: Value, *, broadcast: int = 0, axis: int | None = None) -> Value:
    """The base to the power of the exponent, in the base's type."""
    other = aligned(call, base, exponent, broadcast, axis)
    if base.dtype.is_float:
        return call.map(apply("pow", x, y), base, other)
    if not exponent.dtype.is_float:
        number = call.net.scalar(exponent)
        if number is not None and 0 <= number <= 4 and float(number).is_integer():
            one = build.full(call.net, 1, base.shape, base.dtype)
            return reduce(lambda made, _: call.map(x * y, made, base), range(int(number)), one)
    return build.cast(call.net, call.map(apply("round", apply("pow", x, y)), base, other, common=f32), base.dtype)


@op("BitShift")
def bit_shift(call: NodeCall, value: Value, by: Value, *, direction: str) -> Value:
    """Bits moved left or right; those that leave are lost, and signs stay at the left end."""
    if direction not in ("LEFT", "RIGHT"):
        raise call.wrong(f"has the direction {direction!r}, which is neither LEFT nor RIGHT")
    bits, kind = value.dtype.bits, value.dtype
    if direction == "LEFT":
        wide = call.map(apply("shl", x, y), value, by, common=u32, dtype=u32)
        far = call.map(select(y < float(bits), x, 0.0), wide, by, common=u32)
        return build.cast(call.net, far, kind)
    if kind.kind == "uint":
        moved = call.map(select(y < float(bits), apply("shift_right", x, y), 0.0), value, by, common=u32)
        return build.cast(call.net, moved, kind)
    # A negative distance is a long one, as C's unsigned numbers are.
    held = select(apply("or", y < 0.0, y > float(bits - 1)), float(bits - 1), y)
    moved = call.map(apply("shift_right_sign_extend", x, held), value, by, common=i32)
    return build.cast(call.net, moved, kind)


def _several(name: str, expression: Expr) -> None:
    @op(name)
    def function(call: NodeCall, *values: Value) -> Value:
        return reduce(lambda made, each: call.map(expression, made, each), values)


for _name, _expression in {"Sum": x + y, "Max": apply("max", x, y), "Min": apply("min", x, y)}.items():
    _several(_name, _expression)


@op("Mean")
def mean(call: NodeCall, *values: Value) -> Value:
    """The mean of the operands."""
    whole = reduce(lambda made, each: call.map(x + y, made, each), values)
    return call.map(x * (1.0 / len(values)), whole)


@op("Where")
def where(call: NodeCall, condition: Value, then: Value, otherwise: Value) -> Value:
    """One operand where a condition holds, the other where not."""
    return call.map(select(x, y, z), condition, then, otherwise, common=then.dtype, masks=(0,))


@op("Clip")
def clip(call: NodeCall, value: Value, min_: Value | float | None = None, max_: Value | float | None = None) -> Value:
    """Every element within bounds, of which either may be left out."""
    made = value
    if min_ is not None:
        made = call.map(apply("max", x, y), made, min_)
    if max_ is not None:
        made = call.map(apply("min", x, y), made, max_)
    return made


_LARGEST = {TensorProto.FLOAT8E4M3FNUZ: 240.0, TensorProto.FLOAT8E5M2FNUZ: 57_344.0}
"""Largest number of an 8-bit float."""

# --- conversions ------------------------------------------------------------------------------------------------------


@op("Identity")
def identity(call: NodeCall, value: Item) -> Item:
    """The operand."""
    return value


@op("Cast")
def cast(call: NodeCall, value: Value, *, to: int | str, saturate: int = 1, round_mode: str = "up") -> Value:
    """Every element in another type."""
    code = TensorProto.DataType.Value(to) if isinstance(to, str) else to
    return converted(call, value, code, saturates=bool(saturate))


@op("CastLike")
def cast_like(call: NodeCall, value: Value, like: Item, *, saturate: int = 1, round_mode: str = "up") -> Value:
    """Every element in the type of another tensor."""
    return converted(call, value, type_code(like.dtype), saturates=bool(saturate))


def converted(call: NodeCall, value: Value, code: int, *, saturates: bool = True) -> Value:
    """A value in an ONNX type, by its number; 8-bit floats may hold what is too large as their largest."""
    if code in _LARGEST and saturates and value.dtype.is_float:
        most = _LARGEST[code]
        held = select(x > most, most, select(x < -most, -most, x))
        return build.cast(call.net, call.map(held, value, common=f32), element_type(code))
    if host_type(code).kind in "iu" and value.dtype.is_float:
        # Towards zero, as C and NumPy do.
        whole = element_type(code)
        return build.cast(call.net, call.map(apply("trunc", x), value), whole)
    if code == TensorProto.BOOL:
        return call.map(x.ne(0.0), value, dtype=bool_)
    return build.cast(call.net, value, element_type(code))
