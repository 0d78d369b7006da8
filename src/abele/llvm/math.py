"""Elementary functions of f32 as polynomials: straight-line IR that vectorises, for scalars and for vectors of lanes.

A call of the C library for every element costs ten times as much. Errors stay within 2 units in the last place (3 for
tanh, sigmoid, erf, expm1; one more where the CPU fuses no multiply-add) wherever the result is normal; remainders are
exact. Infinities, NaNs and signs of zero come out as IEEE 754 has them.

Method: range reduction, then polynomials that are our own minimax fits (weighted least squares, iterated), in f32; pow
is computed in f64. sin, cos and remainder branch where a lane needs another method: an angle of 2^13, or of 2^30, or
more, a quotient of 2^22 or more.
"""

from __future__ import annotations

import math
from typing import TypeAlias

from abele.llvm import ir as ll
from abele.llvm.emit import (
    F32,
    F64,
    I32,
    I64,
    Value,
    constant,
    corrected,
    declared,
    intrinsic,
    like,
    multiply_add,
    polynomial,
)
from abele.llvm.host import host_cpu

Builder: TypeAlias = ll.IRBuilder
Quarters: TypeAlias = tuple[Value, Value]
"""An angle within ±π/4, and the quarters of a turn that were taken off."""

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440054690583e-4
"""ln 2 in two parts; products of the first with exponents are exact."""
_EXP = (1.0, 1.0, 0.4999999305, 0.1666651479, 0.04166845681, 0.008369418949, 0.001381314334)
_EXP_LIMITS = (-104.0, 89.0)
"""Beyond these the result is 0 or infinity."""
_CURRENT_ROUNDING = 4
"""Of x86 instructions: round as the control register says."""
_LOG: tuple[float, ...] = (
    0.333333126,
    -0.250000096,
    0.200021187,
    -0.1666799575,
    0.1421955156,
    -0.124055903,
    0.1188816904,
)
_LOG += (-0.1167564602, 0.06746618965)
_TANH = (-0.3333327606, 0.1333127441, -0.05372512484, 0.02058982146, -0.005648311501)
_TANH_SMALL = 0.625
_TANH_LIMIT = 10.0
"""tanh rounds to 1 from 9.02 on."""
_ERF = (-0.3761263861, 0.1128378421, -0.026865517, 0.005221251258, -0.0008487043057, 0.0001128620401, -9.72213931e-06)
_TWO_OVER_ROOT_PI = 1.1283791670955126
_ERFC = (0.0002930278378, 1.12727947, 0.6378398559, 0.1033621485, -0.02195584121, 0.002976001635, -0.0001891587106)
_ERFC_LIMIT = 3.95
"""erf rounds to 1 from here on."""
_SIN = (-1 / 6, 0.00833332918, -0.000198392729, 2.71774595e-06)
_COS = (-0.5, 0.0416666666, -0.00138888833, 2.47994168e-05, -2.72022032e-07)
_HALF_PI_F32 = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
"""π/2 in three parts of f32, for multiply-adds that are rounded once."""
_NEAR_LIMIT = 2.0**13
"""Angles below it have their remainder by these. The first difference is exact. The third part takes off 2^-36 at most;
no remainder of an f32 is below 2^-33."""
_HALF_PI = (math.pi / 2, 6.123233995736766e-17)
"""The same in two parts of f64."""
_HALF_PI_SHORT = (3294198 * 2.0**-21, 5522477 * 2.0**-44, 5.390302858158119e-15)
"""The same where a multiply-add is rounded twice, in three parts of which two have 22 and 23 bits: products with whole
numbers below 2^30 are exact in f64."""
_SIN_LIMIT = 2.0**30
_TWO_OVER_PI_BITS = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561B7246E3A424DD2E006492EEA09D1921C
"""2/π times 2^384. Source: its definition, with digits of π by Machin's formula."""
_PIECE, _PIECES = 29, 7
"""Bits of a part of 2/π whose product with an f32 is exact in f64, and parts up to 2^-203: the largest f32 is below
2^128, and no f32 is nearer to a multiple of π/2 than 2^-33."""
TWO_OVER_PI = tuple(
    (_TWO_OVER_PI_BITS >> (384 - _PIECE * (n + 1)) & ((1 << _PIECE) - 1)) * 2.0 ** (-_PIECE * (n + 1))
    for n in range(_PIECES)
)
_EXPM1_LIMITS = (-30.0, 88.8)
"""Beyond these the result is -1 or infinity."""
_QUOTIENT_LIMIT = 2.0**22
"""Quotients below it have their whole part in f32, and their remainder in one fused step."""
_STEP_BITS, _STEPS = 28, 10
"""Bits of a quotient that a step in f64 takes off exactly, and steps for the largest quotient, 2^254."""
_LOG_SERIES = tuple(2.0 / (2 * k + 1) for k in range(9))
_EXP_SERIES = tuple(1.0 / math.factorial(k) for k in range(11))


