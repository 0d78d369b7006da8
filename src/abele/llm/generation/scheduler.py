"""Continuous batching: which sequence has a slot, which pages it holds, and what runs next.

A prompt of n tokens is prefilled up to its last token but one; the last one is what its first decode step is given. So
a prompt of 150 tokens in chunks of 64 takes chunks of 64, 64 and 21 tokens, and every sampled token comes from decode.

Fairness: sequences get slots in the order of submission, and nobody overtakes the first that waits. Prompts take turns
of one chunk each, so that a long one delays nobody for more than its chunk.

Prompts that begin alike share pages up to a multiple of the chunk. So every prompt has the same prefill calls wherever
its pages come from, and its numbers do not depend on who came before.

Pages that run out: a sequence takes pages as it grows, the oldest first. When none is left, the youngest sequence
gives all of its own back and waits again, in its old place of the order. It later starts from its prompt: draws depend
on the seed and the position alone, so that it makes the same tokens once more. Copying its pages to the host would
save that work, and cost a transfer of the cache in both directions. The oldest sequence always goes on, and every
sequence fits the pool alone (:meth:`Scheduler.check`); so all of them end.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import deque
from dataclasses import dataclass, field

from abele.llm.generation.backend import Shape
from abele.llm.generation.events import Ticket
from abele.llm.generation.pages import Digest, PagePool, digests
from abele.llm.generation.requests import PromptLengthError, Request, RequestError


@dataclass(eq=False)
class Continuation:
    """One continuation of a prompt.

    Attributes:
        ticket: The request.
        index: Completion of the request.
        order: Place in the order of submission.
        limit: Most tokens that it may make.
        keys: Digests of the full pages of the prompt that are prefilled.
        tokens: The prompt, and what was made of it.
        pages: Pages that it holds, in order.
        filled: Positions whose keys and values are in the cache.
        slot: Row of the batch; None while it waits.
    """

    ticket: Ticket
    index: int
    order: int
    limit: int
    keys: list[Digest]
    tokens: list[int]
    pages: list[int] = field(default_factory=list)
    filled: int = 0
    slot: int | None = None

    @property
    def request(self) -> Request:
        """Settings of the sequence."""
        return self.ticket.request

    @property
    def num_made(self) -> int:
        """Tokens made so far."""
        return len(self.tokens) - len(self.request.prompt)

    @property
    def is_prefilled(self) -> bool:
        """True once only the last token is missing from the cache."""
        return self.filled == len(self.tokens) - 1


@dataclass(frozen=True)
class ChunkOfPrompt:
    """Tokens of one prefill call: ``count`` of them from position ``first``."""

    continuation: Continuation
    first: int
    count: int


class Scheduler:
    """Sequences waiting, in prefill and in decode.

    Args:
        shape: Slots, pages and chunk of the backend.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.pool = PagePool(shape.pages)
        self.num_preempted = 0
        self.num_reused = 0
        self._waiting: list[Continuation] = []
        self._running: list[Continuation | None] = [None] * shape.slots
        self._prefilling: deque[Continuation] = deque()
        self._num_orders = 0

    @property
    def waiting(self) -> tuple[Continuation, ...]:
        """Sequences without a slot, the next one first."""
        return tuple(self._waiting)

    @property
    def running(self) -> tuple[Continuation, ...]:
        """Sequences with a slot, the oldest first."""
        return tuple(sorted((c for c in self._running if c is not None), key=_order))

    def check(self, request: Request) -> int:
        """Most tokens that a request can make.

        Raises:
            PromptLengthError: The prompt leaves no room for a token.
            RequestError: It can never have the pages that it asks for.
        """
        room = self.shape.positions - len(request.prompt)
        if room < 1:
            raise PromptLengthError(
                f"a prompt of {len(request.prompt):,} tokens, in a context of {self.shape.positions:,} positions",
                at="prompt",
                because="at least one position must be left for what is generated",
                remedy=f"at most {self.shape.positions - 1:,} tokens, or a generator with more positions",
            )
        limit = room if request.max_tokens is None else min(room, request.max_tokens)
        needed = self._num_pages(len(request.prompt) + limit - 1)
        if needed > self.shape.pages - 1:
            raise RequestError(
                f"{len(request.prompt):,} tokens and {limit:,} more take {needed:,} pages of the cache, "
                f"which has {self.shape.pages - 1:,}",
                because=f"{self.shape.page} positions per page",
                remedy="a shorter prompt, fewer max_tokens, or a generator with more pages",
            )
        return limit

    def add(self, ticket: Ticket) -> list[Continuation]:
        """The continuations of a request, behind all that wait."""
        request, limit = ticket.request, self.check(ticket.request)
        keys = digests(request.prompt[:-1], self.shape.page)
        made = [
            Continuation(ticket, i, self._num_orders + i, limit, keys, list(request.prompt)) for i in range(request.n)
        ]
        self._num_orders += request.n
        self._waiting += made
        return made

    def admit(self) -> list[Continuation]:
        """Sequences that get a slot and the pages of their prompts, in order."""
        admitted: list[Continuation] = []
        while self._waiting and None in self._running:
            first = self._waiting[0]
            if not self._take_prompt_pages(first):
                break
            first.slot = self._running.index(None)
            self._running[first.slot] = self._waiting.pop(0)
            if not first.is_prefilled:
                self._prefilling.append(first)
            admitted.append(first)
        return admitted

    def next_chunk(self) -> ChunkOfPrompt | None:
        """The chunk to prefill now; :meth:`chunk_done` must follow it."""
        while self._prefilling:
            first = self._prefilling[0]
            self._adopt_published(first)
            if not first.is_prefilled:
                count = min(self.shape.chunk, len(first.tokens) - 1 - first.filled)
                return ChunkOfPrompt(first, first.filled, count)
            self._prefilling.popleft()
        return None

    def chunk_done(self, chunk: ChunkOfPrompt) -> None:
        """The end of a chunk's prefill call: its full pages are there for others, and the next prompt has its turn."""
        done = chunk.continuation
        done.filled += chunk.count
        first_page = chunk.first // self.shape.page
        for page, key in zip(
            done.pages[first_page : done.filled // self.shape.page], done.keys[first_page:], strict=False
        ):
            self.pool.publish(page, key)
        self._prefilling.popleft()
        if not done.is_prefilled:
            self._prefilling.append(done)

    def decoding(self) -> list[tuple[Continuation, int]]:
        """Sequences to decode, the oldest first, and the steps that each can take with the pages it has got."""
        for continuation in self.running:
            if continuation.slot is not None and continuation.is_prefilled:
                self._grow(continuation)
        ready = [c for c in self.running if c.is_prefilled]
        return [(c, min(self._most_steps(c), self._room(c))) for c in ready]

    def decoded(self, continuation: Continuation, tokens: list[int]) -> None:
        """The tokens that a decode call made of a sequence."""
        continuation.tokens += tokens
        continuation.filled += len(tokens)

    def reserve(self, continuation: Continuation, positions: int) -> bool:
        """True where a sequence with a slot has the pages of its first ``positions`` positions from now on."""
        while len(continuation.pages) < self._num_pages(positions):
            page = self.pool.take()
            if page is None:
                return False
            continuation.pages.append(page)
        return True

    def hand_over(self, continuation: Continuation) -> list[int]:
        """The pages of a sequence that leaves its slot; whoever asks holds them now."""
        pages, continuation.pages = continuation.pages, []
        self._leave(continuation)
        return pages

    def remove(self, continuation: Continuation) -> None:
        """The end of a sequence, wherever it is; its pages go back."""
        if continuation.slot is None:
            self._waiting.remove(continuation)
        else:
            self._leave(continuation)

    def _num_pages(self, positions: int) -> int:
        return -(-positions // self.shape.page)

    def _room(self, continuation: Continuation) -> int:
        """Positions left in the pages of a sequence."""
        return len(continuation.pages) * self.shape.page - continuation.filled

    def _most_steps(self, continuation: Continuation) -> int:
        return min(self.shape.steps, continuation.limit - continuation.num_made)

    def _published(self, continuation: Continuation) -> list[int]:
        """Published pages with the next chunks of a prompt."""
        unit = math.lcm(self.shape.page, self.shape.chunk)
        first = continuation.filled // self.shape.page
        if continuation.filled % unit:
            return []
        found = [self.pool.find(key) for key in continuation.keys[first:]]
        pages = list(itertools.takewhile(lambda page: page is not None, found))
        return [page for page in pages[: len(pages) - len(pages) % (unit // self.shape.page)] if page is not None]

    def _take_prompt_pages(self, continuation: Continuation) -> bool:
        """True where the pages of a prompt, and one to begin with, were there; nothing is taken otherwise."""
        shared = self._published(continuation)
        unused = sum(self.pool.is_unused(page) for page in shared)
        fresh = self._num_pages(len(continuation.tokens)) - len(shared)
        if self.pool.num_available - unused < fresh:
            return False
        for page in shared:
            self.pool.share(page)
        taken = [self.pool.take() for _ in range(fresh)]
        continuation.pages = shared + [page for page in taken if page is not None]
        continuation.filled = len(shared) * self.shape.page
        self.num_reused += len(shared)
        return True

    def _adopt_published(self, continuation: Continuation) -> None:
        """Pages that others published since this sequence got its own, in exchange for its own.

        Completions of one prompt begin together: the second finds every page that the first has just filled.
        """
        shared = self._published(continuation)
        for place, page in enumerate(shared, continuation.filled // self.shape.page):
            self.pool.share(page)
            self.pool.release([continuation.pages[place]])
            continuation.pages[place] = page
        continuation.filled += len(shared) * self.shape.page
        self.num_reused += len(shared)

    def _grow(self, continuation: Continuation) -> None:
        """Pages for the next steps of a sequence: as many as there are, and for one step at any price."""
        while self._room(continuation) < self._most_steps(continuation):
            page = self.pool.take()
            if page is not None:
                continuation.pages.append(page)
            elif self._room(continuation) > 0:
                return
            else:
                youngest = self.running[-1]
                self._preempt(youngest)
                if youngest is continuation:
                    return

    def _preempt(self, continuation: Continuation) -> None:
        self._leave(continuation)
        continuation.tokens = list(continuation.request.prompt)
        bisect.insort(self._waiting, continuation, key=_order)
        self.num_preempted += 1

    def _leave(self, continuation: Continuation) -> None:
        if continuation.slot is not None:
            self._running[continuation.slot] = None
        if continuation in self._prefilling:
            self._prefilling.remove(continuation)
        self.pool.release(continuation.pages)
        continuation.pages, continuation.filled, continuation.slot = [], 0, None


def _order(continuation: Continuation) -> int:
    return continuation.order
