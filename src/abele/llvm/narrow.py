"""Narrow floats in IR beyond rounding to nearest of 16 bits: 8-bit floats, random rounding, saturation.

The same bits as :mod:`abele.numerics.narrow`, lane by lane.
"""

from __future__ import annotations

from abele.llvm import ir as ll
from abele.llvm.emit import F32, HALF, I8, I16, I32, Value, constant, declared, intrinsic, like
from abele.llvm.host import host_cpu
from abele.numerics import ElementType
from abele.numerics.narrow import Format, format_of

# Conversions between 16-bit floats, held as their bits, and f32; rounded to nearest, ties to even.
#
# They need nothing of the CPU: f16 uses its instructions where there are any, everything else is integer arithmetic.
# Both ways give the same bits, NaN payloads included. Subnormal f16 values survive also where f32 denormals are
# flushed.


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


def half_functions() -> str:
    """Text of a module with the functions that LLVM calls to convert ``half`` where no instruction does."""
    module = ll.Module("half")
    b = _function(module, "__extendhfsf2", F32, HALF)
    b.ret(_half_to_f32(b, b.bitcast(b.function.args[0], I16)))
    b = _function(module, "__truncsfhf2", HALF, F32)
    b.ret(b.bitcast(_f32_to_half(b, b.function.args[0]), HALF))
    return str(module)


def _function(module: ll.Module, name: str, result: ll.Type, argument: ll.Type) -> ll.IRBuilder:
    return ll.IRBuilder(ll.Function(module, ll.FunctionType(result, [argument]), name).append_basic_block("entry"))


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
    # to even, goes up. A carry out of the mantissa raises the exponent, as it should.
    rounded = b.and_(b.add(b.add(magnitude, constant(kind, 0xFFF)), odd), constant(kind, 0x7FFFE000))
    # Times 2^112, so that what f16 does not hold overflows in f32, too: the CPU makes it infinite, and notes the event.
    wide = b.bitcast(b.fmul(b.bitcast(rounded, value.type), constant(value.type, 2.0**112)), kind)
    normal = b.lshr(b.sub(wide, constant(kind, 224 << 23)), constant(kind, 13))
    small = b.icmp_unsigned("<", magnitude, constant(kind, 0x38800000))
    # Others are no part of it, since they would overflow here, or be beyond an integer.
    least = b.bitcast(b.select(small, magnitude, constant(kind, 0)), value.type)
    scaled = b.fmul(least, constant(value.type, 2.0**24))
    tiny = b.fptosi(intrinsic(b, "llvm.rint", scaled), kind)
    finite = b.select(small, tiny, normal)
    # The payload's upper bits stay, and the quiet bit makes sure that it is not all zeros, which would mean infinity.
    nan = b.or_(b.and_(dropped, constant(kind, 0x3FF)), constant(kind, 0x7E00))
    result = b.select(b.icmp_unsigned(">", magnitude, constant(kind, 0x7F800000)), nan, finite)
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


def widened(b: ll.IRBuilder, bits: Value, type_: ElementType) -> Value:
    """Bits of a narrow float (i16 or i8, scalar or vector) as f32."""
    if type_.bits == 16:
        return to_f32(b, bits, type_.name)
    value = _widened_quarter(b, bits, format_of(type_))
    return b.fmul(value, constant(value.type, 2.0**type_.scale)) if type_.scale else value


