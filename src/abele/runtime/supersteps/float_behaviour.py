"""Floating-point behaviour: switches of an engine's programs, and their present state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from abele.codelet.rounding import Rounding
from abele.graph import Copy, Execute, LibraryCall, Program, SetFloatingPointBehaviour, Steps, walk
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
        programs: All programs of the engine.
        initial: Bits that are on when a program is loaded.

    Attributes:
        possible: Bits that are on at first, or that some step switches on.
        certain: Bits that are on whenever something rounds: code for when they are off is not needed.
    """

    def __init__(self, programs: Sequence[Program] = (), initial: int = 0) -> None:
        nodes = [list(walk(program)) for program in programs]
        switches = [n for steps in nodes for n in steps if isinstance(n, SetFloatingPointBehaviour)]
        self._initial = self.possible = initial
        for switch in switches:
            self.possible |= bits_of(switch)[1]
        self.certain = self.possible
        for switch in switches:
            touched, on = bits_of(switch)
            self.certain &= ~touched | on
        for program, steps in zip(programs, nodes, strict=True):
            if any(isinstance(step, Execute | LibraryCall) for step in steps):
                self.certain &= initial | _switched_on_first(program)
        self._words = aligned_block(8).view(np.int64)

    @property
    def address(self) -> int:
        """Address of the word."""
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
        return self.possible & CHECKS if any(isinstance(step, LibraryCall) for step in steps) else 0

    def roundings(self, steps: Sequence[Program]) -> int:
        """Bits of which it depends how results of host kernels for ``steps`` are rounded."""
        return self.possible & ROUNDING if any(map(_makes_narrow, steps)) else 0

    def ways(self, bits: int) -> Iterator[Rounding]:
        """Roundings that may be on while ``bits`` may change."""
        free = bits & ~self.certain
        for choice in range(ROUNDING + 1):
            if not choice & ~free:
                yield rounding_of(choice | bits & self.certain)

    def branch(self, emitter: Emitter, bits: int, target: int) -> None:
        """Go to ``target`` when one of ``bits`` is on."""
        emitter.branch(self.address, bits, True, target)


def bits_of(step: SetFloatingPointBehaviour) -> tuple[int, int]:
    """Bits that a step sets one way or the other, and bits switched on."""
    switched = {BITS[name]: on for name, on in step.fields.items() if name in BITS}
    if "nan_on_overflow" in step.fields:
        switched[SATURATING] = not step.fields["nan_on_overflow"]
    return sum(switched), sum(bit for bit, on in switched.items() if on)


def rounding_of(bits: int) -> Rounding:
    """Rounding of results while these bits are on."""
    return Rounding(bool(bits & STOCHASTIC), bool(bits & SATURATING))


def _makes_narrow(step: Program) -> bool:
    """True if a library call stores narrow floats, in results or on the way to them."""
    if not isinstance(step, LibraryCall):
        return False
    inside = () if step.kernel is None else step.kernel.types[step.kernel.num_inputs :]
    return any(t.is_narrow for t in (*(output.dtype for output in step.outputs), *inside))


def _switched_on_first(program: Program) -> int:
    """Bits that are switched on before a program does anything else than copy."""
    on = 0
    for step in _leading(program):
        if not isinstance(step, SetFloatingPointBehaviour | Copy):
            break
        if isinstance(step, SetFloatingPointBehaviour):
            on |= bits_of(step)[1]
    return on


def _leading(step: Program) -> Iterator[Program]:
    """The steps of sequences in sequences, in order."""
    if isinstance(step, Steps) and step.host_body is None:
        for inner in step:
            yield from _leading(inner)
    else:
        yield step