def exp(b: Builder, x: Value) -> Value:
    """e to the power x."""
    # Bounded first: the polynomial would overflow to NaN beyond. NaN itself fails both comparisons and goes on to the
    # end.
    low, high = (constant(x.type, limit) for limit in _EXP_LIMITS)
    bounded = b.select(b.fcmp_ordered("<", x, low), low, b.select(b.fcmp_ordered(">", x, high), high, x))
    return _times_power_of_two(b, *_exp_parts(b, bounded))


def _normal_exp(b: Builder, x: Value) -> Value:
    """e to the power x, which is NaN or within ±87: no bounds, and one factor, as the result is a normal number."""
    value, power = _exp_parts(b, x)
    if _scales_in_one(x.type):
        return _times_power_of_two(b, value, power)
    return b.fmul(value, _power_of_two(b, _whole_number(b, power)))


def _exp_parts(b: Builder, x: Value) -> tuple[Value, Value]:
    """``(a, n)`` with e to the power x = a · 2^n, where n is whole and a near 1."""
    # e^x = 2^power · e^rest with |rest| ≤ ln 2 / 2. ln 2 is subtracted in two parts, the first of so few bits that its
    # product is exact, so that `rest` keeps its last bits although most of x cancels.
    power = intrinsic(b, "llvm.rint", b.fmul(x, constant(x.type, _LOG2_E)))
    rest = multiply_add(b, power, constant(x.type, -_LN2_HIGH), x)
    rest = multiply_add(b, power, constant(x.type, -_LN2_LOW), rest)
    return polynomial(b, rest, _EXP), power


def expm1(b: Builder, x: Value) -> Value:
    """e to the power x, less one."""
    low, high = (constant(x.type, limit) for limit in _EXPM1_LIMITS)
    bounded = b.select(b.fcmp_ordered("<", x, low), low, b.select(b.fcmp_ordered(">", x, high), high, x))
    power = intrinsic(b, "llvm.rint", b.fmul(bounded, constant(x.type, _LOG2_E)))
    rest = multiply_add(b, power, constant(x.type, -_LN2_HIGH), bounded)
    rest = multiply_add(b, power, constant(x.type, -_LN2_LOW), rest)
    # 2^power · (e^rest - 1) + 2^power - 1, by half of it: 2^128 is no f32.
    part = b.fmul(rest, polynomial(b, rest, _EXP[1:]))
    half = _times_power_of_two(b, constant(x.type, 0.5), power)
    value = multiply_add(b, half, part, b.fsub(half, constant(x.type, 0.5)))
    return intrinsic(b, "llvm.copysign", b.fadd(value, value), x)


def _times_power_of_two(b: Builder, value: Value, power: Value) -> Value:
    """``value`` times 2 to ``power``, a whole f32 between -151 and 129; rounded where the result is subnormal."""
    if _scales_in_one(value.type):
        bits = 32 * value.type.count
        mask = ll.IntType(max(8, value.type.count))
        arguments = [value, power, constant(value.type, 0.0), ll.Constant(mask, -1)]
        if bits == 512:
            arguments.append(ll.Constant(I32, _CURRENT_ROUNDING))
        kinds = [a.type for a in arguments]
        return b.call(declared(b, f"llvm.x86.avx512.mask.scalef.ps.{bits}", value.type, kinds), arguments)
    number = _whole_number(b, power)
    half = b.ashr(number, constant(number.type, 1))  # 2^128 and 2^-149 need two factors
    return b.fmul(b.fmul(value, _power_of_two(b, half)), _power_of_two(b, b.sub(number, half)))


