"""Answers of a generator: tickets of requests, events of steps, completions.

A request of two completions, of 5 and 9 tokens, has one ticket; its events name the completion in ``index``, and the
last of each has a ``finish_reason``.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Literal

from abele.errors import AbeleError
from abele.llm.generation.requests import Request

FinishReason = Literal["stop", "length", "cancelled", "error"]
Status = Literal["waiting", "running", "finished", "cancelled", "error"]


@dataclass(frozen=True)
class TokenLogprob:
    """Natural logarithm of a token's probability, before temperature and filters, and the most likely ones."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class StepCost:
    """Modelled time of one step on the device; zero where nothing is modelled."""

    cycles: int = 0
    seconds: float = 0.0

    def __add__(self, other: StepCost) -> StepCost:
        return StepCost(self.cycles + other.cycles, self.seconds + other.seconds)


class Ticket:
    """A request that was submitted.

    Attributes:
        id: Whole number, in the order of submission.
        request: The request.
        seed: Seed of its draws: the request's, or the one drawn for it.
        error: Cause of the status "error".
    """

    def __init__(self, number: int, request: Request, seed: int) -> None:
        self.id, self.request, self.seed = number, request, seed
        self.error: AbeleError | None = None
        self._cancelled = threading.Event()
        self._reasons: list[FinishReason] = []
        self._started = False

    def __repr__(self) -> str:
        return f"Ticket({self.id}, {self.status})"

    @property
    def status(self) -> Status:
        """State of the request: of all its completions together."""
        if len(self._reasons) < self.request.n:
            return "running" if self._started else "waiting"
        if "error" in self._reasons:
            return "error"
        return "cancelled" if "cancelled" in self._reasons else "finished"

    @property
    def is_cancelled(self) -> bool:
        """True after :meth:`cancel`, also before the next step sees it."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Request to give up, from any thread: the next step ends each completion with "cancelled"."""
        self._cancelled.set()

    def _start(self) -> None:
        self._started = True

    def _finish(self, reason: FinishReason, error: AbeleError | None = None) -> None:
        self._reasons.append(reason)
        self.error = self.error or error


@dataclass(frozen=True)
class Event:
    """News of one completion in one step.

    Attributes:
        ticket: The request.
        ids: New tokens, an end token included.
        text: New text: whole characters, and nothing that may begin a stop string.
        index: Completion, in 0 … n − 1.
        logprobs: Log-probability of each of ``ids``, where the request wants them.
        finish_reason: Reason for the end; None while it goes on.
        cost: Modelled time of the step that the tokens come from, shared with all others of the step.
        num_tokens: Tokens that this completion has so far.
    """

    ticket: Ticket
    ids: tuple[int, ...] = ()
    text: str = ""
    index: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    cost: StepCost = StepCost()
    num_tokens: int = 0

    @property
    def seconds(self) -> float:
        """Modelled seconds of the step."""
        return self.cost.seconds

    @property
    def cycles(self) -> int:
        """Modelled cycles of the step."""
        return self.cost.cycles


@dataclass
class Completion:
    """One continuation of a prompt, whole.

    Attributes:
        ids: Its tokens.
        text: Their text, without end tokens and stop strings.
        finish_reason: Reason for the end.
        logprobs: Log-probability of each token, where the request wants them.
        cost: Modelled time of all steps that it took part in.
        index: Completion of its request, in 0 … n − 1.
        score: Mean or penalised log-probability of a beam; None without beams.
    """

    ids: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: FinishReason | None = None
    logprobs: list[TokenLogprob] = field(default_factory=list)
    cost: StepCost = StepCost()
    index: int = 0
    score: float | None = None

    def add(self, event: Event) -> None:
        """This completion, longer by an event."""
        self.ids += event.ids
        self.text += event.text
        self.logprobs += event.logprobs
        self.finish_reason = event.finish_reason
        self.cost += event.cost
