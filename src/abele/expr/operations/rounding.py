"""To whole numbers: down, up, towards zero, to the nearest."""

from __future__ import annotations

import numpy as np

from abele.expr import numpy_meaning as meaning
from abele.expr.nodes import Const, Expr, apply, select
from abele.expr.operation import FLOAT, Code, Expansion, InVertex, Meaning, Operation, Slots, Spelling, Types, loop_cost
from abele.expr.operations.arithmetic import NATURAL
from abele.llvm import arithmetic as code

_FLAT = (lambda x: Const(0.0),)
_SLOTS = Slots(aux=1, source="§1.3 D: 2 slots for 2 elements")
_COST = loop_cost((2 + NATURAL, 2), (2 + NATURAL, 4))


def _trunc(types: Types, x: Expr) -> Expr:
    return select(x < 0.0, apply("ceil", x), apply("floor", x))


def _round_half_away(types: Types, x: Expr) -> Expr:
    return select(x < 0.0, apply("ceil", x - 0.5), apply("floor", x + 0.5))


def _rounding(name: str, function: str, numpy: Meaning, spelling: Spelling) -> Operation:
    """One that the machine has, as a function of the vertex language and of LLVM."""
    return Operation(
        name,
        1,
        FLOAT,
        numpy,
        slopes=_FLAT,
        code=Code(code.unary(function)),
        in_vertex=InVertex("function", function),
        slots=_SLOTS,
        cost=_COST,
        spelling=spelling,
    )


def _by_sign(name: str, numpy: Meaning, expansion: Expansion, spelling: Spelling) -> Operation:
    """Operation made of the others, by the sign of its argument."""
    return Operation(name, 1, FLOAT, numpy, expansion=expansion, slopes=_FLAT, cost=_COST, spelling=spelling)


OPERATIONS = (
    _rounding("floor", "floor", np.floor, Spelling("floor", "FLOOR", "Floor")),
    _rounding("ceil", "ceil", np.ceil, Spelling("ceil", "CEIL", "Ceil")),
    _rounding("round", "rint", np.rint, Spelling("nearbyint", "NEARBY_INT", "NearbyInt")),
    _by_sign("trunc", np.trunc, _trunc, Spelling("trunc", "TRUNC", "Trunc")),
    _by_sign("round_half_away", meaning.round_half_away, _round_half_away, Spelling("round", "ROUND", "Round")),
)
"""Operations of this module. ``round`` rounds halves to even, and is ``nearbyint`` in popops, whose ``round`` rounds
them away from zero."""