def _whole_number(b: Builder, power: Value) -> Value:
    """``power`` as an integer; of NaN any integer: what is scaled by it is NaN then, and stays so."""
    return b.freeze(b.fptosi(power, like(power, I32)))


def _scales_in_one(type_: ll.Type) -> bool:
    """True if the CPU has one instruction that adds to the exponents of such a vector."""
    if not isinstance(type_, ll.VectorType) or not host_cpu().is_x86:
        return False
    needed = {16: "avx512f", 8: "avx512vl", 4: "avx512vl"}.get(type_.count)
    return needed is not None and {needed, "avx512f"} <= host_cpu().features


def log(b: Builder, x: Value) -> Value:
    """Natural logarithm."""
    # Subnormal numbers have no exponent to read: scaled up by 2^23, which is taken off the exponent below.
    tiny = b.fcmp_ordered("<", x, constant(x.type, 2.0**-126))
    normal = b.select(tiny, b.fmul(x, constant(x.type, 2.0**23)), x)
    bits = b.bitcast(normal, like(x, I32))
    kind = bits.type
    shifted = b.sub(bits, constant(kind, 0x3F3504F3))  # the bits of sqrt(1/2): the mantissa lands around 1
    exponent = b.ashr(shifted, constant(kind, 23))
    mantissa = b.bitcast(b.sub(bits, b.shl(exponent, constant(kind, 23))), x.type)
    exponent = b.sub(exponent, b.select(tiny, constant(kind, 23), constant(kind, 0)))
    power = b.sitofp(exponent, x.type)
    f = b.fsub(mantissa, constant(x.type, 1.0))
    square = b.fmul(f, f)
    # The largest terms come last, so that few of the roundings are of the result's size.
    tail = b.fmul(b.fmul(square, f), polynomial(b, f, _LOG))
    tail = multiply_add(b, power, constant(x.type, _LN2_LOW), tail)
    tail = multiply_add(b, square, constant(x.type, -0.5), tail)
    result = multiply_add(b, power, constant(x.type, _LN2_HIGH), b.fadd(f, tail))
    return _log_edges(b, x, result)


def _log_edges(b: Builder, x: Value, result: Value) -> Value:
    zero, infinity = constant(x.type, 0.0), constant(x.type, math.inf)
    result = b.select(b.fcmp_ordered("==", x, zero), constant(x.type, -math.inf), result)
    result = b.select(b.fcmp_unordered("<", x, zero), constant(x.type, math.nan), result)
    return b.select(b.fcmp_ordered("==", x, infinity), infinity, result)


def tanh(b: Builder, x: Value) -> Value:
    """Hyperbolic tangent."""
    size = intrinsic(b, "llvm.fabs", x)
    square = b.fmul(x, x)
    # Near 0 the formula by exp subtracts nearly equal numbers: an odd polynomial instead.
    small = multiply_add(b, b.fmul(square, x), polynomial(b, square, _TANH), x)
    limit = constant(x.type, _TANH_LIMIT)
    bounded = b.select(b.fcmp_ordered(">", size, limit), limit, size)
    growth = b.fadd(_normal_exp(b, b.fadd(bounded, bounded)), constant(x.type, 1.0))
    large = b.fsub(constant(x.type, 1.0), b.fdiv(constant(x.type, 2.0), growth))
    value = b.select(b.fcmp_ordered("<", size, constant(x.type, _TANH_SMALL)), small, large)
    return intrinsic(b, "llvm.copysign", value, x)


def sigmoid(b: Builder, x: Value) -> Value:
    """1 / (1 + e^-x)."""
    one = constant(x.type, 1.0)
    return b.fdiv(one, b.fadd(one, exp(b, b.fneg(x))))


def erf(b: Builder, x: Value) -> Value:
    """The error function."""
    size = intrinsic(b, "llvm.fabs", x)
    square = b.fmul(x, x)
    # An odd polynomial below 1; above, the polynomial is -ln(1 - erf), smooth enough for f32 up to the limit, at which
    # it is held.
    small = b.fmul(b.fmul(x, square), polynomial(b, square, _ERF))
    small = multiply_add(b, x, constant(x.type, _TWO_OVER_ROOT_PI), small)
    limit = constant(x.type, _ERFC_LIMIT)
    bounded = b.select(b.fcmp_ordered(">", size, limit), limit, size)
    large = b.fsub(constant(x.type, 1.0), _normal_exp(b, b.fneg(polynomial(b, bounded, _ERFC))))
    value = b.select(b.fcmp_ordered("<", size, constant(x.type, 1.0)), small, large)
    return intrinsic(b, "llvm.copysign", value, x)


