"""Vertices that end before their time: by a call that ends a program, or stopped in an endless loop.

Native code notes which vertex did so, and where (:mod:`abele.codelet.early_exits`). Here the notes become errors, and
loops are asked to end: those of native code by a flag that they look at, those of plain Python by an exception in
their thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cached_property

from abele.codelet import CodeletDef, CompiledCodelet
from abele.codelet.early_exits import EndedVertex, end_text
from abele.errors import AbeleError, ApplicationRuntimeError
from abele.runtime.control.faults import Fault
from abele.runtime.control.leaf import Leaf
from abele.runtime.supersteps.interpreted import place_of, stop_interpreted
from abele.runtime.supersteps.placed_groups import PlacedGroup
from abele.words import counted

GRACE_SECONDS = 1.0
"""Seconds for a step to end by itself, before its loops are asked to."""
LOOK_SECONDS = 0.25
"""Seconds between two checks of a run."""


class VertexEnds:
    """Vertices of one image that ended before their time.

    Args:
        placed: The vertices in memory.
        compile: Gives the native code of a codelet.
    """

    def __init__(self, placed: Sequence[PlacedGroup], compile: Callable[[CodeletDef], CompiledCodelet]) -> None:
        self._placed = placed
        self._compile = compile
        self._asked = False

    @cached_property
    def _codes(self) -> tuple[CompiledCodelet, ...]:
        """The code of all vertices, each once: runs may be as short as a tenth of a millisecond."""
        return tuple(dict.fromkeys(self._compile(p.group.codelet) for p in self._placed))

    def ask(self, asked: bool) -> None:
        """Let loops end that need not, from now on or no longer."""
        if asked:
            stop_interpreted(self._placed)
        if asked or self._asked:
            for code in self._codes:
                code.ask_to_end(asked)
        self._asked = asked

    def error(self, fault: tuple[Fault, Leaf | None] | None) -> ApplicationRuntimeError | None:
        """The error of the first end in the last run, if there was one.

        Args:
            fault: The fault by which the run ended, which may be that end, and its leaf.
        """
        leaf = None if fault is None else fault[1]
        found: ApplicationRuntimeError | None = None
        for code in self._codes:
            ended = code.take_end()
            if ended is not None and found is None:
                own = [p for p in self._placed if self._compile(p.group.codelet) is code]
                ran = [
                    p for p in own if leaf is not None and leaf.args[: len(p.tables.addresses)] == p.tables.addresses
                ]
                found = _error((ran or own)[0], ended)
        return found


def _error(placed: PlacedGroup, ended: EndedVertex) -> ApplicationRuntimeError:
    place, waits = ended.place, ended.place.waits
    return ApplicationRuntimeError(
        f"vertex {placed.group.codelet.name} {end_text(place)}",
        at=f"{place.line}\n{place_of(placed, min(ended.vertex, placed.num - 1))}",
        because="the workers of a vertex run one after the other here: nobody else can write it" if waits else None,
        remedy="exchange data between workers by one compute set after another" if waits else None,
    )


class StepWatch:
    """Time that a run has been in one step.

    Args:
        limit_seconds: Seconds that a step may take before its loops are asked to end; 0: any time.
    """

    def __init__(self, limit_seconds: int) -> None:
        self._limit = limit_seconds
        self._since, self._step = time.monotonic(), -1
        self._stopped_at: float | None = None
        self.is_late = False

    def stop(self) -> None:
        """Note that a stop of the run was requested."""
        self._stopped_at = self._stopped_at or time.monotonic()

    def look(self, step: int) -> bool:
        """True if loops are to end now.

        Args:
            step: Number that changes with every step of the run.
        """
        now = time.monotonic()
        if step != self._step:
            self._since, self._step = now, step
        self.is_late = self.is_late or (self._limit > 0 and now - self._since > self._limit)
        return self.is_late or (self._stopped_at is not None and now - self._stopped_at > GRACE_SECONDS)

    def explain(self, error: AbeleError) -> None:
        """Name the limit in the error of a vertex that it stopped."""
        error.because = f"its step took more than {counted(self._limit, 'second')}: option target.hostSyncTimeout"
        error.remedy = "see that the loop ends, or raise the option; 0 is no limit"
