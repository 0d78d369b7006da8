"""How many slots straight-line code takes: list scheduling of its operations on two pipes."""

from __future__ import annotations

from dataclasses import dataclass, field

from abele.codelet.slots import BUNDLE_BYTES, INSTRUCTION_BYTES, Cost


@dataclass
class Schedule:
    """Operations placed so far; each starts as soon as what it needs is there and its pipe is free.

    Attributes:
        length: Slots taken.
    """

    length: int = 0
    _taken: dict[str, set[int]] = field(default_factory=lambda: {"main": set(), "aux": set()})
    _instructions: dict[int, int] = field(default_factory=dict)

    def place(self, cost: Cost, after: int = 0, *, aux_first: bool = False) -> int:
        """Place an operation that needs results of slot ``after``; returns the slot from which its result is there."""
        parts = [("main", cost.main), ("aux", cost.aux)]
        for pipe, count in reversed(parts) if aux_first else parts:
            after = self._run(pipe, after, count)
        return after

    def _run(self, pipe: str, first: int, count: int) -> int:
        if not count:
            return first
        taken = self._taken[pipe]
        while any(slot in taken for slot in range(first, first + count)):
            first += 1
        end = first + count
        taken.update(range(first, end))
        self._instructions[first] = self._instructions.get(first, 0) + 1
        self.length = max(self.length, end)
        return end

    @property
    def code_bytes(self) -> int:
        """Size of the code: 4 bytes an instruction, 8 a bundle of two; a long operation is one instruction, a call."""
        return sum(BUNDLE_BYTES if n > 1 else INSTRUCTION_BYTES for n in self._instructions.values())
