"""Conversions between 16-bit floats, held as their bits, and f32; rounded to nearest, ties to even.

They need nothing of the CPU: f16 uses its instructions where there are any, everything else is integer arithmetic.
Both ways give the same bits, NaN payloads included. Subnormal f16 values survive also where f32 denormals are flushed.
"""

from __future__ import annotations

from abele.llvm import ir as ll
from abele.llvm.emit import F32, HALF, I16, I32, Value, constant, intrinsic, like
from abele.llvm.host import host_cpu


def to_f32(builder: ll.IRBuilder, bits: Value, name: str, *, native: bool | None = None) -> Value:
    """``bits`` (i16, scalar or vector) of type ``name``, ``f16`` or ``bf16``, as f32.

    Args:
        builder: Builder that code is added to.
        bits: The 16-bit float.
        name: Its element type.
        native: True if to use the CPU's f16 instructions; by default if it has them.
    """
    if name == "bf16":
        wide = builder.zext(bits, like(bits, I32))
        return builder.bitcast(builder.shl(wide, constant(wide.type, 16)), like(bits, F32))
    if host_cpu().converts_half if native is None else native:
        return builder.fpext(builder.bitcast(bits, like(bits, HALF)), like(bits, F32))
    return _half_to_f32(builder, bits)


def from_f32(builder: ll.IRBuilder, value: Value, name: str, *, native: bool | None = None) -> Value:
    """The bits (i16, scalar or vector) of f32 ``value`` rounded to type ``name``, ``f16`` or ``bf16``."""
    if name == "bf16":
        return _f32_to_bf16(builder, value)
    if host_cpu().converts_half if native is None else native:
        return builder.bitcast(builder.fptrunc(value, like(value, HALF)), like(value, I16))
    return _f32_to_half(builder, value)


def _half_to_f32(b: ll.IRBuilder, bits: Value) -> Value:
    word = b.zext(bits, like(bits, I32))
    kind, floats = word.type, like(bits, F32)
    sign = b.shl(b.and_(word, constant(kind, 0x8000)), constant(kind, 16))
    magnitude = b.and_(word, constant(kind, 0x7FFF))
    moved = b.shl(magnitude, constant(kind, 13))
    # The exponents' biases are 127 and 15.
    normal = b.add(moved, constant(kind, 112 << 23))
    # A subnormal is a whole number of 2^-24: exact, and normal in f32, so flushing of denormals does not touch it.
    tiny = b.bitcast(b.fmul(b.sitofp(magnitude, floats), constant(floats, 2.0**-24)), kind)
    # A signalling NaN becomes quiet, as the CPU's instruction makes it.
    quiet = b.select(
        b.icmp_unsigned(">", magnitude, constant(kind, 0x7C00)), constant(kind, 0x400000), constant(kind, 0)
    )
    special = b.or_(b.or_(moved, constant(kind, 0x7F800000)), quiet)
    finite = b.select(b.icmp_unsigned("<", magnitude, constant(kind, 0x0400)), tiny, normal)
    result = b.select(b.icmp_unsigned(">=", magnitude, constant(kind, 0x7C00)), special, finite)
    return b.bitcast(b.or_(result, sign), floats)


def _f32_to_half(b: ll.IRBuilder, value: Value) -> Value:
    word = b.bitcast(value, like(value, I32))
    kind = word.type
    magnitude = b.and_(word, constant(kind, 0x7FFFFFFF))
    sign = b.lshr(b.and_(word, constant(kind, 0x80000000)), constant(kind, 16))
    dropped = b.lshr(magnitude, constant(kind, 13))
    odd = b.and_(dropped, constant(kind, 1))
    # Just below half a unit, plus one if the last bit kept is odd: it carries exactly where rounding to nearest, ties
    # to even, goes up. A carry out of the mantissa raises the exponent, as it should, up to infinity.
    rounded = b.add(b.add(magnitude, constant(kind, 0xFFF - (112 << 23))), odd)
    normal = b.lshr(rounded, constant(kind, 13))
    scaled = b.fmul(b.bitcast(magnitude, value.type), constant(value.type, 2.0**24))
    small = b.icmp_unsigned("<", magnitude, constant(kind, 0x38800000))
    scaled = b.select(small, scaled, constant(value.type, 0.0))  # keeps the conversion below in range
    tiny = b.fptosi(intrinsic(b, "llvm.rint", scaled), kind)
    finite = b.select(small, tiny, normal)
    bounded = b.select(b.icmp_unsigned(">=", magnitude, constant(kind, 0x47800000)), constant(kind, 0x7C00), finite)
    # The payload's upper bits stay, and the quiet bit makes sure that it is not all zeros, which would mean infinity.
    nan = b.or_(b.and_(dropped, constant(kind, 0x3FF)), constant(kind, 0x7E00))
    result = b.select(b.icmp_unsigned(">", magnitude, constant(kind, 0x7F800000)), nan, bounded)
    return b.trunc(b.or_(result, sign), like(value, I16))


def _f32_to_bf16(b: ll.IRBuilder, value: Value) -> Value:
    word = b.bitcast(value, like(value, I32))
    kind = word.type
    dropped = b.lshr(word, constant(kind, 16))
    odd = b.and_(dropped, constant(kind, 1))
    # Ties to even by a carry, as for f16; the sign rides along, as the magnitude cannot carry into it unless it is NaN.
    rounded = b.lshr(b.add(b.add(word, constant(kind, 0x7FFF)), odd), constant(kind, 16))
    is_nan = b.fcmp_unordered("uno", value, value)
    result = b.select(is_nan, b.or_(dropped, constant(kind, 0x40)), rounded)
    return b.trunc(result, like(value, I16))
