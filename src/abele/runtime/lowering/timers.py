"""Timers: a clock that advances by the modelled cycles of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from abele.arrays import Int64
from abele.compiler import Executable
from abele.compiler.timeline import parts_of
from abele.graph import CycleCount, CycleStamp, If, Program, Repeat, Switch, Tensor, walk
from abele.graph.elements import elements_of
from abele.runtime.control.bytecode import Opcode
from abele.runtime.control.emitter import Emitter
from abele.runtime.memory.host_memory import address_of, aligned_block
from abele.runtime.supersteps.copy_leaves import contiguous, copy_leaf, joined, paired

if TYPE_CHECKING:
    from abele.runtime.lowering.lower import ProgramLowering

READ_OUT_CYCLES = 45
"""Cycles that a raw reading of a timed program holds beyond the program's own: reading the counter twice.

Source: TessellateIPU, tile_interpreter_hw_primitives.py, which subtracts them from what it measured on a Bow IPU.
"""


class Clock:
    """Cycles since the program was loaded, as the model has them: one clock for all tiles.

    Every step that runs advances it by the cycles that the executable holds for it at the time the engine was made;
    where they depend on data, by what is assumed until a run counts them. Only engines whose programs have timers pay.

    Args:
        costs: Cycles of one execution of each step.
    """

    def __init__(self, costs: Mapping[Program, int] | None = None) -> None:
        self._costs = dict(costs or {})
        self._words = aligned_block(16).view(np.int64)

    @staticmethod
    def of(executable: Executable) -> Clock:
        """The clock of an executable; one that never moves where no program has a timer."""
        if not any(isinstance(s, CycleCount | CycleStamp) for p in executable.programs for s in walk(p)):
            return Clock()
        cycles = [sum(p.cycles for p in parts_of(s, executable.system)) for s in executable.plan]
        return Clock({step.node: cycles[step.superstep] for step in executable.steps})

    @property
    def address(self) -> int:
        """Address of the count."""
        return address_of(self._words)

    @property
    def zero(self) -> int:
        """Address of a word that stays 0."""
        return self.address + 8

    def reset(self) -> None:
        """The program is loaded again."""
        self._words[:] = 0

    def tick(self, step: Program, emitter: Emitter) -> None:
        """Advance by the cycles of a step itself, without those of inner steps."""
        self._advance(self._costs.get(step, 0), emitter)

    def tick_all(self, step: Program, emitter: Emitter) -> None:
        """Advance by the cycles of a step with all inner steps."""
        if self._costs:
            self._advance(self._cycles(step), emitter)

    def stand_in(self, steps: Program, last: Program) -> None:
        """Steps of the host, which cost nothing themselves, run in place of others: the last of them takes as long."""
        if self._costs:
            self._costs[last] = self._cycles(steps)

    def _advance(self, cycles: int, emitter: Emitter) -> None:
        if cycles:
            emitter.tally(self.address, cycles)

    def _cycles(self, step: Program) -> int:
        """Cycles of a step that host kernels carry out: branches and trips as the compiler assumes them."""
        own = self._costs.get(step, 0)
        match step:
            case Repeat():
                return step.count * self._cycles(step.body)
            case If():
                return own + self._cycles(step.then)
            case Switch():
                return own + self._cycles(step.children()[0])
            case _:
                return own + sum(map(self._cycles, step.children()))


def lower_count(lowering: ProgramLowering, step: CycleCount) -> None:
    """Body, and the clock's advance while it ran, with the cycles of reading the counter."""
    emitter, clock = lowering.emitter, lowering.context.clock
    words = aligned_block(16).view(np.int64)
    start, result = address_of(words), address_of(words) + 8
    emitter.keep(words)
    emitter.assembler.emit(Opcode.ELAPSED, start, clock.address, clock.zero, 0)
    lowering.step(step.body)
    emitter.assembler.emit(Opcode.ELAPSED, result, clock.address, start, READ_OUT_CYCLES)
    _store(lowering, words[1:], step.result)


def lower_stamp(lowering: ProgramLowering, step: CycleStamp) -> None:
    """Emit a step that stores the clock's count."""
    words = aligned_block(8).view(np.int64)
    clock = lowering.context.clock
    lowering.emitter.keep(words)
    lowering.emitter.assembler.emit(Opcode.ELAPSED, address_of(words), clock.address, clock.zero, 0)
    _store(lowering, words, step.result)


def _store(lowering: ProgramLowering, word: Int64, result: Tensor) -> None:
    """A word of thread 0 as u32[2] in every counter of every replica, low half first as the host has it."""
    arena = lowering.context.arena
    source = joined([contiguous(address_of(word), 8)] * (arena.replicas * (result.size // 2)))
    lowering.emitter.expect_barrier()
    lowering.emitter.phase((copy_leaf("cycles", paired(source, arena.all_pieces_of(result)), elements_of(result)),))


STEPS: dict[type[Program], Callable[[ProgramLowering, Any], None]] = {CycleCount: lower_count, CycleStamp: lower_stamp}
