"""Products of whole numbers on units that multiply floats.

Operands are cut into bytes, ``a = a₀ + 2⁸·a₁ + 2¹⁶·a₂ + 2²⁴·a₃``; the last one has the sign. A product of two bytes
has at most 16 bits, so f32 adds up 256 of them without rounding (1024 of signed ones). What is more is summed as
integers, which wrap round as JAX's do. Products of bytes that are 2³² times something are left out: two operands of
32 bits take ten products, two of 8 bits one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from abele.expr.derivative import arg
from abele.kernels.nest.ir import Const, apply
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import ElementType, bool_, f16, f32, i32

EXACT = 2**24
"""Sums up to this are exact in f32."""

PartialProducts = Callable[[Value, Value, int], Sequence[Value]]
"""Products of two f32 operands, each a sum of at most so many terms, which are to be added up."""


@dataclass(frozen=True)
class _Byte:
    """A byte of every element.

    Attributes:
        value: The bytes, f32.
        shift: Number of the first bit.
        most: Largest size of one.
    """

    value: Value
    shift: int
    most: int


def _bytes(net: BlockBuilder, value: Value) -> list[_Byte]:
    bits, signed = 1 if value.dtype == bool_ else 8 * value.dtype.bytes, value.dtype.kind == "int"
    if bits <= 8:
        return [_Byte(build.cast(net, value, f32), 0, 1 if bits == 1 else 128 if signed else 255)]
    wide, made = build.cast(net, value, i32), []
    for shift in range(0, bits, 8):
        last = shift + 8 == bits and (signed or bits == 32)
        byte = apply("shift_right_sign_extend", arg(0), Const(shift, i32)) if shift else arg(0)
        byte = byte if last else apply("and", byte, Const(255, i32))
        made.append(_Byte(build.cast(net, build.map_(net, byte, [wide]), f32), shift, 128 if last else 255))
    return made


def whole_product(
    net: BlockBuilder, first: Value, second: Value, dtype: ElementType, partial: PartialProducts
) -> Value:
    """A sum of products of whole numbers, exact as far as ``dtype`` holds it; of bools, whether there is any.

    Args:
        net: The network to extend.
        first: Integers or bools.
        second: The others.
        dtype: Type of the result.
        partial: Products of bytes.
    """
    total: Value | None = None
    for one in _bytes(net, first):
        for other in _bytes(net, second):
            shift = one.shift + other.shift
            if shift >= 32:
                continue
            for part in partial(one.value, other.value, EXACT // (one.most * other.most)):
                scaled = build.cast(net, part, i32)
                if shift:
                    scaled = build.map_(net, arg(0) * Const(1 << shift, i32), [scaled])
                total = scaled if total is None else build.map_(net, arg(0) + arg(1), [total, scaled])
    assert total is not None
    if dtype == bool_:
        return build.map_(net, arg(0).ne(Const(0, i32)), [total], bool_)
    return build.cast(net, total, dtype)


def pieces(extent: int, most: int) -> list[tuple[int, int]]:
    """Begin and end of pieces of at most so many indices."""
    return [(begin, min(extent, begin + most)) for begin in range(0, extent, max(1, most))]


def multiplied_type(dtype: ElementType) -> ElementType:
    """Float type in which products with results of ``dtype`` are made: f16 and f32 are what matrix units take."""
    return dtype if dtype in (f16, f32) else f32
