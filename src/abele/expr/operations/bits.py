"""Operations on the bits of integers, and on bools."""

from __future__ import annotations

import numpy as np

from abele.expr import numpy_meaning as meaning
from abele.expr.nodes import Cast, Expr, apply
from abele.expr.operation import ANY, BITS, WHOLE, Code, InVertex, Operation, Spelling, Types, loop_cost
from abele.expr.operations.arithmetic import NATURAL
from abele.expr.types import result_type
from abele.llvm import arithmetic as code
from abele.numerics import bool_, i32, i64, u32, u64

_SIMPLE = ((3, 2), (3, 4))
_HASH = (8 + NATURAL, 1)
"""Eight integer operations beside load, store and loop."""


def truth(x: Expr, types: Types) -> Expr:
    """True if ``x`` is not zero, as a bool."""
    return x if result_type(x, types) == bool_ else Cast(bool_, x)


def _unsigned(x: Expr) -> Expr:
    return Cast(u32, x)


def _popcount(types: Types, x: Expr) -> Expr:
    bits = _unsigned(x)
    bits = bits - apply("and", apply("shr", bits, 1), 0x55555555)
    bits = apply("and", bits, 0x33333333) + apply("and", apply("shr", bits, 2), 0x33333333)
    bits = apply("and", bits + apply("shr", bits, 4), 0x0F0F0F0F)
    return Cast(result_type(x, types), apply("shr", bits * 0x01010101, 24))


def _leading_zeros(types: Types, x: Expr) -> Expr:
    bits = _unsigned(x)
    for step in (1, 2, 4, 8, 16):
        bits = apply("or", bits, apply("shr", bits, step))
    return Cast(result_type(x, types), _popcount(types, apply("not", bits)))


def _hash(types: Types, x: Expr) -> Expr:
    """Three rounds of shift and multiply, after which every bit of ``x`` decides every bit of the result.

    Source: Appleby, MurmurHash3 (finaliser of 32 bits).
    """
    bits = _unsigned(x)
    bits = apply("xor", bits, apply("shr", bits, 16)) * 0x85EBCA6B
    bits = apply("xor", bits, apply("shr", bits, 13)) * 0xC2B2AE35
    return Cast(result_type(x, types), apply("xor", bits, apply("shr", bits, 16)))


def _shift_right(types: Types, x: Expr, y: Expr) -> Expr:
    unsigned = u64 if result_type(x, types).bits == 64 else u32
    return Cast(result_type(x, types), apply("shr", Cast(unsigned, x), Cast(unsigned, y)))


def _shift_right_sign_extend(types: Types, x: Expr, y: Expr) -> Expr:
    signed = i64 if result_type(x, types).bits == 64 else i32
    return Cast(result_type(x, types), apply("shr", Cast(signed, x), Cast(signed, y)))


