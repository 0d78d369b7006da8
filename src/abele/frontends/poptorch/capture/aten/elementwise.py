"""Functions of one operand, element by element, that are one expression: circular, hyperbolic, rounding and tests."""

from __future__ import annotations

import math

from abele.expr import functions
from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.kernels.nest.ir import Const, Expr, apply, select
from abele.network import Value
from abele.network.ops import build
from abele.numerics import bool_, f32, i32

x, y = arg(0), arg(1)

_BELOW = select(x > 0.0, 0.0, x)
"""The lesser of x and 0, with a slope of 1 at zero: functions of it are smooth there."""


def sine_over(angle: Expr) -> Expr:
    """sin a / a; around zero its series, whose slope keeps its digits."""
    square = apply("square", angle)
    series = 1.0 + square * (square * (1 / 120) - 1 / 6)
    return select(apply("abs", angle) < 0.1, series, apply("sin", angle) / angle)


_FLOATS: dict[str, Expr] = {
    "expm1": apply("expm1", x),
    "log1p": apply("log1p", x),
    "log10": apply("log", x) * (1 / math.log(10.0)),
    "tan": apply("tan", x),
    "asin": apply("asin", x),
    "acos": functions.arc_cosine(x),
    "atan": functions.arc_tangent(x),
    "sinh": functions.hyperbolic_sine(x),
    "cosh": functions.hyperbolic_cosine(x),
    "asinh": functions.arc_sinh(x),
    "acosh": functions.arc_cosh(x),
    "atanh": functions.arc_tanh(x),
    "sinc": sine_over(x * math.pi),
    "deg2rad": x * (math.pi / 180),
    "rad2deg": x * (180 / math.pi),
    "mish": x * apply("tanh", apply("softplus", x)),
    "selu": 1.0507009873554805 * select(x > 0.0, x, 1.6732632423543772 * apply("expm1", _BELOW)),
    "frac": x - apply("trunc", x),
}


def _register(name: str, expression: Expr) -> None:
    @aten(f"aten.{name}")
    def function(call: OperatorCall, value: Value) -> Value:
        return call.map(expression, value)


for _name, _expression in _FLOATS.items():
    _register(_name, _expression)


# --- functions that leave integers as they are ------------------------------------------------------------------------


def _register_rounding(name: str) -> None:
    @aten(f"aten.{name}.default")
    def rounded(call: OperatorCall, value: Value) -> Value:
        return call.map(apply(name, x), value) if call.dtype.is_float else value


for _name in ("trunc", "floor", "ceil", "round"):
    _register_rounding(_name)


@aten("aten.round.decimals")
def round_to(call: OperatorCall, value: Value, *, decimals: int) -> Value:
    """The nearest number with so many decimals; halves to even."""
    if not call.dtype.is_float:
        return value
    scale = 10.0 ** abs(decimals)
    rounded = apply("round", x * scale) / scale if decimals >= 0 else apply("round", x / scale) * scale
    return call.map(rounded, value)


@aten("aten.sign", "aten.sgn")
def sign(call: OperatorCall, value: Value) -> Value:
    """−1, 0 or 1; of bools the value."""
    return value if call.dtype == bool_ else call.map(apply("signum", x), value)


@aten("aten.positive")
def positive(call: OperatorCall, value: Value) -> Value:
    """The value."""
    return value


# --- tests ------------------------------------------------------------------------------------------------------------

_TESTS: dict[str, tuple[Expr, bool]] = {
    "isnan": (apply("is_nan", x), False),
    "isinf": (apply("is_inf", x), False),
    "isfinite": (apply("is_finite", x), True),
    "isposinf": (x.eq(math.inf), False),
    "isneginf": (x.eq(-math.inf), False),
}


def _register_test(name: str, test: Expr, of_integers: bool) -> None:
    @aten(f"aten.{name}")
    def tested(call: OperatorCall, value: Value) -> Value:
        if not value.dtype.is_float:
            return build.full(call.net, of_integers, call.shape, bool_)
        return call.map(test, value, common=f32, dtype=bool_)


for _name, (_test, _of_integers) in _TESTS.items():
    _register_test(_name, _test, _of_integers)


