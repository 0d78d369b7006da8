"""Arithmetic, comparisons and selection, element by element, with PyTorch's broadcasting and type promotion."""

from __future__ import annotations

import math
from typing import Any

from abele.expr.derivative import arg
from abele.expr.simplify import simplified
from abele.frontends.poptorch.capture.registry import OperatorCall, aten, element_type
from abele.kernels.nest.ir import Cast, Const, Expr, apply, select
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import bool_, f16, f32, i32

Operand = Value | float
_LARGEST_F32, _LARGEST_BF16 = 3.4028234663852886e38, 3.3895313892515355e38

x, y, z = arg(0), arg(1), arg(2)


@aten("aten.add")
def add(call: OperatorCall, a: Operand, b: Operand, alpha: float = 1) -> Value:
    """a + alpha · b; of bools, either."""
    if call.dtype == bool_:
        return call.map(apply("or", x, y) if alpha else x, a, b)
    return call.map(x + (y if alpha == 1 else y * alpha), a, b)


@aten("aten.sub")
def sub(call: OperatorCall, a: Operand, b: Operand, alpha: float = 1) -> Value:
    """a − alpha · b."""
    return call.map(x - (y if alpha == 1 else y * alpha), a, b)


@aten("aten.rsub")
def rsub(call: OperatorCall, a: Operand, b: Operand, alpha: float = 1) -> Value:
    """b − alpha · a."""
    return call.map(y - (x if alpha == 1 else x * alpha), a, b)


@aten("aten.mul")
def mul(call: OperatorCall, a: Operand, b: Operand) -> Value:
    """a · b; of bools, both."""
    if call.dtype == bool_:
        return call.map(apply("and", x, y), a, b)
    return call.map(x * y, a, b)


@aten("aten.div")
def div(call: OperatorCall, a: Operand, b: Operand, rounding_mode: str | None = None) -> Value:
    """a / b, rounded if asked."""
    return _quotient(call, a, b, rounding_mode)


@aten("aten.floor_divide")
def floor_divide(call: OperatorCall, a: Operand, b: Operand) -> Value:
    """a / b, rounded down."""
    return _quotient(call, a, b, "floor")


def _quotient(call: OperatorCall, a: Operand, b: Operand, rounding_mode: str | None) -> Value:
    if rounding_mode is None:
        # Numbers whose reciprocal is a float are multiplied by it.
        if isinstance(b, (int, float)) and 1e-37 < abs(b) < 1e37:
            return call.map(x * y, a, 1 / b)
        return call.map(x / y, a, b)
    down = rounding_mode == "floor"
    if not call.dtype.is_float:
        # The machine has no division of integers; those by powers of two, downwards, are shifts that keep the sign.
        power = _power_of_two(b)
        if down and power is not None:
            return _of_whole(call, apply("shr", x, y), a, power)
        return _of_whole(call, apply("floordiv", x, y) if down else x / y, a, b)
    # PyTorch rounds the quotient to the type of the result before it truncates, and not before it rounds down.
    return call.map(_floor_of_quotient() if down else apply("trunc", Cast(call.dtype, x / y)), a, b)


def _power_of_two(number: Operand) -> int | None:
    """The exponent of a power of two that 31 bits hold; None for others."""
    if not isinstance(number, int) or not 0 < number < 1 << 31 or number.bit_count() > 1:
        return None
    return number.bit_length() - 1


def _floor_of_quotient() -> Expr:
    """The whole number at or below x / y: a quotient just below one may have been rounded to it."""
    quotient = x / y
    floor = apply("floor", quotient)
    left = apply("fma", -floor, y, x)
    above = apply("and", left.ne(0.0), (left < 0.0).ne(y < 0.0))
    floor = select(apply("and", above, left.eq(left)), floor - 1.0, floor)
    # Of infinities only the sign is left: below zero the next whole number is -1.
    below = apply("and", apply("is_inf", y), x * y < 0.0)
    floor = select(apply("and", below, quotient.eq(0.0)), -1.0, floor)
    return select(apply("and", apply("is_inf", x), y.ne(0.0)), math.nan, floor)


