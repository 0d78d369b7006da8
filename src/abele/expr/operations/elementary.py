"""Exponentials, logarithms, the circular functions and the error function."""

from __future__ import annotations

import math as math_

import numpy as np

from abele.expr import numpy_meaning as meaning
from abele.expr.nodes import Expr, apply, as_expr, select
from abele.expr.operation import FLOAT, Code, InVertex, Operation, Slots, Spelling, Types, loop_cost
from abele.expr.operations.arithmetic import NATURAL
from abele.llvm import math

EXP_START = (9 + 11, 33)
"""As UNARY_START, of the exponential. Source: machine reference §4.8."""

_ERF_SLOPE = 2.0 / math_.sqrt(math_.pi)
_ATAN = (1.0, -0.333327978849411, 0.19974404573440552, -0.13851478695869446, 0.07984963059425354)
_ASIN = (1.0, 0.1666678637266159, 0.0749453455209732, 0.0455390103161335, 0.02390936389565468, 0.042553599923849106)


def _softplus(types: Types, x: Expr) -> Expr:
    # The maximum with zero taken out keeps the exponential in range. What rounding 1 + it lost is put back, over its
    # size between 1 and 2, where a straight line is near enough to the quotient.
    power = apply("exp", -apply("abs", x))
    shifted = 1.0 + power
    return apply("log", shifted) + (power - (shifted - 1.0)) * (1.5 - 0.5 * shifted) + apply("relu", x)


def _log1p(types: Types, x: Expr) -> Expr:
    # The division repairs what rounding 1 + x lost: nothing at the pole, and no number at infinity.
    shifted = 1.0 + x
    lost = x - (shifted - 1.0)
    repaired = apply("log", shifted) + select(apply("abs", lost) > 0.0, lost / shifted, as_expr(0.0))
    return apply("copysign", repaired, x)


