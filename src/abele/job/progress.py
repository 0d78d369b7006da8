"""Progress of this process, for a watcher of several processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

PROGRAM = "program"
"""The phase of the program's own code."""
ENDED, FAILED = "ended", "failed"
"""Ends of programs: as they should, or not."""


@dataclass(slots=True)
class Progress:
    """Progress of a process in its program.

    Attributes:
        runs: Runs of programs that it has begun.
        exchanges: Messages between ranks, and questions to all, that it has begun.
        changes: Number of changes of anything here; a number that stands still says that nothing was begun or ended.
        phase: Phase, such as ``compile`` or ``run``; ``program`` in the program's own code.
        outcome: End of the program; empty before.
        step: The program step of the last exchange.
        waits_for: Ranks that it waits for in that step; empty while it computes.
        since: Begin of the wait, by the monotonic clock.
        listener: Called before the process may be unable to tell anything for a while.
    """

    runs: int = 0
    exchanges: int = 0
    changes: int = 0
    phase: str = PROGRAM
    outcome: str = ""
    step: str = ""
    waits_for: tuple[int, ...] = ()
    since: float = 0.0
    listener: Callable[[], None] | None = None

    def begin_run(self) -> str:
        """A run begins; gives the phase to go back to with :meth:`end_run`."""
        before, self.phase = self.phase, "run"
        self.runs += 1
        self.changes += 1
        return before

    def end_run(self, phase: str) -> None:
        """A run is over."""
        self.phase = phase
        self.changes += 1

    def meet(self, step: str, others: tuple[int, ...]) -> None:
        """Others are needed from here on."""
        self.exchanges += 1
        self.changes += 1
        self.step, self.since = step, time.monotonic()
        self.waits_for = others

    def met(self) -> None:
        """They were there."""
        self.waits_for = ()
        self.changes += 1

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """The process is in this phase inside."""
        before, self.phase = self.phase, phase
        self.changes += 1
        try:
            yield
        finally:
            self.phase = before
            self.changes += 1

    @contextmanager
    def joining(self, step: str, others: tuple[int, ...]) -> Iterator[None]:
        """Note a wait for others inside, during a call in which no thread of this process can report."""
        self.meet(step, others)
        if self.listener is not None:
            self.listener()
        try:
            yield
        finally:
            self.met()

    def come_to_end(self, outcome: str) -> None:
        """Note the end of the program; the process goes on."""
        self.outcome = outcome
        self.changes += 1
        if self.listener is not None:
            self.listener()

    def told(self) -> dict[str, Any]:
        """Progress as plain data for others; waiting in seconds."""
        waits_for = self.waits_for
        return {
            "runs": self.runs,
            "exchanges": self.exchanges,
            "phase": self.phase,
            "outcome": self.outcome,
            "step": self.step,
            "waits_for": list(waits_for),
            "waited": time.monotonic() - self.since if waits_for else 0.0,
        }


PROGRESS = Progress()
"""That of this process."""
