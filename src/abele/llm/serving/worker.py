"""The generator's thread, and the feeds that carry its tokens to the event loop.

One thread calls ``step`` as long as there is work. What a step made goes into the feed of each request, which holds a
bounded number of tokens; the loop is woken once per step. Nothing here waits for a client: a feed that is full gives
its request up, and a request that nobody wants any more is cancelled, so that its slot and pages are free at the next
step.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from abele.llm.generation.events import Event, StepCost, Ticket
from abele.llm.generation.requests import Request
from abele.llm.serving.limits import ServingLimits
from abele.llm.serving.problems import ApiError, broken, failed, full, stopping, timed_out, unread

_LOG = logging.getLogger("abele.serving")
_MOST_FAILURES = 3
"""Failed steps, one after the other, after which the generator counts as broken."""
_IDLE_SECONDS = 0.5
"""Longest sleep without work: a wake-up that was missed costs this much at most."""
_MEMORY_SHARE = 0.1
"""Weight of the newest request in the running mean of their seconds."""


class TextEngine(Protocol):
    """A generator as serving needs it."""

    @property
    def has_work(self) -> bool:
        """True while a sequence waits or runs."""
        ...

    @property
    def num_waiting(self) -> int:
        """Continuations without a slot."""
        ...

    @property
    def num_running(self) -> int:
        """Continuations with a slot."""
        ...

    def check(self, request: Request) -> None:
        """Nothing where a request can be served; ``RequestError`` elsewhere."""
        ...

    def submit(self, request: Request) -> Ticket:
        """A place in the queue; any thread may ask for one."""
        ...

    def step(self) -> list[Event]:
        """One round."""
        ...


class TokenFeed:
    """Events of one HTTP request, on their way from the worker's thread to the event loop.

    Args:
        loop: The loop that reads.
        most_tokens: Tokens that may wait.

    A request with several prompts has several tickets; events come with the number of their prompt.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, most_tokens: int) -> None:
        self.loop, self.tickets = loop, list[Ticket]()
        self.problem: ApiError | None = None
        self._most_tokens = most_tokens
        self._events = deque[tuple[int, Event]]()
        self._num_tokens = 0
        self._num_open = 0
        self._lock = threading.Lock()
        self._ready = asyncio.Event()

    def open(self, tickets: Sequence[Ticket]) -> None:
        """Await the events of these tickets."""
        self.tickets = list(tickets)
        self._num_open = sum(ticket.request.n for ticket in tickets)

    def put(self, prompt: int, event: Event) -> None:
        """Add an event, from the worker's thread."""
        with self._lock:
            self._num_open -= event.finish_reason is not None
            if self.problem is not None:
                return
            self._events.append((prompt, event))
            self._num_tokens += len(event.ids)
            too_many = self._num_tokens > self._most_tokens
        if too_many:
            self.give_up(unread(self._most_tokens))

    def give_up(self, problem: ApiError) -> None:
        """End the request, from any thread: its sequences are cancelled and what waits is dropped."""
        with self._lock:
            self.problem = self.problem or problem
            self._events.clear()
            self._num_tokens = 0
        for ticket in self.tickets:
            ticket.cancel()

    def wake(self) -> None:
        """Let the reader look; for the loop's own thread."""
        self._ready.set()

    async def take(self) -> list[tuple[int, Event]]:
        """Everything that has come, at least one event; nothing at the end.

        Raises:
            ApiError: The request was given up.
        """
        while True:
            self._ready.clear()
            with self._lock:
                if self.problem is not None:
                    raise self.problem
                if self._events or self._num_open <= 0:
                    taken = list(self._events)
                    self._events.clear()
                    self._num_tokens = 0
                    return taken
            await self._ready.wait()

    @property
    def is_open(self) -> bool:
        """True while sequences of it wait or run."""
        return self._num_open > 0


class WorkCounts:
    """Sums over all steps, for the metrics."""

    def __init__(self) -> None:
        self.steps = self.failed_steps = self.generated_tokens = 0
        self.step_seconds = 0.0
        self.modelled = StepCost()
        self.finished: dict[str, int] = {}

    def add(self, events: Sequence[Event], seconds: float) -> None:
        """One step."""
        self.steps += 1
        self.step_seconds += seconds
        # All that a step made shares its cost; what ended without a token has none.
        self.modelled += max((event.cost for event in events), key=lambda cost: cost.seconds, default=StepCost())
        for event in events:
            self.generated_tokens += len(event.ids)
            if event.finish_reason is not None:
                self.finished[event.finish_reason] = self.finished.get(event.finish_reason, 0) + 1


