"""Integer arithmetic as the language defines it, for every operand: nothing traps and nothing is undefined.

Sums, differences and products are modulo 2^bits. ``//`` and ``%`` round towards minus infinity, as in Python; by zero
both give 0. Shift counts are modulo the width; ``>>`` keeps the sign of signed integers.
"""

from __future__ import annotations

from abele.codelet.memory import value_type
from abele.llvm import ir as ll
from abele.llvm.emit import Value, constant, declared, intrinsic, suffix
from abele.numerics import ElementType


def integer_binary(b: ll.IRBuilder, op: str, x: Value, y: Value, type_: ElementType) -> Value:
    """``x op y`` of integers or bools of ``type_``."""
    signed = type_.kind == "int"
    match op:
        case "add":
            return b.add(x, y)
        case "sub":
            return b.sub(x, y)
        case "mul":
            return b.mul(x, y)
        case "and":
            return b.and_(x, y)
        case "or":
            return b.or_(x, y)
        case "xor":
            return b.xor(x, y)
        case "shl":
            return b.shl(x, b.and_(y, constant(y.type, type_.bits - 1)))
        case "shr":
            count = b.and_(y, constant(y.type, type_.bits - 1))
            return b.ashr(x, count) if signed else b.lshr(x, count)
        case "min" | "max":
            return intrinsic(b, f"llvm.{'s' if signed else 'u'}{op}", x, y)
    return _signed_division(b, op, x, y) if signed else _unsigned_division(b, op, x, y)


def saturated(b: ll.IRBuilder, x: Value, wanted: ElementType) -> Value:
    """A float as an integer: towards zero, limited to the range, 0 for NaN."""
    target = value_type(wanted)
    name = f"llvm.fpto{'s' if wanted.kind == 'int' else 'u'}i.sat.{suffix(target)}.{suffix(x.type)}"
    return b.call(declared(b, name, target, [x.type]), [x])


def _signed_division(b: ll.IRBuilder, op: str, x: Value, y: Value) -> Value:
    zero, one = constant(x.type, 0), constant(x.type, 1)
    divisor = y.constant if isinstance(y, ll.Constant) else None
    if divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0:
        shift = constant(x.type, divisor.bit_length() - 1)
        return b.ashr(x, shift) if op == "floordiv" else b.and_(x, constant(x.type, divisor - 1))
    guarded = divisor in (None, 0, -1)
    # the lowest number by -1 traps like a division by zero; as 1 both are harmless, and corrected below
    special = b.or_(b.icmp_signed("==", y, zero), b.icmp_signed("==", y, constant(x.type, -1))) if guarded else zero
    safe = b.select(special, one, y) if guarded else y
    quotient = b.sdiv(x, safe)
    rest = b.sub(x, b.mul(quotient, safe))
    inexact = b.and_(b.icmp_signed("!=", rest, zero), b.icmp_signed("<", b.xor(rest, safe), zero))
    if op == "mod":
        result = b.select(inexact, b.add(rest, safe), rest)
        return b.select(special, zero, result) if guarded else result
    result = b.select(inexact, b.sub(quotient, one), quotient)
    if not guarded:
        return result
    by_zero = b.icmp_signed("==", y, zero)
    return b.select(special, b.select(by_zero, zero, b.neg(x)), result)


def _unsigned_division(b: ll.IRBuilder, op: str, x: Value, y: Value) -> Value:
    by_zero = b.icmp_unsigned("==", y, constant(y.type, 0))
    safe = b.select(by_zero, constant(y.type, 1), y)
    result = b.udiv(x, safe) if op == "floordiv" else b.urem(x, safe)
    return b.select(by_zero, constant(y.type, 0), result)