@aten("aten.signbit")
def signbit(call: OperatorCall, value: Value) -> Value:
    """True where the sign is minus, of minus zero as well."""
    if value.dtype.is_float:
        return call.map(apply("copysign", 1.0, x) < 0.0, value, common=f32, dtype=bool_)
    if value.dtype == bool_:
        return build.full(call.net, False, call.shape, bool_)
    return call.map(x < 0, value, common=i32, dtype=bool_)


@aten("aten.angle")
def angle(call: OperatorCall, value: Value) -> Value:
    """π below zero, else zero."""
    return call.map(select(x < 0.0, math.pi, select(apply("is_nan", x), math.nan, 0.0)), value)


@aten("aten.nan_to_num")
def nan_to_num(
    call: OperatorCall, value: Value, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Value:
    """The value with numbers in place of what is not finite; by default zero and the largest of the type."""
    if not call.dtype.is_float:
        return value
    largest = {"f32": 3.4028234663852886e38, "f16": 65504.0, "bf16": 3.3895313892515355e38}[call.dtype.name]
    high, low = largest if posinf is None else float(posinf), -largest if neginf is None else float(neginf)
    finite = select(x.eq(math.inf), high, select(x.eq(-math.inf), low, x))
    return call.map(select(apply("is_nan", x), float(nan or 0.0), finite), value)


@aten("aten.frexp")
def frexp(call: OperatorCall, value: Value) -> tuple[Value, Value]:
    """Mantissa from ½ to 1, and the power of two."""
    wide = call.operand(value, f32)
    size = apply("max", apply("abs", x), 1.2e-38)
    guess = apply("floor", apply("log", size) * (1 / math.log(2.0))) + 1.0
    # The logarithm may be off by one beside powers of two.
    part = size * apply("pow", 2.0, -guess)
    power = select(part >= 1.0, guess + 1.0, select(part < 0.5, guess - 1.0, guess))
    plain = apply("is_finite", x)
    power = select(plain, select(x.eq(0.0), 0.0, power), 0.0)
    exponent = build.map_(call.net, power, [wide], f32)
    mantissa = build.map_(call.net, select(apply("is_finite", x), x * apply("pow", 2.0, -y), x), [wide, exponent], f32)
    return build.cast(call.net, mantissa, call.dtype), build.cast(call.net, exponent, i32)


# --- activations ------------------------------------------------------------------------------------------------------


@aten("aten.celu")
def celu(call: OperatorCall, value: Value, alpha: float = 1.0) -> Value:
    """x, or alpha · (exp(x / alpha) − 1) where it is negative."""
    below = float(alpha) * apply("expm1", _BELOW * (1.0 / alpha))
    return call.map(select(x > 0.0, x, below), value)


@aten("aten.hardshrink")
def hardshrink(call: OperatorCall, value: Value, limit: float = 0.5) -> Value:
    """x, or zero where it is within the limit."""
    limit = float(limit)
    return call.map(select(x > limit, x, select(x < -limit, x, select(apply("is_nan", x), math.nan, 0.0))), value)


@aten("aten.softshrink")
def softshrink(call: OperatorCall, value: Value, limit: float = 0.5) -> Value:
    """x moved towards zero by the limit."""
    limit = float(limit)
    moved = select(x > limit, x - limit, select(x < -limit, x + limit, 0.0))
    return call.map(select(apply("is_nan", x), math.nan, moved), value)


@aten("aten.threshold")
def threshold(call: OperatorCall, value: Value, limit: float, replacement: float) -> Value:
    """x where it is above the limit, else the replacement."""
    if call.dtype.is_float:
        return call.map(select(x <= float(limit), float(replacement), x), value)
    return call.map(select(x <= Const(math.floor(limit), i32), Const(int(replacement), i32), x), value, common=i32)


@aten("aten.logit")
def logit(call: OperatorCall, value: Value, eps: float | None = None) -> Value:
    """log(x / (1 − x)), x kept away from 0 and 1 by ``eps``."""
    kept: Expr = x
    if eps is not None:
        kept = select(x < float(eps), float(eps), select(x > 1.0 - float(eps), 1.0 - float(eps), x))
    return call.map(apply("logit", kept), value)


@aten("aten.glu")
def glu(call: OperatorCall, value: Value, dim: int = -1) -> Value:
    """The first half times the sigmoid of the second."""
    dim %= value.ndim
    half = value.shape[dim] // 2
    first = build.slice_(call.net, value, dim, 0, half)
    second = build.slice_(call.net, value, dim, half, 2 * half)
    return call.map(x * apply("sigmoid", y), first, second)