def _of_whole(call: OperatorCall, expression: Expr, *operands: Operand) -> Value:
    """An expression of integers in 32 bits: narrower ones would wrap where PyTorch's promotion does not."""
    common = call.dtype if call.dtype.bits == 32 else i32
    return call.map(expression, *operands, common=common)


@aten("aten.fmod")
def fmod(call: OperatorCall, a: Operand, b: Operand) -> Value:
    """Remainder of division towards zero: it has the sign of a."""
    rest = apply("rem", x, y)
    return call.map(rest, a, b) if call.dtype.is_float else _of_whole(call, rest, a, b)


@aten("aten.remainder")
def remainder(call: OperatorCall, a: Operand, b: Operand) -> Value:
    """Remainder of division downwards: it has the sign of b."""
    rest = apply("rem", x, y)
    if not call.dtype.is_float:
        power = _power_of_two(b)
        if power is not None:
            return _of_whole(call, apply("and", x, y), a, (1 << power) - 1)
        opposite = apply("and", rest.ne(0), (rest < 0).ne(y < 0))
        return _of_whole(call, select(opposite, rest + y, rest), a, b)
    opposite = apply("and", rest.ne(0.0), (rest < 0.0).ne(y < 0.0))
    return call.map(select(opposite, rest + y, rest), a, b)


@aten("aten.pow")
def power(call: OperatorCall, a: Operand, b: Operand) -> Value:
    """a to the power of b."""
    if not call.dtype.is_float:
        return _whole_power(call, a, b)
    if isinstance(b, (int, float)) and isinstance(a, Value):
        return call.map(simplified(apply("pow", x, Const(float(b)))), a)
    return call.map(apply("pow", x, y), a, b)


def _whole_power(call: OperatorCall, a: Operand, b: Operand) -> Value:
    """A power of integers by squaring, which wraps as their products do; negative powers are zero but of 1 and −1."""
    base, exponent = (
        build.expand(call.net, call.operand(v, i32), call.shape)
        if isinstance(v, Value)
        else build.full(call.net, v, call.shape, i32)
        for v in (a, b)
    )
    bits = max(1, int(b).bit_length()) if isinstance(b, (int, float)) and b >= 0 else 31
    result = build.full(call.net, 1, call.shape, i32)
    square = base
    for bit in range(bits):
        odd = apply("and", z, Const(1 << bit, i32)).ne(0)
        result = build.map_(call.net, select(odd, x * y, x), [result, square, exponent], i32)
        if bit + 1 < bits:
            square = build.map_(call.net, x * x, [square], i32)
    unit = select(apply("abs", y).eq(1), select(apply("and", z, 1).eq(0), 1, y), 0)
    if bits == 31:
        result = build.map_(call.net, select(z < 0, unit, x), [result, base, exponent], i32)
    return build.cast(call.net, result, call.dtype)


@aten("aten.maximum")
def maximum(call: OperatorCall, a: Value, b: Value) -> Value:
    """The larger of both; of bools, either."""
    return call.map(apply("or" if call.dtype == bool_ else "max", x, y), a, b)


@aten("aten.minimum")
def minimum(call: OperatorCall, a: Value, b: Value) -> Value:
    """The smaller of both; of bools, both."""
    return call.map(apply("and" if call.dtype == bool_ else "min", x, y), a, b)


def _but_for_nan(expression: Expr) -> Expr:
    return select(apply("is_nan", y), x, select(apply("is_nan", x), y, expression))


@aten("aten.fmax")
def fmax(call: OperatorCall, a: Value, b: Value) -> Value:
    """The larger of both, or the one that is a number."""
    # Equal arguments give the whole gradient to the first.
    return call.map(_but_for_nan(select(x >= y, x, y)), a, b) if call.dtype.is_float else maximum(call, a, b)


@aten("aten.fmin")
def fmin(call: OperatorCall, a: Value, b: Value) -> Value:
    """The smaller of both, or the one that is a number."""
    return call.map(_but_for_nan(select(x <= y, x, y)), a, b) if call.dtype.is_float else minimum(call, a, b)


