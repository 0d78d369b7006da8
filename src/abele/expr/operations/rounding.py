"""To whole numbers: down, up, towards zero, to the nearest."""

from __future__ import annotations

import numpy as np

from abele.expr import numpy_meaning as meaning
from abele.expr.nodes import Const, Expr, apply, select
from abele.expr.operation import FLOAT, Code, InVertex, Operation, Slots, Spelling, Types, loop_cost
from abele.expr.operations.arithmetic import NATURAL
from abele.llvm import arithmetic as code

_FLAT = (lambda x: Const(0.0),)
_SLOTS = Slots(aux=1, source="§1.3 D: 2 slots for 2 elements")
_COST = loop_cost((2 + NATURAL, 2), (2 + NATURAL, 4))


def _trunc(types: Types, x: Expr) -> Expr:
    return select(x < 0.0, apply("ceil", x), apply("floor", x))


def _round_half_away(types: Types, x: Expr) -> Expr:
    return select(x < 0.0, apply("ceil", x - 0.5), apply("floor", x + 0.5))


OPERATIONS = (
    Operation(
        "floor",
        1,
        FLOAT,
        np.floor,
        slopes=_FLAT,
        code=Code(code.unary("floor")),
        in_vertex=InVertex("function", "floor"),
        slots=_SLOTS,
        cost=_COST,
        spelling=Spelling("floor", "FLOOR", "Floor"),
    ),
    Operation(
        "ceil",
        1,
        FLOAT,
        np.ceil,
        slopes=_FLAT,
        code=Code(code.unary("ceil")),
        in_vertex=InVertex("function", "ceil"),
        slots=_SLOTS,
        cost=_COST,
        spelling=Spelling("ceil", "CEIL", "Ceil"),
    ),
    Operation(
        "round",
        1,
        FLOAT,
        np.rint,
        slopes=_FLAT,
        code=Code(code.unary("rint")),
        in_vertex=InVertex("function", "rint"),
        slots=_SLOTS,
        cost=_COST,
        spelling=Spelling("nearbyint", "NEARBY_INT", "NearbyInt"),
    ),
    Operation(
        "trunc",
        1,
        FLOAT,
        np.trunc,
        expansion=_trunc,
        slopes=_FLAT,
        cost=_COST,
        spelling=Spelling("trunc", "TRUNC", "Trunc"),
    ),
    Operation(
        "round_half_away",
        1,
        FLOAT,
        meaning.round_half_away,
        expansion=_round_half_away,
        slopes=_FLAT,
        cost=_COST,
        spelling=Spelling("round", "ROUND", "Round"),
    ),
)
"""Operations of this module. ``round`` rounds halves to even, and is ``nearbyint`` in popops, whose ``round`` rounds
them away from zero."""