def _odd_polynomial(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    """x·(c0 + c1·x² + …): least-squares fits at Chebyshev nodes, errors below 1e-8 on their ranges."""
    square = apply("square", x)
    value: Expr = as_expr(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = value * square + c
    return x * value


def _atan2(types: Types, y: Expr, x: Expr) -> Expr:
    """The angle within an eighth of the circle, reduced to [0, tan π/8] by the addition theorem; then all of it."""
    size_x, size_y = apply("abs", x), apply("abs", y)
    larger, smaller = apply("max", size_x, size_y), apply("min", size_x, size_y)
    # The quotient of the two zeros is theirs, that of infinities one.
    ratio = select(larger.eq(smaller), select(larger > 0.0, as_expr(1.0), larger), smaller / larger)
    far = ratio > math_.tan(math_.pi / 8)
    reduced = select(far, (ratio - 1.0) / (ratio + 1.0), ratio)
    angle = select(far, as_expr(math_.pi / 4), as_expr(0.0)) + _odd_polynomial(reduced, _ATAN)
    angle = select(size_y > size_x, math_.pi / 2 - angle, angle)
    angle = select(apply("copysign", 1.0, x) < 0.0, math_.pi - angle, angle)
    return apply("copysign", angle, y)


def _inverse_of_squares(y: Expr, x: Expr) -> Expr:
    """1 / (x² + y²), at the origin 0 as in PyTorch."""
    total = x * x + y * y
    return select(total.eq(0.0), as_expr(0.0), 1.0 / total)


def _times_logarithm(factor: Expr, logarithm: Expr, x: Expr) -> Expr:
    """A factor times a logarithm of x; zero where the factor is, unless x is not a number."""
    return select(apply("and", factor.eq(0.0), x.eq(x)), as_expr(0.0), factor * logarithm)


def _logarithm(factor: Expr, logarithm: Expr, ended: Expr) -> Expr:
    """Its slope by the factor: that is zero where the factor is and the logarithm has ended, as in PyTorch."""
    return select(apply("and", factor.eq(0.0), ended), as_expr(0.0), logarithm)


def _asin(types: Types, x: Expr) -> Expr:
    size = apply("abs", x)
    near_one = apply("sqrt", (1.0 - size) * 0.5)
    inner = _odd_polynomial(select(size > 0.5, near_one, x), _ASIN)
    return select(size > 0.5, apply("copysign", math_.pi / 2 - 2.0 * inner, x), inner)


def _entr(types: Types, x: Expr) -> Expr:
    """-x · log x, zero at zero and -∞ below."""
    at_zero = select(x.eq(0.0), as_expr(0.0), select(x < 0.0, as_expr(-math_.inf), x))
    return select(x > 0.0, -x * apply("log", x), at_zero)


def _logit_slope(x: Expr) -> Expr:
    inside = apply("and", x >= 0.0, x <= 1.0)
    return select(inside, 1.0 / (x * (1.0 - x)), as_expr(math_.nan))


OPERATIONS = (
    Operation(
        "exp",
        1,
        FLOAT,
        np.exp,
        slopes=(lambda x: apply("exp", x),),
        code=Code(math.exp),
        in_vertex=InVertex("function", "exp"),
        slots=Slots(aux=3, source="§1.3 S: f32exp"),
        cost=loop_cost((6, 2), (4, 4), start=EXP_START),
        spelling=Spelling("exp", "EXPONENT", "Exp"),
    ),
    Operation(
        "exp2",
        1,
        FLOAT,
        np.exp2,
        expansion=lambda types, x: apply("exp", x * math_.log(2.0)),
        slopes=(lambda x: math_.log(2.0) * apply("exp2", x),),
        slots=Slots(aux=3, source="§1.3 S: 6 slots for 2 elements"),
        cost=loop_cost((6, 2), (4, 4)),
        spelling=Spelling("exp2", "EXPONENT2", "Exp2"),
    ),
    Operation(
        "expm1",
        1,
        FLOAT,
        np.expm1,
        slopes=(lambda x: apply("exp", x),),
        code=Code(math.expm1),
        in_vertex=InVertex("function", "expm1"),
        slots=Slots(aux=4, source="§1.3 S: that of exp, and a difference"),
        cost=loop_cost((12, 2), (12, 4)),
        spelling=Spelling("expm1", "EXPONENT_MINUS_ONE", "Expm1"),
    ),
    Operation(
        "log",
        1,
        FLOAT,
        np.log,
        slopes=(lambda x: 1.0 / x,),
        code=Code(math.log),
        in_vertex=InVertex("function", "log"),
        slots=Slots(aux=6, source="§1.3 S: f32log"),
        cost=loop_cost((12, 2), (4, 4), in_place=((14, 2), (6, 4))),
        spelling=Spelling("log", "LOGARITHM", "Log"),
    ),
    Operation(
        "log1p",
        1,
        FLOAT,
        np.log1p,
        expansion=_log1p,
        slopes=(lambda x: 1.0 / (1.0 + x),),
        slots=Slots(aux=9, source="§1.3 S: 18 slots for 2 elements"),
        cost=loop_cost((18 + NATURAL, 2), (18 + NATURAL, 4)),
        spelling=Spelling("log1p", "LOGARITHM_ONE_PLUS", "Log1p"),
    ),
    Operation(
        "xlogy",
        2,
        FLOAT,
        meaning.xlogy,
        expansion=lambda types, x, y: _times_logarithm(x, apply("log", y), y),
        slopes=(lambda x, y: _logarithm(x, apply("log", y), y <= 0.0), lambda x, y: x / y),
        cost=loop_cost((25, 2), (17, 4)),
    ),
    Operation(
        "xlog1py",
        2,
        FLOAT,
        meaning.xlog1py,
        expansion=lambda types, x, y: _times_logarithm(x, apply("log1p", y), y),
        slopes=(lambda x, y: _logarithm(x, apply("log1p", y), y <= -1.0), lambda x, y: x / (1.0 + y)),
        cost=loop_cost((35, 2), (35, 4)),
    ),
    Operation(
        "logit",
        1,
        FLOAT,
        meaning.logit,
        expansion=lambda types, x: apply("log", x / (1.0 - x)),
        slopes=(_logit_slope,),
        cost=loop_cost((25, 2), (28, 4)),
    ),
    Operation(
        "entr",
        1,
        FLOAT,
        meaning.entr,
        expansion=_entr,
        slopes=(lambda x: -1.0 - apply("log", x),),
        cost=loop_cost((25, 2), (17, 4)),
    ),
    Operation(
        "tanh",
        1,
        FLOAT,
        np.tanh,
        slopes=(lambda x: 1.0 - apply("square", apply("tanh", x)),),
        code=Code(math.tanh),
        in_vertex=InVertex("function", "tanh"),
        slots=Slots(aux=6, source="§1.3 D: 12 slots for 2 elements"),
        cost=loop_cost((12, 2), (4, 4), in_place=((10, 2), (2, 4))),
        spelling=Spelling("tanh", "TANH", "Tanh"),
    ),
    Operation(
        "sigmoid",
        1,
        FLOAT,
        meaning.sigmoid,
        slopes=(lambda x: apply("sigmoid", x) * (1.0 - apply("sigmoid", x)),),
        code=Code(math.sigmoid),
        in_vertex=InVertex("function", "sigmoid"),
        slots=Slots(aux=6, source="§1.3 D: 12 slots for 2 elements"),
        cost=loop_cost((12, 2), (6, 4), in_place=((10, 2), (4, 4))),
        spelling=Spelling("sigmoid", "SIGMOID", "Sigmoid"),
    ),
    Operation(
        "softplus",
        1,
        FLOAT,
        meaning.softplus,
        expansion=_softplus,
        # Not that of the expansion, whose parts have no slope at zero.
        slopes=(lambda x: apply("sigmoid", x),),
        slots=Slots(aux=10, source="§1.3 S: those of exp and log, and a sum"),
        cost=loop_cost((18 + NATURAL, 2), (18 + NATURAL, 4)),
        spelling=Spelling("softplus"),
    ),
    Operation(
        "erf",
        1,
        FLOAT,
        meaning.erf,
        slopes=(lambda x: _ERF_SLOPE * apply("exp", -apply("square", x)),),
        code=Code(math.erf),
        in_vertex=InVertex("function", "erf"),
        slots=Slots(aux=41, source="§1.3 S"),
        cost=loop_cost((41, 1), (13, 1)),
        spelling=Spelling("erf", "ERF", "Erf"),
    ),
    Operation(
        "gelu_erf",
        1,
        FLOAT,
        meaning.gelu_erf,
        expansion=lambda types, x: x * 0.5 * (1.0 + apply("erf", x * math_.sqrt(0.5))),
        cost=loop_cost((22, 1), (16, 1)),
        spelling=Spelling("gelu_erf", "GELU_ERF", "GeluErf"),
    ),
    Operation(
        "sin",
        1,
        FLOAT,
        np.sin,
        slopes=(lambda x: apply("cos", x),),
        code=Code(math.sin, branches=True),
        in_vertex=InVertex("function", "sin"),
        slots=Slots(aux=2300, source="§1.3 S"),
        cost=loop_cost((2300, 1), (25, 1)),
        spelling=Spelling("sin", "SIN", "Sin"),
    ),
    Operation(
        "cos",
        1,
        FLOAT,
        np.cos,
        slopes=(lambda x: -apply("sin", x),),
        code=Code(math.cos, branches=True),
        in_vertex=InVertex("function", "cos"),
        slots=Slots(aux=2300, source="§1.3 S"),
        cost=loop_cost((2300, 1), (25, 1)),
        spelling=Spelling("cos", "COS", "Cos"),
    ),
    Operation(
        "tan",
        1,
        FLOAT,
        np.tan,
        slopes=(lambda x: 1.0 + apply("square", apply("tan", x)),),
        code=Code(math.tan, branches=True),
        in_vertex=InVertex("function", "tan"),
        slots=Slots(aux=5100, source="§1.3 S"),
        cost=loop_cost((5100, 1), (5700, 1)),
        spelling=Spelling("tan", "TAN", "Tan"),
    ),
    Operation(
        "asin",
        1,
        FLOAT,
        np.arcsin,
        expansion=_asin,
        slopes=(lambda x: apply("rsqrt", 1.0 - apply("square", x)),),
        cost=loop_cost((102 + NATURAL, 1), (102 + NATURAL, 1)),
        spelling=Spelling("asin", "ASIN", "Asin"),
    ),
    Operation(
        "atan2",
        2,
        FLOAT,
        np.arctan2,
        expansion=_atan2,
        slopes=(lambda y, x: x * _inverse_of_squares(y, x), lambda y, x: -y * _inverse_of_squares(y, x)),
        slots=Slots(aux=136, source="§1.3 S: 272 slots for 2 elements"),
        cost=loop_cost((272, 2), (578, 4)),
        spelling=Spelling("atan2", "ATAN2", "Atan2"),
    ),
)
"""Operations of this module."""
