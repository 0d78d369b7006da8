"""Where this process is: what a watcher of several processes wants to know of each."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class Progress:
    """Where a process is in its program.

    Attributes:
        runs: Runs of programs that it has begun.
        exchanges: Messages between ranks, and questions to all, that it has begun.
        step: The program step of the last of them.
        waits_for: Ranks that it waits for in that step; empty while it computes.
        since: When it began to wait, by the monotonic clock.
    """

    runs: int = 0
    exchanges: int = 0
    step: str = ""
    waits_for: tuple[int, ...] = ()
    since: float = 0.0

    def begin_run(self) -> None:
        """A run begins."""
        self.runs += 1

    def meet(self, step: str, others: tuple[int, ...]) -> None:
        """Others are needed from here on."""
        self.exchanges += 1
        self.step, self.since = step, time.monotonic()
        self.waits_for = others

    def met(self) -> None:
        """They were there."""
        self.waits_for = ()

    def told(self) -> dict[str, Any]:
        """All of it as plain data; waiting as seconds."""
        found = asdict(self)
        found["waited"] = time.monotonic() - found.pop("since") if self.waits_for else 0.0
        return found


PROGRESS = Progress()
"""That of this process."""
