"""The table of element-wise operations.

Source of the costs: PopLibs' own tables (machine reference §1.3), averages over random data; entries marked there with
"(+4)" have the loads and stores added here. Operations without an entry are costed by the kernel operations they use.
"""

from __future__ import annotations

import math

from abele.kernels.nest import ir
from abele.numerics import bool_, i32, i64, u32, u64
from abele.poplibs.popops.expr import Types
from abele.poplibs.popops.expressions.op_table import OPS, ElementOp, Lowering, define, find_op, lower_op, type_of

__all__ = ["OPS", "ElementOp", "find_op", "lower_op"]

K = ir.Expr
A = ir.apply


def _is_float(x: K, types: Types) -> bool:
    return type_of(x, types).is_float


def _trunc(types: Types, x: K) -> K:
    return ir.select(x < 0.0, A("ceil", x), A("floor", x))


def _round_half_away(types: Types, x: K) -> K:
    return ir.select(x < 0.0, A("ceil", x - 0.5), A("floor", x + 0.5))


def _signum(types: Types, x: K) -> K:
    zero, one = (0.0, 1.0) if _is_float(x, types) else (0, 1)
    return ir.select(x > zero, ir.as_expr(one), ir.select(x < zero, ir.as_expr(-one), ir.as_expr(zero)))


def _remainder(types: Types, x: K, y: K) -> K:
    quotient = x / y
    if _is_float(quotient, types):
        return x - _trunc(types, quotient) * y
    return ir.select(A("eq", y, 0), ir.as_expr(0), x - quotient * y)


def _expm1(types: Types, x: K) -> K:
    # tanh keeps its relative accuracy around zero, which exp(x) - 1 loses.
    half = A("tanh", x * 0.5)
    return 2.0 * half / (1.0 - half)


def _log1p(types: Types, x: K) -> K:
    # The division repairs what rounding 1 + x lost.
    shifted = 1.0 + x
    return A("log", shifted) - ((shifted - 1.0) - x) / shifted


def _cbrt(types: Types, x: K) -> K:
    size = A("max", A("abs", x), 1e-37)
    root = A("exp", A("log", size) * (1.0 / 3.0))
    refined = root - (root - size / A("square", root)) * (1.0 / 3.0)
    signed = ir.select(x < 0.0, -refined, refined)
    return ir.select(A("abs", x) < 1e-37, x, signed)


_ATAN = (1.0, -0.333327978849411, 0.19974404573440552, -0.13851478695869446, 0.07984963059425354)
_ASIN = (1.0, 0.1666678637266159, 0.0749453455209732, 0.0455390103161335, 0.02390936389565468, 0.042553599923849106)


