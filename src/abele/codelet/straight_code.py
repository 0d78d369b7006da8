"""Slots of straight-line code: one for each instruction, in the order of the source.

A worker could issue an instruction on each pipe at once. Compiled code hardly does: a blur with nine loads, eleven or
twelve arithmetic instructions and a store took 24 to 30 slots per vector on silicon, where pairs would leave 15. The
one pair that measurements show is at the end of a loop: the branch back is issued beside floating point that comes
right before it (a dot product takes four slots per element), and alone after anything on its own pipe (the STREAM
triad, which stores last, takes six). ``docs/decisions/0027-one-instruction-per-slot.md`` has the measurements, and what
else was tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from abele.codelet.slots import INSTRUCTION_BYTES
from abele.expr import Slots
from abele.machine.source import Cited, calibrated


def calibrations() -> Iterator[tuple[str, Cited]]:
    """Rule of bundles, with its measurements."""
    on = [f"blur: {variant}, 1 IPU: {of}" for variant in ("half4", "float2", "float") for of in ("compute", "step")]
    text = "a blur takes 24 to 30 slots per vector, one for each instruction; a dot product's branch is beside its sum"
    cited = calibrated(1, text, on=(*on, "matvec: compute, codelets as counted"))
    yield "codelet.straight_code: instructions per slot", cited


@dataclass
class StraightCode:
    """Instructions of straight-line code.

    Attributes:
        branches: True if a loop's branch back ends it.
        num_instructions: Instructions, the branch not among them; a long operation is one, a call.
    """

    branches: bool = False
    num_instructions: int = 0
    _slots: int = 0
    _last: str = "main"

    def place(self, cost: Slots) -> None:
        """Add an operation. Of one that uses both pipes, the part on the pipe named in ``cost.first`` comes first."""
        parts = [("main", cost.main), ("aux", cost.aux)]
        for pipe, slots in parts if cost.first == "main" else reversed(parts):
            if slots:
                self._slots += slots
                self.num_instructions += 1
                self._last = pipe

    def step(self, cost: Slots) -> None:
        """Add slots that may stand anywhere in the code, such as the step of an index: the last instruction stays the
        last.
        """
        last = self._last
        self.place(cost)
        self._last = last

    @property
    def length(self) -> int:
        """Slots from the first instruction to the last."""
        return self._slots + (self.branches and self._last != "aux")

    @property
    def code_bytes(self) -> int:
        """Size of the code; a bundle is as long as its two instructions."""
        return (self.num_instructions + self.branches) * INSTRUCTION_BYTES