def _compare(name: str, op: str) -> None:
    @aten(name)
    def compare(call: OperatorCall, a: Operand, b: Operand) -> Value:
        common = call.common_type()
        if common == bool_ and op not in ("eq", "ne"):
            common = i32
        return call.map(apply(op, x, y), a, b, common=common, dtype=bool_)


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _compare(f"aten.{_name}", _name)


@aten("aten.logical_and", "aten.bitwise_and", "aten.__and__")
def logical_and(call: OperatorCall, a: Operand, b: Operand) -> Value:
    """Logical and: neither operand is zero."""
    return call.map(apply("and", x, y), a, b)


@aten("aten.logical_or", "aten.bitwise_or", "aten.__or__")
def logical_or(call: OperatorCall, a: Operand, b: Operand) -> Value:
    """Either."""
    return call.map(apply("or", x, y), a, b)


@aten("aten.logical_xor", "aten.bitwise_xor", "aten.__xor__")
def logical_xor(call: OperatorCall, a: Operand, b: Operand) -> Value:
    """Logical exclusive or: one of the operands is zero."""
    return call.map(apply("xor", x, y), a, b)


@aten("aten.logical_not", "aten.bitwise_not")
def logical_not(call: OperatorCall, a: Value) -> Value:
    """Not."""
    return call.map(apply("not", x), a)


@aten("aten.bitwise_left_shift", "aten.__lshift__")
def left_shift(call: OperatorCall, a: Operand, b: Operand) -> Value:
    """a times two to the power of b; zero where b is no count of bits."""
    if call.dtype.is_float:
        return call.map(x * apply("pow", 2.0, y), a, b)
    return call.map(select(_is_count(call), apply("shl", x, y), 0), a, b)


@aten("aten.bitwise_right_shift", "aten.__rshift__")
def right_shift(call: OperatorCall, a: Operand, b: Operand) -> Value:
    """a shifted down, with its sign from above; where b is no count of bits, nothing but the sign."""
    if call.dtype.is_float:
        return call.map(x * apply("pow", 2.0, -y), a, b)
    beyond = 0 if call.dtype.kind == "uint" else select(x < 0, -1, 0)
    return call.map(select(_is_count(call), apply("shr", x, y), beyond), a, b)


def _is_count(call: OperatorCall) -> Expr:
    return apply("and", y >= 0, y < call.dtype.bits)


@aten("aten.atan2")
def atan2(call: OperatorCall, a: Operand, b: Operand) -> Value:
    """The angle of the point (b, a)."""
    return call.map(apply("atan2", x, y), a, b)


@aten("aten.hypot")
def hypot(call: OperatorCall, a: Operand, b: Operand) -> Value:
    """√(a² + b²), which does not overflow on the way."""
    return call.map(apply("hypot", x, y), a, b)


@aten("aten.copysign")
def copysign(call: OperatorCall, a: Operand, b: Operand) -> Value:
    """a with the sign of b, that of minus zero as well."""
    return call.map(apply("copysign", x, y), a, b)


@aten("aten.nextafter")
def next_after(call: OperatorCall, a: Operand, b: Operand) -> Value:
    """The float beside a, on the way to b.

    Source: Rump, Zimmermann, Boldo, Melquiond, Computing predecessor and successor in rounding to nearest: adding a
    little more than half of the last place rounds to the neighbour.
    """
    digits, largest = {"f32": (24, _LARGEST_F32), "f16": (11, 65504.0), "bf16": (8, _LARGEST_BF16)}[call.dtype.name]
    relative = 2.0**-digits * (1.0 + 2.0 ** (2 - digits))
    if call.dtype == f16:
        # Computed in f32 and rounded once: more than half and less than three halves of the smallest step.
        step = apply("max", apply("abs", x) * relative, 0.75 * 2.0**-24)
        beside = select(y > x, x + step, x - step)
    else:
        # Far from where numbers end: a step from the least ones would count as zero, and what is below them does.
        scale = select(apply("abs", x) < 2.0**-60, 2.0**64, 1.0)
        back = select(apply("abs", x) < 2.0**-60, 2.0**-64, 1.0)
        step = apply("abs", x) * scale * relative
        beside = select(y > x, x * scale + step, x * scale - step) * back
        beside = select(x.eq(0.0), apply("copysign", 0.0, y), beside)
    beside = select(apply("is_inf", x), apply("copysign", largest, x), beside)
    return call.map(select(x.eq(y), y, select(x.ne(x), x, select(y.ne(y), y, beside))), a, b, common=f32)


