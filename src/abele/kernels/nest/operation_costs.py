"""Cost of element-wise operations, in vector operations: what their code has of instructions.

A multiply-add, an addition or a comparison costs 1. An exponential costs what its polynomial and its range reduction
have, 15 on AVX-512; a division what a vector divider keeps other operations waiting for. The numbers are counted from
the code that :data:`abele.expr.operation.TABLE` emits, so that they follow it.

Example: relu costs 2, the error function 39. LLVM may make fewer instructions of it: a maximum counts 4.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from abele.expr.nodes import Random
from abele.expr.operation import TABLE
from abele.kernels.nest.ir import Apply, Cast, Expr, Rounded
from abele.kernels.nest.loop_nest import Hash
from abele.llvm import ir as ll
from abele.llvm.emit import F32, VOID

DIVISION_COST = 10
"""Vector operations that a core does while its divider works on one vector of 32 bytes: five cycles, at two a cycle.

Source: an estimate, not measured here; vector dividers of AVX2 CPUs take 3 to 5 cycles, those of Haswell more.
"""
NARROWING_COST, DRAWING_COST = 4, 10
"""Cost of rounding a vector of results, or a single one, to 16 bits and back, and further of doing so at random."""
QUICK_HASH_COST, HASH_COST = 5, 15
"""Cost of a vector of random words: a quick one has five instructions, the other three times as many. Source:
:mod:`abele.llvm.random`."""
_LANES = 8
_FREE = ("bitcast ", "insertelement ", "extractelement ", "br ", "ret ", "phi ")
"""Instructions that make no vector operation: they rename values, or belong to a scalar."""
_SLOW = ("fdiv ", 'call <8 x float> @"llvm.sqrt')


@cache
def operation_cost(op: str) -> int:
    """Vector operations of the operation ``op`` on floats; 1 of those that take none."""
    code = TABLE[op].code
    if code is None or code.f32 is None:
        return 1
    lanes = ll.VectorType(F32, _LANES)
    condition = ll.VectorType(ll.IntType(1), _LANES)
    args = [condition if op == "select" and n == 0 else lanes for n in range(TABLE[op].arity)]
    function = ll.Function(ll.Module("cost"), ll.FunctionType(VOID, args), "cost")
    code.f32(ll.IRBuilder(function.append_basic_block("entry")), *function.args)
    texts = [str(line).partition(" = ")[2].strip() for block in function.blocks for line in block.instructions]
    return max(1, sum(_instruction_cost(text) for text in texts if text))


def expressions_cost(values: Iterable[Expr]) -> int:
    """Vector operations of some expressions; parts that are equal are worked out once."""
    return sum(map(_cost, {part for value in values for part in value.walk()}))


def _cost(part: Expr) -> int:
    """Vector operations of an expression without those of its arguments."""
    match part:
        case Apply():
            return operation_cost(part.op)
        case Random():  # which of both it becomes is not known yet
            return QUICK_HASH_COST
        case Hash():
            return QUICK_HASH_COST if part.quick else HASH_COST
        case Rounded() if part.word is not None:
            return NARROWING_COST + DRAWING_COST
        case Rounded() | Cast() if part.type.is_narrow:
            return NARROWING_COST
    return 0


def _instruction_cost(text: str) -> int:
    if text.startswith(_SLOW):
        return DIVISION_COST
    return int(not text.startswith(_FREE))
