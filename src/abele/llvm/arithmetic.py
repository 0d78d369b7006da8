"""Arithmetic, comparisons and bit operations of host kernels as LLVM code, on scalars and on vectors of lanes.

Nothing traps and nothing is undefined: integers divide to 0 by zero, shift counts are modulo the width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from abele.llvm import ir as ll
from abele.llvm.emit import Value, constant, intrinsic

Emit = Callable[..., Any]


def add(b: ll.IRBuilder, x: Value, y: Value) -> Value:
    """x + y of floats."""
    return b.fadd(x, y)


def subtract(b: ll.IRBuilder, x: Value, y: Value) -> Value:
    """x - y of floats."""
    return b.fsub(x, y)


def multiply(b: ll.IRBuilder, x: Value, y: Value) -> Value:
    """x · y of floats."""
    return b.fmul(x, y)


def divide(b: ll.IRBuilder, x: Value, y: Value) -> Value:
    """x / y of floats."""
    return b.fdiv(x, y)


def negate(b: ll.IRBuilder, x: Value) -> Value:
    """-x of floats."""
    return b.fneg(x)


def square(b: ll.IRBuilder, x: Value) -> Value:
    """x² of floats."""
    return b.fmul(x, x)


def inverse(b: ll.IRBuilder, x: Value) -> Value:
    """1 / x of floats."""
    return b.fdiv(constant(x.type, 1.0), x)


def reciprocal_root(b: ll.IRBuilder, x: Value) -> Value:
    """1 / √x of floats."""
    return b.fdiv(constant(x.type, 1.0), intrinsic(b, "llvm.sqrt", x))


def copy_sign(b: ll.IRBuilder, x: Value, y: Value) -> Value:
    """x with the sign of y, that of zero and NaN as well."""
    return intrinsic(b, "llvm.copysign", x, y)


def relu(b: ll.IRBuilder, x: Value) -> Value:
    """x where it is above 0, else 0; NaN stays."""
    zero = constant(x.type, 0.0)
    return b.select(b.fcmp_ordered("<=", x, zero), zero, x)


def larger(b: ll.IRBuilder, x: Value, y: Value) -> Value:
    """The larger of floats; NaN if either is NaN."""
    return _extreme(b, ">", x, y)


def smaller(b: ll.IRBuilder, x: Value, y: Value) -> Value:
    """The smaller of floats; NaN if either is NaN."""
    return _extreme(b, "<", x, y)


def _extreme(b: ll.IRBuilder, sign: str, x: Value, y: Value) -> Value:
    # The first of equal ones. A comparison with NaN is false, so that the first stays if it is NaN.
    best = b.select(b.fcmp_ordered(sign, y, x), y, x)
    return b.select(b.fcmp_unordered("uno", y, y), y, best)


def unary(name: str) -> Emit:
    """The LLVM intrinsic ``name`` of one float."""
    return lambda b, x: intrinsic(b, f"llvm.{name}", x)


def compare(sign: str) -> Emit:
    """A comparison of floats, false where either is NaN; ``!=`` is true there."""

    def emit(b: ll.IRBuilder, x: Value, y: Value) -> Value:
        ordered = b.fcmp_unordered if sign == "!=" else b.fcmp_ordered
        return ordered(sign, x, y)

    return emit


def compare_integers(sign: str) -> Emit:
    """A comparison of integers or bools."""

    def emit(b: ll.IRBuilder, x: Value, y: Value, *, signed: bool) -> Value:
        return (b.icmp_signed if signed else b.icmp_unsigned)(sign, x, y)

    return emit


def integers(method: str) -> Emit:
    """The instruction ``method`` of a builder, the same for signed and unsigned integers."""
    return lambda b, *args, signed: getattr(b, method)(*args)


def square_integer(b: ll.IRBuilder, x: Value, *, signed: bool) -> Value:
    """x² of integers, modulo 2^bits."""
    return b.mul(x, x)


def extreme_integer(name: str) -> Emit:
    """``max`` or ``min`` of integers."""
    return lambda b, x, y, signed: intrinsic(b, f"llvm.{'s' if signed else 'u'}{name}", x, y)


def divide_integers(b: ll.IRBuilder, x: Value, y: Value, *, signed: bool) -> Value:
    """Truncating division; 0 by zero, so that nothing traps, lanes which hold nothing included."""
    zero = constant(y.type, 0)
    by_zero = b.icmp_signed("==", y, zero)
    safe = b.select(by_zero, constant(y.type, 1), y)
    if not signed:
        return b.select(by_zero, zero, b.udiv(x, safe))
    minus = b.icmp_signed("==", y, constant(y.type, -1))
    quotient = b.select(minus, b.neg(x), b.sdiv(x, b.select(minus, constant(y.type, 1), safe)))
    return b.select(by_zero, zero, quotient)


def remainder_integers(b: ll.IRBuilder, x: Value, y: Value, *, signed: bool) -> Value:
    """Remainder of truncating division; 0 by zero."""
    zero = constant(y.type, 0)
    rest = b.sub(x, b.mul(divide_integers(b, x, y, signed=signed), y))
    return b.select(b.icmp_signed("==", y, zero), zero, rest)


def shift_left(b: ll.IRBuilder, x: Value, y: Value, *, signed: bool) -> Value:
    """``x`` shifted up."""
    return b.shl(x, _shift_count(b, y))


def shift_right(b: ll.IRBuilder, x: Value, y: Value, *, signed: bool) -> Value:
    """``x`` shifted down, with copies of the sign where it is signed."""
    return (b.ashr if signed else b.lshr)(x, _shift_count(b, y))


def _shift_count(b: ll.IRBuilder, count: Value) -> Value:
    """A shift's count, modulo the width."""
    scalar = count.type.element if isinstance(count.type, ll.VectorType) else count.type
    return b.and_(count, constant(count.type, scalar.width - 1))


