"""Costs of the scalar C++ loops of linear algebra, in a worker's issue slots: the one place for all of these vertices.

PopLibs' vertices for it are compiled C++ without vector instructions, and their measured polynomials are not public.
So each loop is counted from what one round of it does on this machine. Compiled loops are taken at face value: no
zero-overhead loop, no vector, no pair of instructions in one bundle, which is within the factor of 2 to 8 over hand
assembly that is published for such codelets (machine reference §1.5).
"""

from __future__ import annotations

from dataclasses import dataclass

from abele.numerics import ElementType, f32

INDEX = 2
"""An index of two dimensions: an integer product and a sum. Source: §1.2, integers are scalar, one an instruction."""
LOAD = 1
"""One element. Source: §1.2, one memory instruction per bundle; latency is hidden by the other workers."""
CONVERT = 1
"""Half to single precision, or back. Source: §1.2, one instruction of the auxiliary pipe."""
MULTIPLY = 1
ADD = 1
"""Source: §1.2, floating point is scalar here, one an instruction."""
DIVIDE = 5
SQRT = 5
"""Source: §1.3, 10 slots for two elements of f32."""
LOOP = 3
"""A round of a loop: step, compare, branch. Source: §1.2, all three are instructions of the main pipe."""
STORE = {4: 1, 2: 4}
"""One element, by its bytes. Source: §1.2; §6, a sub-word store is a load, a merge and a store, 20 cycles per element
in C++ paths: ⌈20 / 6⌉ slots."""
ENTRY = 15
"""Entering and leaving a vertex. Source: §1.5, prologues take 15 to 60 slots."""
SUPERVISOR_CYCLES = 11
"""Starting all workers. Source: §1.5, basicOpSupervisorOverhead."""


@dataclass(frozen=True)
class LoopCosts:
    """Costs of loops over elements of one type.

    Attributes:
        dtype: Type of the elements; arithmetic is f32.
    """

    dtype: ElementType

    @property
    def load(self) -> int:
        """Slots of loading an element as f32, its address known."""
        return LOAD + (0 if self.dtype == f32 else CONVERT)

    @property
    def store(self) -> int:
        """Slots of storing an f32 as an element, its address known."""
        return STORE[self.dtype.bytes] + (0 if self.dtype == f32 else CONVERT)

    def multiply_add(self, matrices: int, vectors: int) -> int:
        """Slots of a round that loads elements by two indices and by one, and adds their product to a sum."""
        return matrices * INDEX + (matrices + vectors) * self.load + MULTIPLY + ADD + LOOP

    def update(self) -> int:
        """Slots of a round that adds a product with a number in a register to an element of a matrix."""
        return INDEX + 2 * self.load + MULTIPLY + ADD + self.store + LOOP
