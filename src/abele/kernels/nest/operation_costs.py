"""Cost of element-wise operations on vectors: instructions and time of the divider, counted from their code.

Both are in the time of a multiply-add. A multiply-add, an addition or a comparison is one instruction; an exponential
has what its polynomial and its range reduction have, 14 on AVX-512. Divisions and square roots occupy the divider,
which works beside other instructions: of the two, the longer counts. The numbers are counted from the code that
:data:`abele.expr.operation.TABLE` emits, so that they follow it.

Example: a sigmoid has 17 instructions on AVX-512 and takes the divider for 5, which is 17 slots; a division is 5.

Approximate: a comparison with a choice of what it compared is one instruction, as x86's minimum and maximum. Else each
instruction of LLVM counts one. Of functions that training uses, code for AVX-512 has 0 to 15 % fewer and code for AVX2
about as many. Functions that work in f64 count too little: their vectors hold half the lanes. Some CPUs have pipes for
additions beside those for multiply-adds, and do both at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from abele.expr.nodes import Random
from abele.expr.operation import TABLE
from abele.kernels.nest.ir import Apply, Cast, Expr, Rounded
from abele.kernels.nest.loop_nest import Hash
from abele.llvm import ir as ll
from abele.llvm.emit import F32, VOID
from abele.llvm.host import per_cpu

DIVISION_COST, ROOT_COST = 5, 9
"""Multiply-adds of a vector that a core does while its divider divides one, or takes its square root.

Source: measured with independent operations in registers on a Zen 5: 4.9 and 8.8, for vectors of 8 lanes and of 16;
two multiply-adds beside each division take no longer than it does. Older CPUs were not measured; theirs are slower, as
far as is known, and a smaller bound asks less of a leaf.
"""
NARROWING_COST, DRAWING_COST = 4, 10
"""Cost of rounding a vector of results, or a single one, to 16 bits and back, and further of doing so at random."""
QUICK_HASH_COST, HASH_COST = 5, 15
"""Cost of a vector of random words: a quick one has five instructions, the other three times as many. Source:
:mod:`abele.llvm.random`."""
_LANES = 8
_FREE = ("bitcast ", "insertelement ", "extractelement ", "br ", "ret ", "phi ")
"""Instructions that make no vector operation: they rename values, or belong to a scalar."""
_DIVIDER = {"fdiv ": DIVISION_COST, 'call <8 x float> @"llvm.sqrt': ROOT_COST}
_COMPARISONS = ("fcmp ogt <8 x float> ", "fcmp olt <8 x float> ")
_CHOICE = "select <8 x i1> "


@dataclass(frozen=True, slots=True)
class VectorCost:
    """Work of a core on vectors, in multiply-adds.

    Attributes:
        instructions: Instructions, those that divide among them.
        dividing: Time of the divider, beside all instructions.
    """

    instructions: int = 0
    dividing: int = 0

    @property
    def slots(self) -> int:
        """The longer of both."""
        return max(self.instructions, self.dividing)

    def __add__(self, other: VectorCost) -> VectorCost:
        return VectorCost(self.instructions + other.instructions, self.dividing + other.dividing)

    def __mul__(self, times: int) -> VectorCost:
        return VectorCost(self.instructions * times, self.dividing * times)


@per_cpu
def operation_cost(op: str) -> VectorCost:
    """Work of the operation ``op`` on floats; one instruction of those that take none."""
    code = TABLE[op].code
    if code is None or code.f32 is None:
        return VectorCost(1)
    lanes = ll.VectorType(F32, _LANES)
    condition = ll.VectorType(ll.IntType(1), _LANES)
    args = [condition if op == "select" and n == 0 else lanes for n in range(TABLE[op].arity)]
    function = ll.Function(ll.Module("cost"), ll.FunctionType(VOID, args), "cost")
    code.f32(ll.IRBuilder(function.append_basic_block("entry")), *function.args)
    return _code_cost([str(line).strip() for block in function.blocks for line in block.instructions])


def expressions_cost(values: Iterable[Expr]) -> VectorCost:
    """Work of some expressions; parts that are equal are worked out once."""
    parts = {part for value in values for part in value.walk()}
    return sum(map(_cost, parts), VectorCost())


def _cost(part: Expr) -> VectorCost:
    """Work of an expression without that of its arguments."""
    match part:
        case Apply():
            return operation_cost(part.op)
        case Random():  # which of both it becomes is not known yet
            return VectorCost(QUICK_HASH_COST)
        case Hash():
            return VectorCost(QUICK_HASH_COST if part.quick else HASH_COST)
        case Rounded() if part.word is not None:
            return VectorCost(NARROWING_COST + DRAWING_COST)
        case Rounded() | Cast() if part.type.is_narrow:
            return VectorCost(NARROWING_COST)
    return VectorCost()


def _code_cost(lines: list[str]) -> VectorCost:
    """Work of lines of LLVM."""
    instructions = dividing = 0
    compared: dict[str, set[str]] = {}
    for line in lines:
        name, _, text = line.partition(" = ")
        if text.startswith(_COMPARISONS):
            compared[name] = set(text.partition("> ")[2].split(", "))
        dividing += next((cost for start, cost in _DIVIDER.items() if text.startswith(start)), 0)
        instructions += not (not text or text.startswith(_FREE) or _chooses_compared(text, compared))
    return VectorCost(max(1, instructions), dividing)


def _chooses_compared(text: str, compared: Mapping[str, set[str]]) -> bool:
    """True if a line chooses the smaller or larger of two values that a comparison has compared."""
    if not text.startswith(_CHOICE):
        return False
    condition, *chosen = text.removeprefix(_CHOICE).split(", <8 x float> ")
    return compared.get(condition) == set(chosen)