def sin(b: Builder, x: Value) -> Value:
    """Sine of x radians."""
    return _circular(b, x, 0)


def cos(b: Builder, x: Value) -> Value:
    """Cosine of x radians."""
    return _circular(b, x, 1)


def tan(b: Builder, x: Value) -> Value:
    """Tangent of x radians."""
    sine, cosine, quadrant = _within_an_eighth(b, x)
    odd = _is_odd(b, quadrant)
    # A quarter of a turn further, it is -1 over the tangent.
    value = b.fdiv(b.select(odd, cosine, sine), b.select(odd, sine, cosine))
    kind = quadrant.type
    sign = b.xor(b.shl(quadrant, constant(kind, 31)), b.and_(b.bitcast(x, kind), constant(kind, 1 << 31)))
    return b.bitcast(b.xor(b.bitcast(value, kind), sign), x.type)


def _circular(b: Builder, x: Value, quarter: int) -> Value:
    """sin(x + quarter·π/2)."""
    sine, cosine, quadrant = _within_an_eighth(b, x)
    kind = quadrant.type
    quadrant = b.add(quadrant, constant(kind, quarter)) if quarter else quadrant
    # Quadrants 1 and 3 take the other polynomial, 2 and 3 the other sign: bit 1 moved to the sign bit.
    sign = b.shl(b.and_(quadrant, constant(kind, 2)), constant(kind, 30))
    if not quarter:
        sign = b.xor(sign, b.and_(b.bitcast(x, kind), constant(kind, 1 << 31)))
    return b.bitcast(b.xor(b.bitcast(b.select(_is_odd(b, quadrant), cosine, sine), kind), sign), x.type)


def _is_odd(b: Builder, quadrant: Value) -> Value:
    kind = quadrant.type
    return b.icmp_signed("!=", b.and_(quadrant, constant(kind, 1)), constant(kind, 0))