OPERATIONS = (
    Operation(
        "and",
        2,
        BITS,
        np.bitwise_and,
        symbol="&",
        code=Code(integer=code.integers("and_")),
        in_vertex=InVertex("operator", "and"),
        cost=loop_cost(*_SIMPLE),
        spelling=Spelling("bitwise_and", "BITWISE_AND", "BitwiseAnd"),
    ),
    Operation(
        "or",
        2,
        BITS,
        np.bitwise_or,
        symbol="|",
        code=Code(integer=code.integers("or_")),
        in_vertex=InVertex("operator", "or"),
        cost=loop_cost(*_SIMPLE),
        spelling=Spelling("bitwise_or", "BITWISE_OR", "BitwiseOr"),
    ),
    Operation(
        "xor",
        2,
        BITS,
        np.bitwise_xor,
        symbol="^",
        code=Code(integer=code.integers("xor")),
        in_vertex=InVertex("operator", "xor"),
        cost=loop_cost(*_SIMPLE),
        spelling=Spelling("bitwise_xor", "BITWISE_XOR", "BitwiseXor"),
    ),
    Operation(
        "not",
        1,
        BITS,
        np.invert,
        code=Code(integer=code.invert),
        in_vertex=InVertex("sign", "invert"),
        cost=loop_cost((2, 2), (2, 4)),
        spelling=Spelling("bitwise_not", "BITWISE_NOT", "BitwiseNot"),
    ),
    Operation(
        "bitwise_xnor",
        2,
        BITS,
        lambda x, y: np.invert(np.bitwise_xor(x, y)),
        expansion=lambda types, x, y: apply("not", apply("xor", x, y)),
        cost=loop_cost(*_SIMPLE),
        spelling=Spelling("bitwise_xnor", "BITWISE_XNOR", "BitwiseXnor"),
    ),
    Operation(
        "logical_and",
        2,
        ANY,
        np.logical_and,
        gives_bool=True,
        expansion=lambda types, x, y: apply("and", truth(x, types), truth(y, types)),
        cost=loop_cost(*_SIMPLE),
        spelling=Spelling("logical_and", "LOGICAL_AND", "And"),
    ),
    Operation(
        "logical_or",
        2,
        ANY,
        np.logical_or,
        gives_bool=True,
        expansion=lambda types, x, y: apply("or", truth(x, types), truth(y, types)),
        cost=loop_cost(*_SIMPLE),
        spelling=Spelling("logical_or", "LOGICAL_OR", "Or"),
    ),
    Operation(
        "logical_not",
        1,
        ANY,
        np.logical_not,
        gives_bool=True,
        expansion=lambda types, x: apply("not", truth(x, types)),
        cost=loop_cost((2, 2), (2, 4)),
        spelling=Spelling("logical_not", "LOGICAL_NOT", "Not"),
    ),
    Operation(
        "shl",
        2,
        WHOLE,
        meaning.shifted(np.left_shift),
        symbol="<<",
        code=Code(integer=code.shift_left),
        in_vertex=InVertex("operator", "shl"),
        cost=loop_cost(*_SIMPLE),
        spelling=Spelling("shift_left", "SHIFT_LEFT", "Shl"),
    ),
    Operation(
        "shr",
        2,
        WHOLE,
        meaning.shifted(np.right_shift),
        symbol=">>",
        code=Code(integer=code.shift_right),
        in_vertex=InVertex("operator", "shr"),
        cost=loop_cost(*_SIMPLE),
    ),
    Operation(
        "shift_right",
        2,
        WHOLE,
        meaning.shift_right_unsigned,
        expansion=_shift_right,
        cost=loop_cost(*_SIMPLE),
        spelling=Spelling("shift_right", "SHIFT_RIGHT", "Shr"),
    ),
    Operation(
        "shift_right_sign_extend",
        2,
        WHOLE,
        meaning.shift_right_signed,
        expansion=_shift_right_sign_extend,
        cost=loop_cost(*_SIMPLE),
        spelling=Spelling("shift_right_sign_extend", "SHIFT_RIGHT_SIGN_EXTEND", "ShrSE"),
    ),
    Operation(
        "popcount",
        1,
        WHOLE,
        meaning.popcount,
        expansion=_popcount,
        cost=loop_cost((7, 1), (7, 1)),
        spelling=Spelling("popcount", "POPCOUNT", "Popcount"),
    ),
    Operation(
        "count_leading_zeros",
        1,
        WHOLE,
        meaning.count_leading_zeros,
        expansion=_leading_zeros,
        cost=loop_cost((7, 1), (7, 1)),
        spelling=Spelling("count_leading_zeros", "COUNT_LEADING_ZEROS", "CountLeadingZeros"),
    ),
    Operation(
        "hash",
        1,
        WHOLE,
        meaning.murmur,
        expansion=_hash,
        cost=loop_cost(_HASH, _HASH, _HASH),
        spelling=Spelling("hash", "", "Hash"),
    ),
)
"""Operations of this module. ``shr`` keeps the sign of signed integers; popops has one shift for each way."""
