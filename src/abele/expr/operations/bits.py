"""Operations on the bits of integers, and on bools."""

from __future__ import annotations

import numpy as np

from abele.expr import numpy_meaning as meaning
from abele.expr.nodes import Cast, Expr, apply
from abele.expr.operation import (
    ANY,
    BITS,
    WHOLE,
    Code,
    Expansion,
    InVertex,
    Meaning,
    Operation,
    Spelling,
    Types,
    loop_cost,
)
from abele.expr.operations.arithmetic import NATURAL
from abele.expr.types import result_type
from abele.llvm import arithmetic as code
from abele.numerics import bool_, i32, i64, u32, u64

_SIMPLE = ((3, 2), (3, 4))
_SIMPLE_UNARY = ((2, 2), (2, 4))
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


def _bitwise(name: str, sign: str, numpy: Meaning, instruction: str, spelling: Spelling) -> Operation:
    return Operation(
        name,
        2,
        BITS,
        numpy,
        symbol=sign,
        code=Code(integer=code.integers(instruction)),
        in_vertex=InVertex("operator", name),
        cost=loop_cost(*_SIMPLE),
        spelling=spelling,
    )


def _logical(name: str, arity: int, numpy: Meaning, bitwise: str, spelling: Spelling) -> Operation:
    """The operation ``bitwise`` on whether arguments are not zero."""
    return Operation(
        name,
        arity,
        ANY,
        numpy,
        gives_bool=True,
        expansion=lambda types, *args: apply(bitwise, *(truth(x, types) for x in args)),
        cost=loop_cost(*(_SIMPLE if arity == 2 else _SIMPLE_UNARY)),
        spelling=spelling,
    )


def _counted(name: str, numpy: Meaning, expansion: Expansion, spelling: Spelling) -> Operation:
    """One that counts bits."""
    cost = loop_cost((7, 1), (7, 1))
    return Operation(name, 1, WHOLE, numpy, expansion=expansion, cost=cost, spelling=spelling)


OPERATIONS = (
    _bitwise("and", "&", np.bitwise_and, "and_", Spelling("bitwise_and", "BITWISE_AND", "BitwiseAnd")),
    _bitwise("or", "|", np.bitwise_or, "or_", Spelling("bitwise_or", "BITWISE_OR", "BitwiseOr")),
    _bitwise("xor", "^", np.bitwise_xor, "xor", Spelling("bitwise_xor", "BITWISE_XOR", "BitwiseXor")),
    Operation(
        "not",
        1,
        BITS,
        np.invert,
        code=Code(integer=code.invert),
        in_vertex=InVertex("sign", "invert"),
        cost=loop_cost(*_SIMPLE_UNARY),
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
    _logical("logical_and", 2, np.logical_and, "and", Spelling("logical_and", "LOGICAL_AND", "And")),
    _logical("logical_or", 2, np.logical_or, "or", Spelling("logical_or", "LOGICAL_OR", "Or")),
    _logical("logical_not", 1, np.logical_not, "not", Spelling("logical_not", "LOGICAL_NOT", "Not")),
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
    _counted("popcount", meaning.popcount, _popcount, Spelling("popcount", "POPCOUNT", "Popcount")),
    _counted(
        "count_leading_zeros",
        meaning.count_leading_zeros,
        _leading_zeros,
        Spelling("count_leading_zeros", "COUNT_LEADING_ZEROS", "CountLeadingZeros"),
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