@aten("aten.gcd")
def greatest_common_divisor(call: OperatorCall, a: Value, b: Value) -> Value:
    """The largest integer that divides both: Euclid's steps for as long as an element has something left."""
    net = call.net
    both = [build.expand(net, call.map(apply("abs", x), v), call.shape) for v in (a, b)]

    def unfinished(inner: BlockBuilder, _: Value, left: Value) -> Value:
        rest = build.map_(inner, select(x.ne(0), 1, 0), [left], i32)
        most = build.reduce(inner, rest, list(range(left.ndim)), "max") if left.ndim else rest
        return build.map_(inner, x > 0, [most], bool_)

    def step(inner: BlockBuilder, _: Value, first: Value, left: Value) -> list[Value]:
        done = y.eq(0)
        rest = apply("rem", x, select(done, 1, y))
        return [
            build.map_(inner, select(done, x, y), [first, left], call.dtype),
            build.map_(inner, select(done, 0, rest), [first, left], call.dtype),
        ]

    return build.while_(net, both, unfinished, step)[0]


@aten("aten.lcm")
def least_common_multiple(call: OperatorCall, a: Value, b: Value) -> Value:
    """The smallest integer that both divide."""
    divisor = greatest_common_divisor(call, a, b)
    share = apply("div", x, select(arg(2).eq(0), 1, arg(2)))
    return call.map(apply("abs", share * y), a, b, divisor)


@aten("aten.ldexp")
def ldexp(call: OperatorCall, a: Operand, b: Operand) -> Value:
    """a times two to the power of b."""
    return call.map(x * apply("pow", 2.0, y), a, b, common=f32)


def _log_of_sum(base: float) -> Expr:
    scale = math.log(base)
    distance = apply("abs", x - y) * scale
    apart = apply("max", x, y) + apply("log1p", apply("exp", -distance)) * (1 / scale)
    return select(x.eq(y), 0.5 * x + 0.5 * y + math.log(2.0) / scale, apart)


@aten("aten.logaddexp")
def logaddexp(call: OperatorCall, a: Value, b: Value) -> Value:
    """log(exp a + exp b)."""
    return call.map(_log_of_sum(math.e), a, b)


@aten("aten.logaddexp2")
def logaddexp2(call: OperatorCall, a: Value, b: Value) -> Value:
    """log2(2^a + 2^b)."""
    return call.map(_log_of_sum(2.0), a, b)


@aten("aten.xlogy")
def xlogy(call: OperatorCall, a: Operand, b: Operand) -> Value:
    """a · log b, zero where a is."""
    return call.map(apply("xlogy", x, y), a, b)


@aten("aten.lerp")
def lerp(call: OperatorCall, a: Value, b: Value, weight: Operand) -> Value:
    """a + weight · (b − a)."""
    # From the nearer end, as PyTorch does it: the other one comes out exactly.
    near = apply("abs", z) < 0.5
    return call.map(apply("fma", select(near, z, z - 1.0), y - x, select(near, x, y)), a, b, weight)


@aten("aten.addcmul")
def addcmul(call: OperatorCall, a: Value, b: Value, c: Value, *, value: float = 1) -> Value:
    """a + value · b · c."""
    if not call.dtype.is_float:
        return call.map(x + (y * z if value == 1 else arg(3) * (y * z)), a, b, c, *([] if value == 1 else [value]))
    return call.map(apply("fma", y if value == 1 else float(value) * y, z, x), a, b, c)


