"""Sums, products, quotients, powers, extremes and signs.

Source of the costs in this folder: PopLibs' own tables (machine reference §1.3), averages over random data; entries
marked there with "(+4)" have the loads and stores added here (``NATURAL``).
"""

from __future__ import annotations

import math as math_

import numpy as np

from abele.expr import numpy_meaning as meaning
from abele.expr.nodes import Const, Expr, apply, as_expr, select
from abele.expr.operation import (
    FLOAT,
    NUMBER,
    WHOLE,
    Code,
    Emit,
    InVertex,
    Meaning,
    Operation,
    Slope,
    Slots,
    Spelling,
    Types,
    loop_cost,
)
from abele.expr.simplify import product, simplified
from abele.expr.types import result_type
from abele.llvm import arithmetic as code
from abele.llvm import math
from abele.numerics import ElementType

NATURAL = 4
"""Load, store and loop slots of a vector in unary codelets. Source: machine reference §4.8."""

_LEAST = 2.0**-126
"""The least normal f32."""

ZERO, ONE, MINUS_ONE = Const(0.0), Const(1.0), Const(-1.0)
_SIMPLE = ((3, 2), (3, 4))


def _share(other: Expr, equal: Expr) -> Expr:
    """Slope of an extreme: equal arguments share the gradient, beside NaN both have the whole, as in PyTorch."""
    return select(other, ZERO, select(equal, Const(0.5), ONE))


def _if_larger(x: Expr, y: Expr) -> Expr:
    return _share(x < y, x.eq(y))


def _if_smaller(x: Expr, y: Expr) -> Expr:
    return _share(x > y, x.eq(y))


def _slope_by_base(x: Expr, y: Expr) -> Expr:
    if isinstance(y, Const):
        return product(y, simplified(apply("pow", x, Const(y.value - 1))))
    return select(y.eq(0.0), ZERO, product(y, apply("pow", x, y - 1.0)))


def _slope_by_exponent(x: Expr, y: Expr) -> Expr:
    """Zero of a base of zero, whose logarithm is infinite."""
    nothing = apply("and", x.eq(0.0), y >= 0.0)
    return select(nothing, ZERO, product(apply("pow", x, y), apply("log", x)))


def _truncated_quotient(type_: ElementType, x: Expr, y: Expr) -> Expr:
    """A quotient of integers truncated towards zero, where ``//`` of the vertex language rounds down."""
    if type_.kind != "int":
        return apply("floordiv", x, y)
    return select(apply("xor", x, y) < 0, -apply("floordiv", -x, y), apply("floordiv", x, y))


def _remainder(types: Types, x: Expr, y: Expr) -> Expr:
    remainder = apply("rem", x, y)
    if result_type(remainder, types).is_float:
        return remainder
    return select(apply("eq", y, 0), as_expr(0), x - x / y * y)


def _cbrt(types: Types, x: Expr) -> Expr:
    """By logarithms, and one step of Newton's method."""
    size = apply("max", apply("abs", x), _LEAST)
    root = apply("exp", apply("log", size) * (1.0 / 3.0))
    refined = root - (root - size / apply("square", root)) * (1.0 / 3.0)
    # Zero and infinity are their own roots.
    plain = apply("and", apply("abs", x) >= _LEAST, apply("abs", x) < math_.inf)
    return select(plain, apply("copysign", refined, x), x)


def _hypot(types: Types, x: Expr, y: Expr) -> Expr:
    """Does not overflow on the way."""
    larger, smaller = apply("max", apply("abs", x), apply("abs", y)), apply("min", apply("abs", x), apply("abs", y))
    length = larger * apply("sqrt", 1.0 + apply("square", smaller / larger))
    infinite = apply("or", apply("is_inf", x), apply("is_inf", y))
    return select(larger.eq(0.0), ZERO, select(infinite, Const(math_.inf), length))


def _signum(types: Types, x: Expr) -> Expr:
    zero, one = (0.0, 1.0) if result_type(x, types).is_float else (0, 1)
    return select(x > zero, as_expr(one), select(x < zero, as_expr(-one), as_expr(zero)))


def _sum_or_product(
    name: str, sign: str, numpy: Meaning, emit: Emit, slopes: tuple[Slope, Slope], spelling: Spelling
) -> Operation:
    return Operation(
        name,
        2,
        NUMBER,
        numpy,
        symbol=sign,
        slopes=slopes,
        code=Code(emit, code.integers(name)),
        in_vertex=InVertex("operator", name),
        cost=loop_cost(*_SIMPLE),
        spelling=spelling,
    )