class GenerationWorker:
    """A generator and the thread that drives it.

    Args:
        engine: The generator.
        limits: Limits of the server.
    """

    def __init__(self, engine: TextEngine, limits: ServingLimits) -> None:
        self.engine, self.limits = engine, limits
        self.counts = WorkCounts()
        self.is_stopping = False
        self.broken: Exception | None = None
        self._feeds: dict[Ticket, tuple[TokenFeed, int]] = {}
        self._lock = threading.Lock()
        self._work = threading.Event()
        self._ended = False
        self._mean_seconds = 1.0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="abele serving", daemon=True)
        self._thread.start()

    def submit(self, requests: Sequence[Request]) -> TokenFeed:
        """The feed of some requests, all of which are queued or none.

        Raises:
            RequestError: One of them cannot be served.
            ApiError: The queue is full, or the server stops.
        """
        feed = TokenFeed(asyncio.get_running_loop(), self.limits.unread_tokens)
        for request in requests:
            self.engine.check(request)
        # The worker looks for feeds under the same lock: no event comes before its feed.
        with self._lock:
            if self.is_stopping:
                raise stopping()
            if self.broken is not None:
                raise broken()
            self._check_room(sum(request.n for request in requests))
            tickets = [self.engine.submit(request) for request in requests]
            feed.open(tickets)
            self._feeds.update({ticket: (feed, number) for number, ticket in enumerate(tickets)})
        self._work.set()
        return feed

    def release(self, feed: TokenFeed, seconds: float | None = None) -> None:
        """Let go of a feed whose request has ended; ``seconds`` are what it took where it was served whole."""
        with self._lock:
            for ticket in feed.tickets:
                self._feeds.pop(ticket, None)
        for ticket in feed.tickets:
            ticket.cancel()
        if seconds is not None:
            self._mean_seconds += _MEMORY_SHARE * (seconds - self._mean_seconds)
        self._work.set()

    @property
    def num_open(self) -> int:
        """Requests under way."""
        return len(self._feeds)

    def stop_accepting(self) -> None:
        """Refuse what comes from now on; a signal handler may say so."""
        self.is_stopping = True

    def give_up_all(self) -> None:
        """End every request that still runs."""
        with self._lock:
            feeds = {feed for feed, _ in self._feeds.values()}
        for feed in feeds:
            feed.give_up(stopping())
        self._wake(feeds)

    def close(self, patience_seconds: float = 10.0) -> None:
        """End the thread."""
        self.is_stopping = True
        self._ended = True
        self._work.set()
        if self._thread is not None:
            self._thread.join(patience_seconds)

    def expired(self) -> ApiError:
        """The problem of a request whose time is up."""
        return timed_out(self.limits.request_seconds)

    def _check_room(self, wanted: int) -> None:
        waiting = self.engine.num_waiting
        # Whoever finds nobody waiting has a turn next, however many continuations are wanted.
        if waiting and waiting + wanted > self.limits.queue:
            turns = (waiting + wanted) / max(1, self.engine.num_running)
            raise full(min(600, max(1, math.ceil(turns * self._mean_seconds))), waiting)

    def _run(self) -> None:
        failures = 0
        while not self._ended:
            self._work.clear()
            if not self.engine.has_work:
                self._work.wait(_IDLE_SECONDS)
                continue
            start = time.perf_counter()
            try:
                events = self.engine.step()
            except Exception as error:
                # Whatever it is: clients must hear of it, and the next request may well succeed.
                _LOG.exception("a step failed")
                failures += 1
                self._step_failed(error if failures >= _MOST_FAILURES else None)
                if self.broken is not None:
                    return
                continue
            failures = 0
            self.counts.add(events, time.perf_counter() - start)
            self._deliver(events)

    def _deliver(self, events: Sequence[Event]) -> None:
        with self._lock:
            found = [(self._feeds.get(event.ticket), event) for event in events]
        changed = set()
        for owner, event in found:
            if owner is not None:
                feed, prompt = owner
                feed.put(prompt, event)
                changed.add(feed)
        self._wake(changed)

    def _step_failed(self, last: Exception | None) -> None:
        self.counts.failed_steps += 1
        with self._lock:
            self.broken = last
            feeds = {feed for feed, _ in self._feeds.values()}
        for feed in feeds:
            feed.give_up(failed())
        self._wake(feeds)

    @staticmethod
    def _wake(feeds: set[TokenFeed]) -> None:
        for feed in feeds:
            try:
                feed.loop.call_soon_threadsafe(feed.wake)
            except RuntimeError:
                # The loop is closed: nobody reads any more.
                feed.give_up(stopping())