@aten("aten.addcdiv")
def addcdiv(call: OperatorCall, a: Value, b: Value, c: Value, *, value: float = 1) -> Value:
    """a + value · b / c."""
    return call.map(x + float(value) * (y / z), a, b, c)


@aten("aten.heaviside")
def heaviside(call: OperatorCall, a: Value, b: Value) -> Value:
    """0 below zero, 1 above, b at zero."""
    if call.dtype == bool_:
        return call.map(apply("or", x, y), a, b)
    zero, one = (Const(0.0), Const(1.0)) if call.dtype.is_float else (Const(0, i32), Const(1, i32))
    return call.map(select(x.eq(zero), y, select(x > zero, one, zero)), a, b)


@aten("aten.isclose")
def is_close(
    call: OperatorCall, a: Value, b: Value, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Value:
    """True where |a − b| ≤ atol + rtol · |b|."""
    near = apply("and", apply("abs", x - y) <= rtol * apply("abs", y) + atol, apply("is_finite", y))
    close = apply("or", x.eq(y), near)
    if equal_nan:
        close = apply("or", close, apply("and", x.ne(x), y.ne(y)))
    return call.map(close, a, b, common=f32, dtype=bool_)


@aten("aten.where")
def where(call: OperatorCall, condition: Value, a: Operand, b: Operand) -> Value:
    """a where the condition holds, else b."""
    return call.map(select(x, y, z), condition, a, b, masks=[0])


@aten("aten.masked_fill")
def masked_fill(call: OperatorCall, value: Value, mask: Value, fill: Operand) -> Value:
    """The value, replaced where the mask holds."""
    return call.map(select(x, y, z), mask, fill, value, masks=[0])


@aten("aten.clamp", "aten.clip")
def clamp(call: OperatorCall, value: Value, low: Operand | None = None, high: Operand | None = None) -> Value:
    """The value limited to [low, high]."""
    return _limited(call, value, low, high)


def _limited(call: OperatorCall, value: Value, low: Operand | None, high: Operand | None) -> Value:
    """The value, at least ``low``, and that at most ``high``: where the bounds cross, ``high``."""
    bounds: list[Operand] = [bound for bound in (low, high) if bound is not None]
    if call.dtype == bool_:
        above = x if low is None else apply("or", x, y)
        return call.map(above if high is None else apply("and", above, arg(len(bounds))), value, *bounds)
    # Comparisons, unlike max and min, pass the whole gradient at a bound and none of NaN, as PyTorch does.
    expression: Expr = x
    if low is not None:
        expression = select(x >= y, x, _unless_nan(call, x < y, y))
    if high is not None:
        limit = arg(len(bounds))
        inside = expression if low is None else select(limit < y, limit, expression)
        expression = select(x <= limit, inside, _unless_nan(call, x > limit, limit))
    return call.map(expression, value, *bounds)


def _unless_nan(call: OperatorCall, comparison: Expr, bound: Expr) -> Expr:
    """A bound that a value is beyond; NaN, through which no gradient passes, where they cannot be compared."""
    return select(comparison, bound, math.nan) if call.dtype.is_float else bound


@aten("aten.clamp_min")
def clamp_min(call: OperatorCall, value: Value, low: Operand) -> Value:
    """The value, at least ``low``."""
    return _limited(call, value, low, None)


@aten("aten.clamp_max")
def clamp_max(call: OperatorCall, value: Value, high: Operand) -> Value:
    """The value, at most ``high``."""
    return _limited(call, value, None, high)


@aten("aten.hardtanh")
def hardtanh(call: OperatorCall, value: Value, low: float = -1.0, high: float = 1.0) -> Value:
    """The value limited to [low, high]; at a bound no gradient passes, as it does where values are clamped."""
    return call.map(select(x <= y, y, select(x < z, x, _unless_nan(call, x >= z, z))), value, low, high)


@aten("aten._to_copy", "aten.to")
def to_copy(call: OperatorCall, value: Value, *args: Any, **kwargs: Any) -> Value:
    """The value in the type of the result; devices and layouts mean nothing here."""
    return build.cast(call.net, value, element_type(call.result.dtype))
