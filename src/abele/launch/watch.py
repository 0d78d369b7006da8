"""Progress of all ranks of a job: the last messages of each, and the ranks that are lost.

Times are those that ranks tell by their own clocks, so a launcher that was held up itself accuses nobody.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from abele.errors import ProgramRuntimeError, RankDisagreementError, RankLostError
from abele.job.progress import ENDED, FAILED
from abele.words import counted, visible

_PART = 0.7
"""Part of the time allowed after which a rank is given up; the rest is for telling and ending."""
_GONE_SECONDS = 1.0
"""Seconds that a rank waits for an ended one before that counts as gone: their messages may lag by less."""
_MOST_SHOWN = 200
_SAME_CALLS = "let all ranks make the same calls in the same order"


@dataclass(slots=True)
class RankView:
    """State of a rank as far as the launcher knows it.

    Attributes:
        rank: Its number.
        host: Host that it runs on.
        beat: Last message of its heartbeat.
        last_line: Last line that it printed.
        code: Exit status of its process, as ``subprocess`` has it; None while it runs.
        unheard: Seconds since anything was heard of its keeper.
    """

    rank: int
    host: str = ""
    beat: Mapping[str, Any] = field(default_factory=dict)
    last_line: str = ""
    code: int | None = None
    unheard: float = 0.0

    @property
    def phase(self) -> str:
        """Phase of the program that it is in."""
        return str(self.beat.get("phase", "start"))

    @property
    def status(self) -> int:
        """Exit status of its process, or the one that it is about to have; 0 before, and for a good end."""
        if self.code is None and self.beat.get("outcome") == FAILED:
            return int(self.beat.get("status", 1))
        return self.code or 0

    @property
    def is_over(self) -> bool:
        """True if its program has come to its end."""
        return self.code == 0 or self.beat.get("outcome") == ENDED

    @property
    def meetings(self) -> int:
        """Number of its exchanges with other ranks, the one that it waits for among them."""
        return int(self.beat.get("exchanges", 0))

    @property
    def waits_for(self) -> tuple[int, ...]:
        """Ranks that it waits for."""
        return () if self.is_over else tuple(self.beat.get("waits_for", ()))

    @property
    def waited(self) -> float:
        """Seconds that it has waited for them."""
        return float(self.beat.get("waited", 0.0))

    @property
    def idle(self) -> float:
        """Seconds in which it came no further."""
        return float(self.beat.get("idle", 0.0))

    @property
    def step(self) -> str:
        """The program step of its last exchange."""
        return str(self.beat.get("step", ""))

    def whereabouts(self) -> str:
        """Place of the rank in the program, in words."""
        parts = []
        if self.step:
            parts.append(f"{'step' if self.waits_for else 'after step'} {self.step!r}")
        if runs := self.beat.get("runs"):
            parts.append(f"run {runs}")
        parts.append({"program": "the program's own code"}.get(self.phase, self.phase))
        if place := self.beat.get("place"):
            parts.append(place)
        if self.host:
            parts.append(f"host {self.host}")
        return " · ".join(visible(part) for part in parts)

    def printed(self) -> str:
        """The last line it printed, in words."""
        line = visible(self.last_line.strip())
        shown = line if len(line) <= _MOST_SHOWN else line[:_MOST_SHOWN] + "…"
        return f"the last line it printed: {shown}" if shown else "it printed nothing"


@dataclass(frozen=True, slots=True)
class Loss:
    """Why a job is to be ended.

    Attributes:
        kind: The kind of error.
        view: The rank that is lost; None where ranks wait for each other.
        message: Message for the user.
        at: Place in the program.
        remedy: Advice to the user.
    """

    kind: type[ProgramRuntimeError]
    view: RankView | None
    message: str
    at: str
    remedy: str | None = None

    def error(self) -> ProgramRuntimeError:
        """The error, with what the rank has printed by now."""
        because = None if self.view is None else self.view.printed()
        return self.kind(self.message, at=self.at, because=because, remedy=self.remedy)


def lost(ranks: Sequence[RankView], timeout_seconds: float) -> Loss | None:
    """Why the job is to be ended, if it is: the first reason that holds.

    Args:
        ranks: All ranks.
        timeout_seconds: Within which a job is to be ended that a rank holds up; 0 for never.
    """
    return next(_reasons(ranks, timeout_seconds), None)


def _reasons(ranks: Sequence[RankView], timeout_seconds: float) -> Iterator[Loss]:
    # Certain losses first: a bad end, and a rank that ended before a meeting that another waits at.
    yield from (_ended_badly(view) for view in ranks if view.status)
    for view, other in _waits(ranks, _GONE_SECONDS):
        # A message of an exchange that both have reached is on its way, however long a busy host takes for it.
        if ranks[other].is_over and ranks[other].meetings < view.meetings:
            yield _gone(ranks[other], view)
    if not timeout_seconds:
        return
    # The rest is a matter of patience: silence, no progress, and all ranks waiting for each other.
    patience = _PART * timeout_seconds
    for view in ranks:
        if view.code is None and view.unheard > patience:
            message = f"rank {view.rank} was not heard of for {view.unheard:.0f} s"
            yield Loss(RankLostError, view, message, view.whereabouts())
    for view, other in _waits(ranks, patience):
        late = ranks[other]
        if not late.waits_for and late.idle > patience:
            yield Loss(
                RankLostError,
                late,
                f"rank {other} has come no further for {late.idle:.0f} s, and rank {view.rank} waits for it",
                f"{late.whereabouts()}\nrank {view.rank}: {view.whereabouts()}",
                "look at what it does there; --timeout allows more time",
            )
    running = [view for view in ranks if view.code is None]
    if running and all(view.waits_for and view.waited > patience for view in running):
        yield Loss(
            RankDisagreementError,
            None,
            f"{counted(len(running), 'rank')} wait for each other at different steps",
            "\n".join(f"rank {view.rank}: {view.whereabouts()}" for view in running),
            _SAME_CALLS,
        )


def _waits(ranks: Sequence[RankView], seconds: float) -> Iterator[tuple[RankView, int]]:
    """Pairs of a rank that has waited for longer, and one of the ranks it waits for."""
    for view in ranks:
        if view.code is None and view.waited > seconds:
            yield from ((view, other) for other in view.waits_for if other < len(ranks))


def _ended_badly(view: RankView) -> Loss:
    code = view.status
    if code < 0:
        remedy = "the host's log says whether it ran out of memory" if -code == signal.SIGKILL else None
        message = f"rank {view.rank} was killed by {_signal_name(-code)}"
        return Loss(RankLostError, view, message, view.whereabouts(), remedy)
    said = view.beat.get("error")
    message = f"rank {view.rank} ended with exit status {code}" + (f": {visible(said)}" if said else "")
    return Loss(RankLostError, view, message, view.whereabouts())


def _gone(view: RankView, waiting: RankView) -> Loss:
    met = f"rank {view.rank} has met others {counted(view.meetings, 'time')}"
    return Loss(
        RankDisagreementError,
        view,
        f"rank {view.rank} has ended, and rank {waiting.rank} waits for it",
        f"rank {waiting.rank}: {waiting.whereabouts()}\n"
        f"{met}, this is number {waiting.meetings} of rank {waiting.rank}",
        _SAME_CALLS,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