def _within_an_eighth(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """Sine and cosine of the remainder of |x| after whole quarters of a turn, within ±π/4, and their number."""
    size = intrinsic(b, "llvm.fabs", x)
    r, quadrant = _near(b, size) if host_cpu().fuses else _reduced(b, size)
    square = b.fmul(r, r)
    sine = multiply_add(b, b.fmul(square, r), polynomial(b, square, _SIN), r)
    cosine = multiply_add(b, square, polynomial(b, square, _COS), constant(x.type, 1.0))
    return sine, cosine, quadrant


def _near(b: Builder, x: Value) -> Quarters:
    """Angle x ≥ 0 without whole quarters of a turn, and their number: in f32 while that is exact."""
    usual = b.fcmp_ordered("<", x, constant(x.type, _NEAR_LIMIT))
    near = _without_quarters(b, b.select(usual, x, constant(x.type, 0.0)), _HALF_PI_F32)
    r, quadrant = corrected(b, b.not_(usual), near, lambda: _reduced(b, x))
    return r, quadrant


def _reduced(b: Builder, x: Value) -> Quarters:
    """The same in f64."""
    usual = b.fcmp_ordered("<", x, constant(x.type, _SIN_LIMIT))
    wide = b.fpext(b.select(usual, x, constant(x.type, 0.0)), like(x, F64))
    angle, number = _without_quarters(b, wide, _HALF_PI if host_cpu().fuses else _HALF_PI_SHORT)
    r, quadrant = corrected(b, b.not_(usual), (b.fptrunc(angle, x.type), number), lambda: _far(b, x))
    return r, quadrant


def _without_quarters(b: Builder, x: Value, parts: tuple[float, ...]) -> Quarters:
    """The same in the type of x, with π/2 as the sum of ``parts``."""
    turns = intrinsic(b, "llvm.rint", b.fmul(x, constant(x.type, 2 / math.pi)))
    angle = x
    for part in parts:
        angle = multiply_add(b, turns, constant(x.type, -part), angle)
    return angle, b.fptosi(turns, like(x, I32))


def _far(b: Builder, x: Value) -> Quarters:
    """Angle x ≥ 0 without whole quarters of a turn, and their number modulo 4; NaN of values that are not finite.

    By Payne and Hanek: parts of 2/π give exact products, of which whole turns are taken off one by one, exactly too.
    """
    finite = b.fcmp_ordered("<", x, constant(x.type, math.inf))
    wide = b.fpext(b.select(finite, x, constant(x.type, 0.0)), like(x, F64))
    high = low = constant(wide.type, 0.0)
    for piece in TWO_OVER_PI:
        part = b.fmul(wide, constant(wide.type, piece))
        whole = intrinsic(b, "llvm.rint", b.fmul(part, constant(wide.type, 0.25)))
        part = multiply_add(b, whole, constant(wide.type, -4.0), part)
        # The sum of both and what its rounding left, by Knuth.
        total = b.fadd(high, part)
        taken = b.fsub(total, high)
        low = b.fadd(low, b.fadd(b.fsub(high, b.fsub(total, taken)), b.fsub(part, taken)))
        high = total
    quarters = intrinsic(b, "llvm.rint", high)
    rest = b.fadd(b.fsub(high, quarters), low)
    angle = b.fptrunc(b.fmul(rest, constant(wide.type, math.pi / 2)), x.type)
    return b.fadd(angle, b.fsub(x, x)), b.fptosi(quarters, like(x, I32))


def remainder(b: Builder, x: Value, y: Value) -> Value:
    """Remainder of x / y, truncated towards zero, exactly; it has the sign of x."""
    size, by = intrinsic(b, "llvm.fabs", x), intrinsic(b, "llvm.fabs", y)
    quotient = intrinsic(b, "llvm.trunc", b.fdiv(size, by))
    usual = b.and_(
        b.fcmp_ordered("<", quotient, constant(x.type, _QUOTIENT_LIMIT)),
        b.fcmp_ordered("<", by, constant(x.type, math.inf)),
    )
    left = intrinsic(b, "llvm.fma", b.fneg(quotient), by, size)
    # A quotient just below a whole number may have been rounded to it.
    left = b.select(b.fcmp_ordered("<", left, constant(x.type, 0.0)), b.fadd(left, by), left)
    (left,) = corrected(b, b.not_(usual), [left], lambda: [_long_remainder(b, size, by)])
    return intrinsic(b, "llvm.copysign", left, x)


def _long_remainder(b: Builder, x: Value, y: Value) -> Value:
    """The remainder of x ≥ 0 and y ≥ 0 by long division in f64; NaN where there is none."""
    infinity = constant(x.type, math.inf)
    finite = b.fcmp_ordered("<", x, infinity)
    divides = b.and_(b.fcmp_ordered(">", y, constant(y.type, 0.0)), b.fcmp_ordered("<", y, infinity))
    safe = b.select(b.and_(finite, divides), y, constant(y.type, 1.0))
    left = b.fpext(b.select(finite, x, constant(x.type, 0.0)), like(x, F64))
    wide = b.fpext(safe, left.type)
    inverse = b.fdiv(constant(wide.type, 1.0), wide)
    for step in reversed(range(_STEPS)):
        scale = 2.0 ** (_STEP_BITS * step)
        # What is left is a multiple of the last place of x or of y, and less than either's first: 24 bits hold it.
        part = intrinsic(b, "llvm.rint", b.fmul(left, b.fmul(inverse, constant(wide.type, 1 / scale))))
        left = multiply_add(b, b.fneg(part), b.fmul(wide, constant(wide.type, scale)), left)
    left = b.select(b.fcmp_ordered("<", left, constant(wide.type, 0.0)), b.fadd(left, wide), left)
    result = b.select(b.and_(finite, b.fcmp_ordered("==", y, infinity)), x, constant(x.type, math.nan))
    return b.select(b.and_(finite, divides), b.fptrunc(left, x.type), result)


def pow(b: Builder, x: Value, y: Value) -> Value:
    """x to the power y; of a negative x for whole y only."""
    # The result's relative error is the absolute error of y·ln x, which reaches 88: f32 would lose seven bits of it.
    power = b.fmul(_log_f64(b, intrinsic(b, "llvm.fabs", x)), b.fpext(y, like(x, F64)))
    # 0 · infinity is NaN, and 1 to any power is 1.
    unit = b.fcmp_ordered("==", intrinsic(b, "llvm.fabs", x), constant(x.type, 1.0))
    size = b.select(unit, constant(x.type, 1.0), _exp_f64(b, power, x.type))
    whole = b.fcmp_ordered("==", intrinsic(b, "llvm.rint", y), y)
    halved = b.fmul(y, constant(x.type, 0.5))
    # Halving is exact: y is odd if it is whole and its half is not.
    odd = b.and_(whole, b.fcmp_unordered("!=", intrinsic(b, "llvm.rint", halved), halved))
    signed = b.select(odd, intrinsic(b, "llvm.copysign", size, x), size)
    zero, one = constant(x.type, 0.0), constant(x.type, 1.0)
    # IEEE 754 has -infinity to a fraction as 0 or infinity, not NaN.
    finite = b.fcmp_ordered("ord", b.fsub(x, x), x)
    undefined = b.and_(b.and_(b.fcmp_ordered("<", x, zero), finite), b.not_(whole))
    undefined = b.or_(undefined, b.fcmp_unordered("uno", y, y))
    result = b.select(undefined, constant(x.type, math.nan), signed)
    trivial = b.or_(b.fcmp_ordered("==", y, zero), b.fcmp_ordered("==", x, one))
    return b.select(trivial, one, result)


def _log_f64(b: Builder, x: Value) -> Value:
    """Natural logarithm in f64 of a non-negative f32, to about 1e-11."""
    wide = b.fpext(x, like(x, F64))
    result = log_parts(b, wide)
    result = b.select(b.fcmp_ordered("==", wide, constant(wide.type, 0.0)), constant(wide.type, -math.inf), result)
    return b.select(b.fcmp_unordered("uno", b.fsub(wide, wide), wide), wide, result)


def log_parts(b: Builder, wide: Value) -> Value:
    """Natural logarithm of a positive finite normal f64, to about 1e-11."""
    bits = b.bitcast(wide, like(wide, I64))
    kind = bits.type
    # The bits of sqrt(1/2), as in `log`; f32's subnormal numbers are normal in f64.
    exponent = b.ashr(b.sub(bits, constant(kind, 0x3FE6A09E667F3BCD)), constant(kind, 52))
    mantissa = b.bitcast(b.sub(bits, b.shl(exponent, constant(kind, 52))), wide.type)
    one = constant(wide.type, 1.0)
    # ln m = 2 artanh s = 2 (s + s³/3 + …), with |s| < 0.172: nine terms.
    s = b.fdiv(b.fsub(mantissa, one), b.fadd(mantissa, one))
    part = b.fmul(s, polynomial(b, b.fmul(s, s), _LOG_SERIES))
    power = b.sitofp(b.trunc(exponent, like(wide, I32)), wide.type)
    return multiply_add(b, power, constant(wide.type, math.log(2)), part)


def _exp_f64(b: Builder, x: Value, result: ll.Type) -> Value:
    """e to the power x, an f64, as ``result``, f32."""
    # Beyond these f32 has 0 and infinity, and in between the exponent of an f64 needs no care.
    low, high = constant(x.type, -120.0), constant(x.type, 100.0)
    bounded = b.select(b.fcmp_ordered("<", x, low), low, b.select(b.fcmp_ordered(">", x, high), high, x))
    is_nan = b.fcmp_unordered("uno", x, x)
    bounded = b.select(is_nan, constant(x.type, 0.0), bounded)
    power = intrinsic(b, "llvm.rint", b.fmul(bounded, constant(x.type, _LOG2_E)))
    rest = multiply_add(b, power, constant(x.type, -math.log(2)), bounded)
    number = b.sext(b.fptosi(power, like(x, I32)), like(x, I64))
    scale = b.shl(b.add(number, constant(number.type, 1023)), constant(number.type, 52))
    value = b.fmul(polynomial(b, rest, _EXP_SERIES), b.bitcast(scale, x.type))
    return b.select(is_nan, constant(result, math.nan), b.fptrunc(value, result))


def _power_of_two(b: Builder, exponent: Value) -> Value:
    """2 to a power between -126 and 127, as f32."""
    kind = exponent.type
    return b.bitcast(b.shl(b.add(exponent, constant(kind, 127)), constant(kind, 23)), like(exponent, F32))