def _extreme(name: str, numpy: Meaning, emit: Emit, slopes: tuple[Slope, Slope], spelling: Spelling) -> Operation:
    return Operation(
        name,
        2,
        NUMBER,
        numpy,
        slopes=slopes,
        code=Code(emit, code.extreme_integer(name)),
        in_vertex=InVertex("extreme", name),
        cost=loop_cost((3, 2), (4, 4), in_place=((3, 2), (4, 2))),
        spelling=spelling,
    )


OPERATIONS = (
    _sum_or_product("add", "+", np.add, code.add, (lambda x, y: ONE, lambda x, y: ONE), Spelling("add", "ADD", "Add")),
    _sum_or_product(
        "sub",
        "-",
        np.subtract,
        code.subtract,
        (lambda x, y: ONE, lambda x, y: MINUS_ONE),
        Spelling("sub", "SUBTRACT", "Sub"),
    ),
    _sum_or_product(
        "mul", "*", np.multiply, code.multiply, (lambda x, y: y, lambda x, y: x), Spelling("mul", "MULTIPLY", "Mul")
    ),
    Operation(
        "div",
        2,
        NUMBER,
        meaning.divide,
        symbol="/",
        slopes=(lambda x, y: simplified(1.0 / y), lambda x, y: -(x / y / y)),
        code=Code(code.divide, code.divide_integers),
        in_vertex=InVertex("operator", "div"),
        in_integer_vertex=_truncated_quotient,
        cost=loop_cost((10, 2), (21, 4), integer=(277, 1)),
        spelling=Spelling("div", "DIVIDE", "Divide"),
    ),
    Operation(
        "floordiv",
        2,
        WHOLE,
        meaning.floor_divide,
        code=Code(integer=code.floor_divide_integers),
        in_vertex=InVertex("operator", "floordiv"),
        cost=loop_cost((10, 2), (21, 4), integer=(277, 1)),
    ),
    Operation(
        "rem",
        2,
        NUMBER,
        meaning.remainder,
        expansion=_remainder,
        slopes=(lambda x, y: ONE, lambda x, y: -apply("trunc", x / y)),
        code=Code(math.remainder, code.remainder_integers, branches=True),
        in_vertex=InVertex("function", "rem"),
        slots=Slots(aux=9, source="§1.2 G: a quotient, its whole part, a product, a difference"),
        cost=loop_cost((10 + 2 * NATURAL, 2), (21 + 2 * NATURAL, 4), integer=(292, 1)),
        spelling=Spelling("rem", "REMAINDER", "Rem"),
    ),
    Operation(
        "pow",
        2,
        FLOAT,
        np.power,
        slopes=(_slope_by_base, _slope_by_exponent),
        code=Code(math.pow),
        in_vertex=InVertex("function", "pow"),
        slots=Slots(aux=312, source="§1.3 S"),
        cost=loop_cost((312, 1), (325, 1)),
        spelling=Spelling("pow", "POWER", "Pow"),
    ),
    Operation(
        "fma",
        3,
        FLOAT,
        meaning.fma,
        slopes=(lambda x, y, z: y, lambda x, y, z: x, lambda x, y, z: ONE),
        code=Code(code.fused),
        in_vertex=InVertex("function", "fma"),
        slots=Slots(aux=2, source="§1.2 G: a product and a sum; scalar code has no fused instruction"),
        cost=loop_cost((4, 2), (4, 4)),
    ),
    _extreme("max", np.maximum, code.larger, (_if_larger, _if_smaller), Spelling("max", "MAXIMUM", "Max")),
    _extreme("min", np.minimum, code.smaller, (_if_smaller, _if_larger), Spelling("min", "MINIMUM", "Min")),
    Operation(
        "clamp",
        3,
        NUMBER,
        lambda x, low, high: np.minimum(np.maximum(x, low), high),
        expansion=lambda types, x, low, high: apply("min", apply("max", x, low), high),
        cost=loop_cost((2, 2), (2, 4)),
        spelling=Spelling("clamp", "CLAMP", "Clamp"),
    ),
    Operation(
        "neg",
        1,
        NUMBER,
        np.negative,
        slopes=(lambda x: MINUS_ONE,),
        code=Code(code.negate, code.integers("neg")),
        in_vertex=InVertex("sign", "neg"),
        cost=loop_cost((2, 2), (2, 4), in_place=((3, 2), (3, 4))),
        spelling=Spelling("neg", "NEGATE", "Neg"),
    ),
    Operation(
        "abs",
        1,
        NUMBER,
        np.abs,
        slopes=(lambda x: select(x > 0.0, ONE, select(x < 0.0, MINUS_ONE, ZERO)),),
        code=Code(code.unary("fabs"), code.absolute_integer),
        in_vertex=InVertex("sign", "abs"),
        cost=loop_cost((2, 2), (2, 4)),
        spelling=Spelling("abs", "ABSOLUTE", "Abs"),
    ),
    Operation(
        "copysign",
        2,
        FLOAT,
        np.copysign,
        slopes=(lambda x, y: select(x.eq(0.0), ZERO, apply("copysign", x, y) / x), lambda x, y: ZERO),
        code=Code(code.copy_sign),
        in_vertex=InVertex("function", "copysign"),
        slots=Slots(aux=2, source="§1.2 G: bits of both, masked, and their union"),
        cost=loop_cost((4, 2), (4, 4)),
    ),
    Operation(
        "signum",
        1,
        NUMBER,
        meaning.signum,
        expansion=_signum,
        slopes=(lambda x: ZERO,),
        cost=loop_cost((5 + NATURAL, 2), (5 + NATURAL, 4)),
        spelling=Spelling("signum", "SIGNUM", "Signum"),
    ),
    Operation(
        "square",
        1,
        NUMBER,
        np.square,
        slopes=(lambda x: 2.0 * x,),
        code=Code(code.square, code.square_integer),
        in_vertex=lambda type_, x: x * x,
        cost=loop_cost((2, 2), (2, 4)),
        spelling=Spelling("square", "SQUARE", "Square"),
    ),
    Operation(
        "relu",
        1,
        NUMBER,
        lambda x: np.maximum(x, x.dtype.type(0)),
        slopes=(lambda x: select(x <= 0.0, ZERO, ONE),),
        code=Code(code.relu, code.relu_integer),
        in_vertex=lambda type_, x: apply("max", x, 0),
        cost=loop_cost((3, 2), (3, 4), in_place=((2, 2), (2, 4))),
        spelling=Spelling("relu", "RELU", "Relu"),
    ),
    Operation(
        "inv",
        1,
        FLOAT,
        lambda x: 1 / x,
        slopes=(lambda x: -apply("square", apply("inv", x)),),
        code=Code(code.inverse),
        in_vertex=lambda type_, x: 1.0 / x,
        cost=loop_cost((6, 2), (15, 4)),
        spelling=Spelling("inv", "INVERSE", "Inv"),
    ),
    Operation(
        "sqrt",
        1,
        FLOAT,
        np.sqrt,
        slopes=(lambda x: 0.5 * apply("rsqrt", x),),
        code=Code(code.unary("sqrt")),
        in_vertex=InVertex("function", "sqrt"),
        slots=Slots(aux=5, source="§1.3 D: 10 slots for 2 elements"),
        cost=loop_cost((10, 2), (23, 4), integer=(114, 1)),
        spelling=Spelling("sqrt", "SQRT", "Sqrt"),
    ),
    Operation(
        "rsqrt",
        1,
        FLOAT,
        lambda x: 1 / np.sqrt(x),
        slopes=(lambda x: -0.5 * apply("rsqrt", x) * apply("square", apply("rsqrt", x)),),
        code=Code(code.reciprocal_root),
        in_vertex=InVertex("function", "rsqrt"),
        slots=Slots(aux=4, source="§1.3 D: 8 slots for 2 elements"),
        cost=loop_cost((8, 2), (19, 4)),
        spelling=Spelling("rsqrt", "RSQRT", "Rsqrt"),
    ),
    Operation(
        "cbrt",
        1,
        FLOAT,
        np.cbrt,
        expansion=_cbrt,
        slopes=(lambda x: (1.0 / 3.0) * apply("inv", apply("square", apply("cbrt", x))),),
        slots=Slots(aux=14, source="§1.3 S: 27 slots for 2 elements"),
        cost=loop_cost((27 + NATURAL, 2), (17 + NATURAL, 4)),
        spelling=Spelling("cbrt", "CBRT", "Cbrt"),
    ),
    Operation(
        "hypot",
        2,
        FLOAT,
        np.hypot,
        expansion=_hypot,
        slopes=(lambda x, y: x / apply("hypot", x, y), lambda x, y: y / apply("hypot", x, y)),
        cost=loop_cost((34, 2), (67, 4)),
    ),
    Operation(
        "variance_to_inv_std_dev",
        2,
        FLOAT,
        lambda v, e: 1 / np.sqrt(v + e),
        expansion=lambda types, v, e: apply("rsqrt", v + e),
        cost=loop_cost((10, 2), (21, 4)),
        spelling=Spelling("variance_to_inv_std_dev", "VARIANCE_TO_INV_STD_DEV", "VarianceToInvStdDev"),
    ),
    Operation(
        "inv_std_dev_to_variance",
        2,
        FLOAT,
        lambda s, e: 1 / np.square(s) - e,
        expansion=lambda types, s, e: apply("inv", apply("square", s)) - e,
        cost=loop_cost((10, 2), (21, 4)),
        spelling=Spelling("inv_std_dev_to_variance", "INV_STD_DEV_TO_VARIANCE", "InvStdDevToVariance"),
    ),
)
"""Operations of this module."""