def narrowed(
    b: ll.IRBuilder,
    value: Value,
    type_: ElementType,
    word: Value | None = None,
    *,
    saturate: bool = False,
    native: bool | None = None,
) -> Value:
    """Bits of a narrow float that f32 ``value`` rounds to.

    Args:
        b: Builder that code is added to.
        value: Scalar or vector.
        type_: The narrow float; its scale divides the value first.
        word: Random words, i32 of as many lanes, to round at random by; None for nearest, ties to even.
        saturate: True if values too large become the largest number, rather than infinity or NaN. Infinity itself is no
            number to 8-bit floats, and becomes NaN either way.
        native: True to round to f16 at random by the CPU's instruction that cuts off; by default if it has it.
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
        return from_f32(b, value, type_.name)
    if word is not None and type_.name == "f16" and (host_cpu().cuts_to_half if native is None else native):
        return _random_half(b, value, word, fmt, held=saturate)
    bits = b.bitcast(value, like(value, I32))
    magnitude = b.and_(bits, constant(bits.type, 0x7FFFFFFF))
    code = _nearest(b, value, magnitude, fmt) if word is None else _random(b, magnitude, word, fmt)
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


def _random(b: ll.IRBuilder, magnitude: Value, word: Value, fmt: Format) -> Value:
    kind, dropped = magnitude.type, fmt.dropped_bits
    if not fmt.rebias:
        part = b.lshr(word, constant(kind, 32 - dropped))
        return b.lshr(b.add(magnitude, part), constant(kind, dropped))
    total = _moved(b, magnitude, word, fmt)
    bits = b.bitcast(total, kind)
    normal = b.sub(b.lshr(bits, constant(kind, dropped)), constant(kind, fmt.rebias))
    small, steps = _small(b, total, bits, fmt)
    return b.select(small, b.fptosi(steps, kind), normal)


def _moved(b: ll.IRBuilder, magnitude: Value, word: Value, fmt: Format) -> Value:
    """The size of a value and a random part of the distance to the next number."""
    kind, floats = magnitude.type, like(magnitude, F32)
    part = b.sitofp(b.lshr(word, constant(kind, 32 - fmt.dropped_bits)), floats)
    power = b.and_(magnitude, constant(kind, 0x7F800000))
    power = intrinsic(b, "llvm.umax", power, constant(kind, fmt.least_normal))
    grid = b.bitcast(b.sub(power, constant(kind, 23 << 23)), floats)
    # The product is exact, so that it does not matter whether the two operations are one.
    return intrinsic(b, "llvm.fmuladd", part, grid, b.bitcast(magnitude, floats))


_FAR = 112
"""Powers of two from where f16 ends to where f32 does."""


def _random_half(b: ll.IRBuilder, value: Value, word: Value, fmt: Format, *, held: bool) -> Value:
    """Bits of the f16 that a value rounds to at random, by the instruction for cutting off.

    That gives the largest number for what is beyond it. So sums are made where f32 ends as f16 does, and what is beyond
    is infinite already.
    """
    far = 0 if held else _FAR
    kind = like(value, I32)
    sign = b.and_(b.bitcast(value, kind), constant(kind, 0x80000000))
    moved = b.fmul(value, constant(value.type, 2.0**far)) if far else value
    power = b.and_(b.bitcast(moved, kind), constant(kind, 0x7F800000))
    power = intrinsic(b, "llvm.umax", power, constant(kind, fmt.least_normal + (far << 23)))
    grid = b.bitcast(b.sub(power, constant(kind, 23 << 23)), value.type)
    part = b.bitcast(b.sitofp(b.lshr(word, constant(kind, 32 - fmt.dropped_bits)), value.type), kind)
    # The product is exact, so that it does not matter whether the two operations are one.
    total = intrinsic(b, "llvm.fmuladd", b.bitcast(b.xor(part, sign), value.type), grid, moved)
    return _cut_off(b, b.fmul(total, constant(value.type, 2.0**-far)) if far else total)


def _cut_off(b: ll.IRBuilder, value: Value) -> Value:
    """The f16 at or next below the size of f32 ``value``, as its bits."""
    if not isinstance(value.type, ll.VectorType):
        one = b.insert_element(constant(ll.VectorType(F32, 4), 0.0), value, constant(I32, 0))
        return b.extract_element(_converted(b, one), constant(I32, 0))
    lanes = value.type.count
    if lanes <= 8:
        wide = _converted(b, _lanes(b, value, 0, 4 if lanes <= 4 else 8))
        return _lanes(b, wide, 0, lanes)
    halves = [_cut_off(b, _lanes(b, value, first, lanes // 2)) for first in (0, lanes // 2)]
    order = ll.Constant(ll.VectorType(I32, lanes), [ll.Constant(I32, n) for n in range(lanes)])
    return b.shuffle_vector(halves[0], halves[1], order)


def _converted(b: ll.IRBuilder, value: Value) -> Value:
    count = value.type.count
    name = "llvm.x86.vcvtps2ph.128" if count == 4 else "llvm.x86.vcvtps2ph.256"
    towards_zero = constant(I32, 3)
    return b.call(declared(b, name, ll.VectorType(I16, 8), [value.type, I32]), [value, towards_zero])


def _lanes(b: ll.IRBuilder, value: Value, first: int, count: int) -> Value:
    """Lanes ``first`` to ``first + count`` of a vector; missing ones are its first ones."""
    if first == 0 and count == value.type.count:
        return value
    chosen = [first + n if first + n < value.type.count else 0 for n in range(count)]
    order = ll.Constant(ll.VectorType(I32, count), [ll.Constant(I32, n) for n in chosen])
    return b.shuffle_vector(value, value, order)


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
