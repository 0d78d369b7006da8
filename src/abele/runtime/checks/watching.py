"""Watching: programs lowered with checks of memory between their steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from abele.graph import Program, Steps, Tensor
from abele.graph.flow import While
from abele.runtime.lowering.lower import LoweringContext, ProgramLowering

Look = Callable[[], None]


class MemoryWatch(Protocol):
    """Check of memory between steps."""

    def load(self) -> None:
        """Memory has its contents at load."""

    def host_wrote(self, tensor: Tensor) -> None:
        """The host wrote a view."""

    def before(self, step: Program) -> Look | None:
        """Call to make before each execution of a step, or None."""

    def after(self, step: Program) -> Look | None:
        """Call to make after each execution of a step, or None."""

    def decision(self, step: Program) -> Look | None:
        """Call to make before a loop reads its predicate, or None."""


class WatchedLowering(ProgramLowering):
    """Lowers programs with calls back to checks around each step.

    Args:
        context: Context that the programs are lowered into.
        programs: All programs that will be lowered.
        watches: The checks, in the order in which they look.
    """

    def __init__(self, context: LoweringContext, programs: Sequence[Program], watches: Sequence[MemoryWatch]) -> None:
        super().__init__(context, programs)
        self._watches = tuple(watches)
        self._conditions: list[tuple[Program, Program]] = []

    def step(self, step: Program) -> None:
        """Lower one step, with the checks before and after it."""
        if isinstance(step, Steps) and len(step):
            self.sequence(step)
        else:
            self._look([w.before(step) for w in self._watches])
            loop = step.flow()
            if isinstance(loop, While):
                self._conditions.append((loop.condition, step))
            super().step(step)
            if isinstance(loop, While):
                self._conditions.pop()
            self._look([w.after(step) for w in self._watches])
        if self._conditions and self._conditions[-1][0] is step:
            self._look([w.decision(self._conditions[-1][1]) for w in self._watches])

    def sequence(self, steps: Steps) -> None:
        """Lower steps one by one, also those that only declare something."""
        for step in steps:
            self.step(step)

    def _look(self, looks: Sequence[Look | None]) -> None:
        for look in looks:
            if look is not None:
                self.emitter.callback(self.context.callbacks.add(look))
