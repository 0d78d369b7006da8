"""Floating-point behaviour: what the programs of an engine may switch on, and what is on now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from abele.graph import LibraryCall, Program, SetFloatingPointBehaviour, Tensor
from abele.runtime.control.emitter import Emitter
from abele.runtime.memory.host_memory import address_of, aligned_block

INVALID, DIVIDE_BY_ZERO, OVERFLOW, STOCHASTIC, SATURATING = 1, 2, 4, 8, 16
CHECKS = INVALID | DIVIDE_BY_ZERO | OVERFLOW
ROUNDING = STOCHASTIC | SATURATING
BITS = {
    "invalid": INVALID,
    "divide_by_zero": DIVIDE_BY_ZERO,
    "overflow": OVERFLOW,
    "stochastic_rounding": STOCHASTIC,
}


class Behaviour:
    """The mode of all tiles, as bits of one word that the running program reads and writes.

    All but ``initial`` is off when a program is loaded, and what a program switches on stays on for those that run
    after it. Programs that switch nothing on cost nothing.

    Args:
        nodes: All steps of the programs.
        initial: Bits that are on when a program is loaded.

    Attributes:
        possible: Bits that are on at first, or that some step switches on.
    """

    def __init__(self, nodes: Iterable[Program] = (), initial: int = 0) -> None:
        switches = [n for n in nodes if isinstance(n, SetFloatingPointBehaviour)]
        self._initial = self.possible = initial
        for switch in switches:
            self.possible |= bits_of(switch)[1]
        self._words = aligned_block(8).view(np.int64)

    @property
    def address(self) -> int:
        """Where the word is."""
        return address_of(self._words)

    @property
    def present(self) -> int:
        """Bits that are on now."""
        return int(self._words[0])

    def reset(self) -> None:
        """The program is loaded again."""
        self._words[:] = self._initial

    def concerns(self, steps: Sequence[Program]) -> int:
        """Bits that ask for the vertices of library calls, rather than host kernels, when they are on."""
        bits = self.possible & CHECKS
        if self.possible & ROUNDING and any(map(_stores_narrow, steps)):
            bits |= self.possible & ROUNDING
        return bits

    def branch(self, emitter: Emitter, bits: int, target: int) -> None:
        """Go to ``target`` when one of ``bits`` is on."""
        emitter.branch(self.address, bits, True, target)


def bits_of(step: SetFloatingPointBehaviour) -> tuple[int, int]:
    """Bits that a step sets one way or the other, and those that it switches on."""
    switched = {BITS[name]: on for name, on in step.fields.items() if name in BITS}
    if "nan_on_overflow" in step.fields:
        switched[SATURATING] = not step.fields["nan_on_overflow"]
    return sum(switched), sum(bit for bit, on in switched.items() if on)


def _stores_narrow(step: Program) -> bool:
    outputs: tuple[Tensor, ...] = step.outputs if isinstance(step, LibraryCall) else ()
    return any(t.dtype.is_narrow for t in outputs)
