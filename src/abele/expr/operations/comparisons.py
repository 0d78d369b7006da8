"""Comparisons, tests of floats, and the choice between two values."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from abele.expr.nodes import Expr, apply, select
from abele.expr.operation import (
    ANY,
    FLOAT,
    NUMBER,
    Code,
    InVertex,
    Meaning,
    Operation,
    Spelling,
    loop_cost,
)
from abele.expr.operations.bits import truth
from abele.llvm import arithmetic as code

_COST = loop_cost((14, 4), (9, 4))


def _comparison(name: str, sign: str, kinds: frozenset[str], meaning: Meaning, spelling: Spelling) -> Operation:
    return Operation(
        name,
        2,
        kinds,
        meaning,
        gives_bool=True,
        symbol=sign,
        code=Code(code.compare(sign), code.compare_integers(sign)),
        in_vertex=InVertex("comparison", sign),
        cost=_COST,
        spelling=spelling,
    )


def _test(name: str, meaning: Meaning, condition: Callable[[Expr], Expr], spelling: Spelling) -> Operation:
    return Operation(
        name,
        1,
        FLOAT,
        meaning,
        gives_bool=True,
        expansion=lambda types, x: condition(x),
        cost=_COST,
        spelling=spelling,
    )


OPERATIONS = (
    _comparison("eq", "==", ANY, np.equal, Spelling("eq", "EQUAL", "Equal")),
    _comparison("ne", "!=", ANY, np.not_equal, Spelling("neq", "NOT_EQUAL", "NotEqual")),
    _comparison("lt", "<", NUMBER, np.less, Spelling("lt", "LESS_THAN", "Lt")),
    _comparison("le", "<=", NUMBER, np.less_equal, Spelling("lteq", "LESS_THAN_EQUAL", "Lte")),
    _comparison("gt", ">", NUMBER, np.greater, Spelling("gt", "GREATER_THAN", "Gt")),
    _comparison("ge", ">=", NUMBER, np.greater_equal, Spelling("gteq", "GREATER_THAN_EQUAL", "Gte")),
    _test(
        "is_finite", np.isfinite, lambda x: apply("abs", x) < math.inf, Spelling("is_finite", "IS_FINITE", "IsFinite")
    ),
    _test("is_inf", np.isinf, lambda x: apply("abs", x).eq(math.inf), Spelling("is_inf", "IS_INF", "IsInf")),
    _test("is_nan", np.isnan, lambda x: x.ne(x), Spelling("is_nan", "IS_NAN", "IsNaN")),
    Operation(
        "select",
        3,
        ANY,
        np.where,
        expansion=lambda types, c, then, other: select(truth(c, types), then, other),
        code=Code(code.choose, code.choose_integer),
        in_vertex=InVertex("choice", "select"),
        cost=loop_cost((5, 1), (5, 1)),
        spelling=Spelling("select", "SELECT", "Select", order=(2, 0, 1)),
    ),
)
"""Operations of this module. ``select`` takes its condition first, in popops last."""
