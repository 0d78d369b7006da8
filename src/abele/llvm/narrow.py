"""Narrow floats in IR beyond rounding to nearest of 16 bits: 8-bit floats, random rounding, saturation.

The same bits as :mod:`abele.numerics.narrow`, lane by lane.
"""

from __future__ import annotations

from abele.llvm import convert
from abele.llvm import ir as ll
from abele.llvm.emit import F32, I8, I16, I32, Value, constant, intrinsic, like
from abele.numerics import ElementType
from abele.numerics.narrow import Format, format_of


def widened(b: ll.IRBuilder, bits: Value, type_: ElementType) -> Value:
    """Bits of a narrow float (i16 or i8, scalar or vector) as f32."""
    if type_.bits == 16:
        return convert.to_f32(b, bits, type_.name)
    value = _widened_quarter(b, bits, format_of(type_))
    return b.fmul(value, constant(value.type, 2.0**type_.scale)) if type_.scale else value


def narrowed(
    b: ll.IRBuilder, value: Value, type_: ElementType, word: Value | None = None, *, saturate: bool = False
) -> Value:
    """Bits of a narrow float that f32 ``value`` rounds to.

    Args:
        b: Where the code goes.
        value: Scalar or vector.
        type_: The narrow float; its scale divides the value first.
        word: Random words, i32 of as many lanes, to round at random by; None for nearest, ties to even.
        saturate: What is too large becomes the largest number, rather than infinity or NaN. Infinity itself is no
            number to 8-bit floats, and becomes NaN either way.
    """
    fmt, given = format_of(type_), value
    if type_.scale:
        value = b.fmul(value, constant(value.type, 2.0**-type_.scale))
    if saturate:
        value = _limited(b, value, fmt.largest)
        if type_.is_quarter:
            size = b.and_(b.bitcast(given, like(given, I32)), constant(like(given, I32), 0x7FFFFFFF))
            value = b.select(_is(b, "==", size, 0x7F800000), given, value)
    if word is None and type_.bits == 16:
        return convert.from_f32(b, value, type_.name)
    bits = b.bitcast(value, like(value, I32))
    magnitude = b.and_(bits, constant(bits.type, 0x7FFFFFFF))
    code = _nearest(b, value, magnitude, fmt) if word is None else _random(b, value, magnitude, word, fmt)
    code = b.select(b.icmp_unsigned(">", code, constant(code.type, fmt.beyond)), constant(code.type, fmt.beyond), code)
    code = _special(b, magnitude, code, fmt)
    top = constant(bits.type, 1 << (fmt.bits - 1))
    sign = b.and_(b.lshr(bits, constant(bits.type, 32 - fmt.bits)), top)
    signed = b.or_(code, sign)
    if not fmt.has_infinity:
        plain = b.or_(_is(b, "==", code, 0), _is(b, ">=", code, fmt.beyond))
        signed = b.select(plain, code, signed)
    return b.trunc(signed, like(value, I16 if fmt.bits == 16 else I8))


def _is(b: ll.IRBuilder, op: str, value: Value, number: int) -> Value:
    return b.icmp_unsigned(op, value, constant(value.type, number))


def _limited(b: ll.IRBuilder, value: Value, largest: float) -> Value:
    """The value between the largest numbers; NaN stays."""
    for op, bound in ((">", largest), ("<", -largest)):
        limit = constant(value.type, bound)
        value = b.select(b.fcmp_ordered(op, value, limit), limit, value)
    return value


def _small(b: ll.IRBuilder, value: Value, magnitude: Value, fmt: Format) -> tuple[Value, Value]:
    """True if a value is less than the least normal number; and how many times the least number it is, else 0."""
    small = _is(b, "<", magnitude, fmt.least_normal)
    size = b.bitcast(b.select(small, magnitude, constant(magnitude.type, 0)), value.type)
    return small, b.fmul(size, constant(value.type, fmt.steps_per_unit))


def _nearest(b: ll.IRBuilder, value: Value, magnitude: Value, fmt: Format) -> Value:
    kind, dropped = magnitude.type, fmt.dropped_bits
    odd = b.and_(b.lshr(magnitude, constant(kind, dropped)), constant(kind, 1))
    half = b.add(b.add(magnitude, constant(kind, (1 << dropped - 1) - 1)), odd)
    normal = b.sub(b.lshr(half, constant(kind, dropped)), constant(kind, fmt.rebias))
    small, steps = _small(b, value, magnitude, fmt)
    return b.select(small, b.fptosi(intrinsic(b, "llvm.rint", steps), kind), normal)


def _random(b: ll.IRBuilder, value: Value, magnitude: Value, word: Value, fmt: Format) -> Value:
    kind, dropped = magnitude.type, fmt.dropped_bits
    moved = b.add(magnitude, b.and_(word, constant(kind, (1 << dropped) - 1)))
    normal = b.sub(b.lshr(moved, constant(kind, dropped)), constant(kind, fmt.rebias))
    small, steps = _small(b, value, magnitude, fmt)
    whole = b.fptosi(steps, kind)
    rest = b.fsub(steps, b.sitofp(whole, value.type))
    odds = b.fmul(b.sitofp(b.lshr(word, constant(kind, 8)), value.type), constant(value.type, 2.0**-24))
    up = b.zext(b.fcmp_ordered("<", odds, rest), kind)
    return b.select(small, b.add(whole, up), normal)


def _special(b: ll.IRBuilder, magnitude: Value, code: Value, fmt: Format) -> Value:
    """The code, or that of infinity and NaN where the value is not finite."""
    infinite = b.select(_is(b, ">=", magnitude, 0x7F800000), constant(code.type, fmt.beyond), code)
    return b.select(_is(b, ">", magnitude, 0x7F800000), constant(code.type, fmt.nan), infinite)


def _widened_quarter(b: ll.IRBuilder, bits: Value, fmt: Format) -> Value:
    word = b.zext(bits, like(bits, I32))
    kind, floats = word.type, like(bits, F32)
    sign = b.shl(b.and_(word, constant(kind, 0x80)), constant(kind, 24))
    magnitude = b.and_(word, constant(kind, 0x7F))
    moved = b.add(b.shl(magnitude, constant(kind, fmt.dropped_bits)), constant(kind, (127 - fmt.bias) << 23))
    tiny = b.bitcast(b.fmul(b.sitofp(magnitude, floats), constant(floats, 1 / fmt.steps_per_unit)), kind)
    number = b.select(_is(b, "<", magnitude, 1 << fmt.fraction_bits), tiny, moved)
    is_nan = _is(b, "==", word, fmt.nan)
    return b.bitcast(b.select(is_nan, constant(kind, 0x7FC00000), b.or_(number, sign)), floats)