def relu_integer(b: ll.IRBuilder, x: Value, *, signed: bool) -> Value:
    """The larger of ``x`` and 0."""
    return intrinsic(b, "llvm.smax", x, constant(x.type, 0)) if signed else x


def absolute_integer(b: ll.IRBuilder, x: Value, *, signed: bool) -> Value:
    """Absolute value; the lowest number has none and stays."""
    return intrinsic(b, "llvm.abs", x, ll.Constant(ll.IntType(1), 0)) if signed else x


def invert(b: ll.IRBuilder, x: Value, *, signed: bool) -> Value:
    """Every bit turned over; of a bool, its opposite."""
    scalar = x.type.element if isinstance(x.type, ll.VectorType) else x.type
    return b.xor(x, constant(x.type, 1 if scalar.width == 1 else -1))


def choose(b: ll.IRBuilder, condition: Value, x: Value, y: Value) -> Value:
    """``x`` where the condition holds, else ``y``; of floats."""
    return b.select(condition, x, y)


def choose_integer(b: ll.IRBuilder, condition: Value, x: Value, y: Value, *, signed: bool) -> Value:
    """As :func:`choose`, of integers and bools."""
    return b.select(condition, x, y)


def fused(b: ll.IRBuilder, x: Value, y: Value, z: Value) -> Value:
    """x·y + z of floats, rounded once, on every CPU."""
    return intrinsic(b, "llvm.fma", x, y, z)


def floor_divide_integers(b: ll.IRBuilder, x: Value, y: Value, *, signed: bool) -> Value:
    """Division rounded down; 0 by zero."""
    quotient = divide_integers(b, x, y, signed=signed)
    if not signed:
        return quotient
    zero = constant(y.type, 0)
    rest = b.sub(x, b.mul(quotient, y))
    below = b.and_(b.icmp_signed("!=", rest, zero), b.icmp_signed("<", b.xor(rest, y), zero))
    below = b.and_(below, b.icmp_signed("!=", y, zero))
    return b.sub(quotient, b.zext(below, y.type))