def _odd_polynomial(x: K, coefficients: tuple[float, ...]) -> K:
    """x·(c0 + c1·x² + …): least-squares fits at Chebyshev nodes, errors below 1e-8 on their ranges."""
    square = A("square", x)
    value: K = ir.as_expr(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = value * square + c
    return x * value


def _atan_positive(x: K) -> K:
    """Arc tangent of x ≥ 0: reduced to [0, tan π/8] by the addition theorem."""
    low, high = math.tan(math.pi / 8), math.tan(3 * math.pi / 8)
    reduced = ir.select(x > high, -1.0 / A("max", x, 1e-30), ir.select(x > low, (x - 1.0) / (x + 1.0), x))
    shift = ir.select(x > high, ir.as_expr(math.pi / 2), ir.select(x > low, ir.as_expr(math.pi / 4), ir.as_expr(0.0)))
    return shift + _odd_polynomial(reduced, _ATAN)


def _atan2(types: Types, y: K, x: K) -> K:
    size_x, size_y = A("abs", x), A("abs", y)
    angle = _atan_positive(size_y / A("max", size_x, 1e-37))
    turned = ir.select(x < 0.0, math.pi - angle, angle)
    zero = ir.select(x < 0.0, ir.as_expr(math.pi), ir.as_expr(0.0))
    size = ir.select(A("max", size_x, size_y) > 0.0, turned, zero)
    return ir.select(y < 0.0, -size, size)


def _asin(types: Types, x: K) -> K:
    size = A("abs", x)
    near_one = A("sqrt", (1.0 - size) * 0.5)
    inner = _odd_polynomial(ir.select(size > 0.5, near_one, size), _ASIN)
    angle = ir.select(size > 0.5, math.pi / 2 - 2.0 * inner, inner)
    return ir.select(x < 0.0, -angle, angle)


def _is_finite(types: Types, x: K) -> K:
    return A("abs", x) < math.inf


def _is_inf(types: Types, x: K) -> K:
    return A("abs", x).eq(math.inf)


def _is_nan(types: Types, x: K) -> K:
    return x.ne(x)


def _gelu_erf(types: Types, x: K) -> K:
    return x * 0.5 * (1.0 + A("erf", x * math.sqrt(0.5)))


def _unsigned(x: K) -> K:
    return ir.Cast(u32, x)


def _popcount(types: Types, x: K) -> K:
    bits = _unsigned(x)
    bits = bits - A("and", A("shr", bits, 1), 0x55555555)
    bits = A("and", bits, 0x33333333) + A("and", A("shr", bits, 2), 0x33333333)
    bits = A("and", bits + A("shr", bits, 4), 0x0F0F0F0F)
    return ir.Cast(type_of(x, types), A("shr", bits * 0x01010101, 24))


def _leading_zeros(types: Types, x: K) -> K:
    bits = _unsigned(x)
    for step in (1, 2, 4, 8, 16):
        bits = A("or", bits, A("shr", bits, step))
    return ir.Cast(type_of(x, types), _popcount(types, A("not", bits)))


def _hash(types: Types, x: K) -> K:
    """Three rounds of shift and multiply, after which every bit of ``x`` decides every bit of the result.

    Source: Appleby, MurmurHash3 (finaliser of 32 bits).
    """
    bits = _unsigned(x)
    bits = A("xor", bits, A("shr", bits, 16)) * 0x85EBCA6B
    bits = A("xor", bits, A("shr", bits, 13)) * 0xC2B2AE35
    return ir.Cast(type_of(x, types), A("xor", bits, A("shr", bits, 16)))


def _shift_right(types: Types, x: K, y: K) -> K:
    unsigned = u64 if type_of(x, types).bits == 64 else u32
    return ir.Cast(type_of(x, types), A("shr", ir.Cast(unsigned, x), ir.Cast(unsigned, y)))


def _shift_right_sign_extend(types: Types, x: K, y: K) -> K:
    signed = i64 if type_of(x, types).bits == 64 else i32
    return ir.Cast(type_of(x, types), A("shr", ir.Cast(signed, x), ir.Cast(signed, y)))


def _truth(x: K, types: Types) -> K:
    return x if type_of(x, types) == bool_ else ir.Cast(bool_, x)


def _logical(op: str) -> Lowering:
    return lambda types, *args: A(op, *(_truth(x, types) for x in args))


NATURAL = 4
"""Load, store and loop slots of a vector in unary codelets. Source: machine reference §4.8."""

EXP_START = (9 + 11, 33)
"""As UNARY_START, of the exponential. Source: machine reference §4.8."""

_SIMPLE = ((3, 2), (3, 4))
_COMPARE = ((14, 4), (9, 4))
_WHOLE = frozenset({"int", "uint"})
_FLOAT = frozenset({"float"})

define("add", 2, "add", *_SIMPLE)
define("sub", 2, "sub", *_SIMPLE)
define("mul", 2, "mul", *_SIMPLE)
define("div", 2, "div", (10, 2), (21, 4), integer=(277, 1))
define("rem", 2, _remainder, (10 + 2 * NATURAL, 2), (21 + 2 * NATURAL, 4), integer=(292, 1))
define("pow", 2, "pow", (312, 1), (325, 1))
define("atan2", 2, _atan2, (272, 2), (578, 4))
define("max", 2, "max", (3, 2), (4, 4), in_place=((3, 2), (4, 2)))
define("min", 2, "min", (3, 2), (4, 4), in_place=((3, 2), (4, 2)))
define("eq", 2, "eq", *_COMPARE)
define("neq", 2, "ne", *_COMPARE)
define("lt", 2, "lt", *_COMPARE)
define("lteq", 2, "le", *_COMPARE)
define("gt", 2, "gt", *_COMPARE)
define("gteq", 2, "ge", *_COMPARE)
define("logical_and", 2, _logical("and"), *_SIMPLE)
define("logical_or", 2, _logical("or"), *_SIMPLE)
define("bitwise_and", 2, "and", *_SIMPLE)
define("bitwise_or", 2, "or", *_SIMPLE)
define("bitwise_xor", 2, "xor", *_SIMPLE)
define("bitwise_xnor", 2, lambda types, x, y: A("not", A("xor", x, y)), *_SIMPLE)
define("shift_left", 2, "shl", *_SIMPLE)
define("shift_right", 2, _shift_right, *_SIMPLE, kinds=_WHOLE)
define("shift_right_sign_extend", 2, _shift_right_sign_extend, *_SIMPLE, kinds=_WHOLE)
define("variance_to_inv_std_dev", 2, lambda types, v, e: A("rsqrt", v + e), (10, 2), (21, 4))
define("inv_std_dev_to_variance", 2, lambda types, s, e: A("inv", A("square", s)) - e, (10, 2), (21, 4))

define("abs", 1, "abs", (2, 2), (2, 4))
define("neg", 1, "neg", (2, 2), (2, 4), in_place=((3, 2), (3, 4)))
define("square", 1, "square", (2, 2), (2, 4))
define("relu", 1, "relu", (3, 2), (3, 4), in_place=((2, 2), (2, 4)))
define("inv", 1, "inv", (6, 2), (15, 4))
define("sqrt", 1, "sqrt", (10, 2), (23, 4), integer=(114, 1))
define("rsqrt", 1, "rsqrt", (8, 2), (19, 4))
define("exp", 1, "exp", (6, 2), (4, 4), start=EXP_START)
define("exp2", 1, lambda types, x: A("exp", x * math.log(2.0)), (6, 2), (4, 4))
define("expm1", 1, _expm1, (12, 2), (12, 4))
define("log", 1, "log", (12, 2), (4, 4), in_place=((14, 2), (6, 4)))
define("log1p", 1, _log1p, (18 + NATURAL, 2), (18 + NATURAL, 4))
define("tanh", 1, "tanh", (12, 2), (4, 4), in_place=((10, 2), (2, 4)))
define("sigmoid", 1, "sigmoid", (12, 2), (6, 4), in_place=((10, 2), (4, 4)))
define("erf", 1, "erf", (41, 1), (13, 1))
define("gelu_erf", 1, _gelu_erf, (22, 1), (16, 1))
define("sin", 1, "sin", (2300, 1), (25, 1))
define("cos", 1, "cos", (2300, 1), (25, 1))
define("tan", 1, lambda types, x: A("sin", x) / A("cos", x), (5100, 1), (5700, 1))
define("asin", 1, _asin, (102 + NATURAL, 1), (102 + NATURAL, 1))
define("cbrt", 1, _cbrt, (27 + NATURAL, 2), (17 + NATURAL, 4))
define("ceil", 1, "ceil", (2 + NATURAL, 2), (2 + NATURAL, 4))
define("floor", 1, "floor", (2 + NATURAL, 2), (2 + NATURAL, 4))
define("trunc", 1, _trunc, (2 + NATURAL, 2), (2 + NATURAL, 4))
define("round", 1, _round_half_away, (2 + NATURAL, 2), (2 + NATURAL, 4))
define("nearbyint", 1, "round", (2 + NATURAL, 2), (2 + NATURAL, 4))
define("signum", 1, _signum, (5 + NATURAL, 2), (5 + NATURAL, 4))
define("is_finite", 1, _is_finite, *_COMPARE, kinds=_FLOAT)
define("is_inf", 1, _is_inf, *_COMPARE, kinds=_FLOAT)
define("is_nan", 1, _is_nan, *_COMPARE, kinds=_FLOAT)
define("logical_not", 1, lambda types, x: A("not", _truth(x, types)), (2, 2), (2, 4))
define("bitwise_not", 1, "not", (2, 2), (2, 4))
define("popcount", 1, _popcount, (7, 1), (7, 1), kinds=_WHOLE)
define("count_leading_zeros", 1, _leading_zeros, (7, 1), (7, 1), kinds=_WHOLE)
# Eight integer operations beside load, store and loop.
define("hash", 1, _hash, (8 + NATURAL, 1), (8 + NATURAL, 1), (8 + NATURAL, 1), kinds=_WHOLE)

define(
    "select", 3, lambda types, then, other, condition: ir.select(_truth(condition, types), then, other), (5, 1), (5, 1)
)
define("clamp", 3, lambda types, x, low, high: A("min", A("max", x, low), high), (2, 2), (2, 4))
