"""Costs of instructions in a worker's issue slots: the one table that counting goes by.

A worker has two pipes: main (memory, integers, control) and auxiliary (floating point). Workers take turns, six cycles
apart, so results are there when the next instruction issues and every latency is one slot. Code is scalar, as the IPU's
C++ compiler makes it from scalar source, and issues one instruction per slot
(:mod:`~abele.codelet.costs`).

Sources are sections of the machine reference; confidence: S stated, D derived, G guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from abele.errors import CodeletError
from abele.expr import FUNCTIONS, Slots
from abele.llvm import ir as ll
from abele.llvm.emit import I64, Value, constant

MAIN = Slots(main=1, source="§1.2 S: memory and integers are on the main pipe, one instruction each")
AUX = Slots(aux=1, source="§1.2 S: floating point is on the auxiliary pipe, one instruction each")

LOAD = MAIN
STORE = MAIN
STORE_HALF = Slots(
    main=3, source="§6 G: no stores under 32 bits; load the other half, merge, store; three by the f16 triad"
)
STORE_BYTE = Slots(main=4, source="§6 G: no stores under 32 bits; load, two to merge, store")
BRANCH = MAIN
LEAVE = MAIN
FLOAT_COMPARE = Slots(main=1, aux=1, source="§1.2 D: compare, then a move to the main pipe", first="aux")
SELECT = Slots(main=2, source="§1.2 G: a branch and a move")
INT_TO_FLOAT = Slots(main=1, aux=1, source="§1.2 D: a move to the other registers, then a conversion")
FLOAT_TO_INT = Slots(main=1, aux=1, source="§1.2 D: a conversion, then a move", first="aux")
FLOAT_TO_FLOAT = AUX
PRINT = Slots(main=400, source="§1.2 G: formats text and hands it to the host")
RANDOM = Slots(aux=1, source="§1.4 S: an instruction of the hardware generator, which fills a floating-point register")
MOVE = Slots(main=1, source="§1.2 D: from a floating-point register to one for integers")
DIVIDE = Slots(main=277, source="§1.3 S: integer divide")
REMAINDER = Slots(main=292, source="§1.3 S: integer remainder")
FLOAT_DIVIDE = Slots(aux=5, source="§1.3 D: 10 slots for 2 elements")


def of_function(name: str) -> Slots:
    """Slots of a function of the language.

    Raises:
        CodeletError: Its entry in the table of operations does not say.
    """
    found = RANDOM if name == "random_u32" else FUNCTIONS[name].slots
    if found is None:
        raise CodeletError(
            f"the issue slots of {name} are not known", remedy="give slots=Slots(...) in its entry of abele.expr.TABLE"
        )
    return found


def of_store(bits: int) -> Slots:
    """Slots of storing an element of ``bits`` bits."""
    if bits >= 32:
        return STORE
    return STORE_HALF if bits == 16 else STORE_BYTE


LOOP_SETUP = 2
"""Slots to start a loop: a test that it runs at all, and the count. Source: §1.2 D."""
LOOP_STEP = MAIN
"""Stepping the index of a loop, once per iteration, where loads and stores do not step their addresses themselves.

They do (``ld32step``, ``st32step``) where the loop touches each row at one place per iteration. Where it touches one at
several, as a stencil does, they share an index, and that takes an instruction; so does an index that is computed with.
Counting down and branching (``brnzdec``) is one more instruction, the last of an iteration. Source: §1.1 S for the
instructions; §7.1 D: the naive STREAM triad, 3,726 GB/s on 1,216 tiles at 1.6 GHz, takes 6.3 slots per element, where
two loads, product, sum, store and branch give 6. The zero-overhead ``rpt`` would give 5.
"""
LOW_BITS = 20
"""Bits of a constant that one instruction sets, the rest being zero; another sets those above. Source: §1.2 S, of the 4
bytes of an instruction; the split is D from published assembly (``setzi``, ``or``)."""


def of_constant(word: int) -> Slots:
    """Slots that make a floating-point constant of the bits ``word``, once per stretch.

    Zero has a register of its own. Others are made where they are used: there are eight registers, and a compiler
    makes what is as cheap as a move again instead of keeping it. Source: §1.2 S for the registers; §7.1 D: an
    iteration of Monte-Carlo pi takes 15 slots, two of them for its constants.
    """
    low, high = word & ((1 << LOW_BITS) - 1), word >> LOW_BITS
    return Slots(aux=bool(low) + bool(high))


ENTRY_SLOTS = 6
"""Slots around the body of a vertex: its state pointer, a stack frame, the exit. Source: §1.5 G; the least that the
prologues of library vertices, 15 to 60 with their own set-up, leave over."""
POINTER_SLOTS = 1
"""Slots to load the pointer of a field. Source: §1.2 D: one load."""
INSTRUCTION_BYTES = 4
BUNDLE_BYTES = 8
"""Source: §1.2 S."""


@dataclass(frozen=True)
class Overhead:
    """Cost of a kind of vertex beyond the slots of its code.

    Attributes:
        entry: Slots to enter and leave.
        cycles_per_slot: Factor from slots to the unit that its cost is in; 1 where that is slots.
        around: Cycles around all workers.
    """

    entry: int
    cycles_per_slot: int = 1
    around: int = 0

    def cost(self, b: ll.IRBuilder, slots: Value) -> Any:
        """Code of the cost of a vertex whose longest worker takes ``slots``."""
        total = b.mul(b.add(slots, constant(I64, self.entry)), constant(I64, self.cycles_per_slot))
        return b.add(total, constant(I64, self.around))


VERTEX = Overhead(ENTRY_SLOTS)
MULTI_VERTEX = Overhead(ENTRY_SLOTS, cycles_per_slot=6, around=11)
"""Tile cycles: workers take turns six cycles apart (§1.2 S); the supervisor starts them (§1.5 S)."""
SUPERVISOR = Overhead(ENTRY_SLOTS, cycles_per_slot=6)
"""Tile cycles: the supervisor stalls for six cycles on branches and on the use of loads (§1.2 S); taken for all of its
instructions (G)."""
