"""The engine: requests in, events out, many sequences at once.

``Generator(model, tokenizer, slots=8)`` keeps eight sequences under way. Each :meth:`Generator.step` gives slots to
those that wait, prefills some chunks of prompts, decodes up to ``steps`` tokens of everyone else, and says what came::

    generator = Generator(model, tokenizer)
    ticket = generator.submit("Once upon a time", max_tokens=20)
    while generator.has_work:
        for event in generator.step():
            print(event.text, end="")
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from abele.errors import AbeleError
from abele.llm.generation.backend import MOST_END_IDS, Backend, DecodedTokens, Shape
from abele.llm.generation.beams import BeamSearch, completion_of
from abele.llm.generation.calls import decode_call, prefill_call
from abele.llm.generation.events import Completion, Event, StepCost, Ticket
from abele.llm.generation.output import SequenceOutput
from abele.llm.generation.requests import GeneratorError, Request, RequestError
from abele.llm.generation.scheduler import Continuation, Scheduler
from abele.llm.generation.text import TextCodec, TextPieces, encoded

if TYPE_CHECKING:
    from abele.llm.models.causal import CausalModel

Prompt = str | Sequence[int]

DEFAULT_POSITIONS = 2048


class Generator:
    """Text from a model, many sequences at once.

    Args:
        model: A causal model of :mod:`abele.llm.models`; None where ``backend`` has its own.
        tokenizer: Text to ids and back; None for requests and answers in ids alone.
        backend: "eager" for PyTorch, "compiled" for the modelled machine, or one made before, with its own sizes.
        slots: Sequences under way at once.
        positions: Longest sequence; by default 2,048, or the context of the model where that is shorter.
        page: Positions per page of the cache.
        pages: Pages of the cache; by default enough for every slot.
        chunk: Tokens per prefill call.
        steps_per_call: Most tokens of a sequence per step.
        top: Most likely tokens whose log-probabilities can be asked for.
        end_ids: Tokens that end every sequence.
        chunks_per_step: Prefill calls between two decode calls.

    :meth:`submit` and :meth:`Ticket.cancel` may be called by any thread, :meth:`step` by one at a time.
    """

    def __init__(
        self,
        model: CausalModel | None,
        tokenizer: TextCodec | None = None,
        *,
        backend: Backend | Literal["eager", "compiled"] = "eager",
        slots: int = 8,
        positions: int | None = None,
        page: int = 16,
        pages: int | None = None,
        chunk: int = 64,
        steps_per_call: int = 8,
        top: int = 0,
        end_ids: Iterable[int] = (),
        chunks_per_step: int = 4,
    ) -> None:
        if chunks_per_step < 1:
            raise RequestError(f"chunks_per_step is {chunks_per_step}, must be at least 1")
        if isinstance(backend, str):
            if model is None:
                raise RequestError("a generator without a model", remedy="a model, or a backend that has one")
            context = model.config.positions
            positions = min(DEFAULT_POSITIONS, context) if positions is None else positions
            if positions > context:
                raise RequestError(f"{positions:,} positions, of a model with a context of {context:,}", at="positions")
            shape = Shape(
                slots=slots,
                positions=positions,
                page=page,
                pages=slots * -(-positions // max(1, page)) + 1 if pages is None else pages,
                chunk=chunk,
                steps=steps_per_call,
                top=top,
            )
            backend = _named_backend(backend, model, shape)
        self.backend, self.tokenizer = backend, tokenizer
        self.end_ids = tuple(end_ids)
        self.chunks_per_step = chunks_per_step
        self.scheduler = Scheduler(backend.shape)
        self.num_steps = 0
        self._submitted: deque[Ticket] = deque()
        self._lock = threading.Lock()
        self._stepping = threading.Lock()
        self._num_tickets = 0
        self._outputs: dict[Continuation, SequenceOutput] = {}

    @property
    def has_work(self) -> bool:
        """True while a sequence waits or runs."""
        return bool(self._submitted or self._outputs)

    @property
    def num_waiting(self) -> int:
        """Requests and completions without a slot."""
        return len(self._submitted) + len(self.scheduler.waiting)

    @property
    def num_running(self) -> int:
        """Completions with a slot."""
        return len(self.scheduler.running)

    def request(self, prompt: Prompt, **settings: Any) -> Request:
        """A request of a text or of ids, with the settings of :class:`Request`."""
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise RequestError("a prompt of text, and no tokenizer", at="prompt", remedy="give token ids")
            prompt = encoded(self.tokenizer, prompt)
        return Request(prompt=tuple(prompt), **settings)

    def check(self, request: Request) -> None:
        """Nothing where the request can be served here.

        Raises:
            RequestError: It cannot: its prompt, its size, its tokens or what it wants to know.
        """
        self.scheduler.check(request)
        worst = max(request.prompt)
        if worst >= self.backend.vocabulary:
            raise RequestError(
                f"token {worst} in the prompt, of a vocabulary of {self.backend.vocabulary:,}", at="prompt"
            )
        num_ends = len(set(request.end_ids + self.end_ids))
        if num_ends > MOST_END_IDS:
            raise RequestError(f"{num_ends} tokens that end a sequence, of at most {MOST_END_IDS}", at="end_ids")
        top = self.backend.shape.top
        if request.logprobs is not None and (top == 0 or request.logprobs > top):
            raise RequestError(
                f"logprobs {request.logprobs}, of a generator that reports {top}",
                at="logprobs",
                remedy=f"at most {top}, or a backend with a larger top" if top else "a backend with top=1 or more",
            )
        if request.stop and self.tokenizer is None:
            raise RequestError("stop strings, and no tokenizer", at="stop", remedy="end_ids")

    def submit(self, request: Request | Prompt, **settings: Any) -> Ticket:
        """A place in the queue for a request, or for a prompt with the settings of one.

        Raises:
            RequestError: The request cannot be served; nothing was queued.
        """
        if not isinstance(request, Request):
            request = self.request(request, **settings)
        elif settings:
            request = replace(request, **settings)
        self.check(request)
        seed = int.from_bytes(os.urandom(8), "little") if request.seed is None else request.seed % 2**64
        with self._lock:
            ticket = Ticket(self._num_tickets, request, seed)
            self._num_tickets += 1
            self._submitted.append(ticket)
        return ticket

    def step(self) -> list[Event]:
        """One round: slots, chunks of prompts, up to ``steps`` tokens of each sequence that is prefilled.

        Raises:
            GeneratorError: Two threads step at once.
        """
        if not self._stepping.acquire(blocking=False):
            raise GeneratorError("two threads step one generator", remedy="one thread steps; any thread submits")
        try:
            return self._step()
        finally:
            self._stepping.release()

    def generate(self, prompts: Iterable[Request | Prompt], **settings: Any) -> list[Completion]:
        """Completions of all prompts, in order; those of one prompt with ``n`` above 1 follow one another.

        Raises:
            RequestError: A request cannot be served, or there is none.
            GeneratorError: A sequence went wrong.
        """
        if isinstance(prompts, str):
            raise RequestError("generate takes a list of prompts", at="prompts", remedy="[prompt]")
        requests = [p if isinstance(p, Request) else self.request(p, **settings) for p in prompts]
        if not requests:
            raise RequestError("a batch of nothing", at="prompts", remedy="at least one prompt")
        for request in requests:
            self.check(request)
        tickets = [self.submit(request) for request in requests]
        found = {(t, i): Completion(index=i) for t in tickets for i in range(t.request.n)}
        for event in self._events_of(set(tickets)):
            found[event.ticket, event.index].add(event)
            if event.ticket.error is not None:
                for ticket in tickets:
                    ticket.cancel()
                raise event.ticket.error
        return list(found.values())

    def stream(self, prompt: Request | Prompt, **settings: Any) -> Iterator[str]:
        """Pieces of the text of one completion as they come. A consumer that leaves early cancels the request."""
        if self.tokenizer is None:
            raise RequestError("a stream of text, and no tokenizer", remedy="events of step() have ids")
        ticket = self.submit(prompt, **settings)
        return self._pieces_of(ticket)

    def beams(
        self,
        prompt: Request | Prompt,
        *,
        num_beams: int = 4,
        num_returned: int = 1,
        length_penalty: float = 1.0,
        early_stopping: bool = False,
        **settings: Any,
    ) -> list[Completion]:
        """The completions of highest penalised log-probability, the best first, by beam search.

        Args:
            prompt: Request, text or ids.
            num_beams: Beams; each takes a slot.
            num_returned: Completions to return, at most ``num_beams``.
            length_penalty: Power of the length that divides log-probabilities.
            early_stopping: True to end with as many hypotheses as beams, whatever could still come.
            settings: Settings of the request.

        Raises:
            RequestError: Draws, stop strings, sequences under way, or too many beams for the backend.
        """
        request = prompt if isinstance(prompt, Request) else self.request(prompt, **settings)
        self.check(request)
        if self.has_work:
            raise RequestError("beams beside other sequences", remedy="beams once generator.has_work is False")
        if not 1 <= num_returned <= num_beams:
            raise RequestError(f"num_returned is {num_returned}, of {num_beams} beams", at="num_returned")
        search = BeamSearch(self, request, num_beams=num_beams, length_penalty=length_penalty, is_eager=early_stopping)
        found = search.run()[:num_returned]
        return [completion_of(h, i, self._text(h.ids), search.cost) for i, h in enumerate(found)]

    def _text(self, ids: Sequence[int]) -> str:
        """Text of a whole sequence without the token that ends it."""
        if self.tokenizer is None:
            return ""
        pieces = TextPieces(self.tokenizer)
        return "".join(pieces.add(token) for token in ids) + pieces.finish()

    def _pieces_of(self, ticket: Ticket) -> Iterator[str]:
        try:
            for event in self._events_of({ticket}):
                if ticket.error is not None:
                    raise ticket.error
                if event.text and event.index == 0:
                    yield event.text
        finally:
            ticket.cancel()

    def _events_of(self, tickets: set[Ticket]) -> Iterator[Event]:
        """Events of these tickets until each has ended. Those of others are lost: their owner is to step."""
        while any(ticket.status in ("waiting", "running") for ticket in tickets):
            yield from (event for event in self.step() if event.ticket in tickets)

    def _step(self) -> list[Event]:
        self.num_steps += 1
        self._accept()
        events = self._cancelled()
        for continuation in self.scheduler.admit():
            continuation.ticket._start()
        cost = StepCost()
        try:
            cost = self._prefill()
            ready = [(c, steps) for c, steps in self.scheduler.decoding() if steps > 0]
            if not ready:
                return events
            answer = self.backend.decode(decode_call(self.backend.shape, ready, self._outputs))
        except (AbeleError, RuntimeError, MemoryError) as error:
            return events + self._all_failed(error)
        cost += answer.cost
        return events + [self._event(c, answer, cost) for c, _ in ready]

    def _event(self, continuation: Continuation, answer: DecodedTokens, cost: StepCost) -> Event:
        output = self._outputs[continuation]
        event, error = output.event(answer, cost)
        self.scheduler.decoded(
            continuation, answer.tokens[continuation.slot, : answer.counts[continuation.slot]].tolist()
        )
        return event if event.finish_reason is None else self._end(output, event, error)

    def _accept(self) -> None:
        while self._submitted:
            ticket = self._submitted.popleft()
            for continuation in self.scheduler.add(ticket):
                pieces = TextPieces(self.tokenizer, ticket.request.stop)
                ends = frozenset({*ticket.request.end_ids, *self.end_ids})
                self._outputs[continuation] = SequenceOutput(continuation, pieces, ends)

    def _cancelled(self) -> list[Event]:
        gone = [output for output in self._outputs.values() if output.continuation.ticket.is_cancelled]
        return [self._end(output, output.news(finish_reason="cancelled")) for output in gone]

    def _prefill(self) -> StepCost:
        cost = StepCost()
        for _ in range(self.chunks_per_step):
            chunk = self.scheduler.next_chunk()
            if chunk is None:
                break
            cost += self.backend.prefill(prefill_call(self.backend.shape, chunk))
            self.scheduler.chunk_done(chunk)
        return cost

    def _end(self, output: SequenceOutput, event: Event, error: AbeleError | None = None) -> Event:
        """The last event of a sequence, whose slot and pages are free from now on."""
        assert event.finish_reason is not None
        del self._outputs[output.continuation]
        self.scheduler.remove(output.continuation)
        output.continuation.ticket._finish(event.finish_reason, error)
        return event

    def _all_failed(self, error: BaseException) -> list[Event]:
        """The end of every sequence with a slot: the call that went wrong was theirs together."""
        if not isinstance(error, AbeleError):
            error = GeneratorError(f"the backend failed: {error}", because=type(error).__name__)
        failed = [self._outputs[c] for c in self.scheduler.running]
        return [self._end(output, output.news(finish_reason="error"), error) for output in failed]


def _named_backend(name: str, model: CausalModel, shape: Shape) -> Backend:
    if name == "eager":
        from abele.llm.generation.eager import EagerBackend

        return EagerBackend(model, shape)
    if name == "compiled":
        from abele.llm.generation.compiled import CompiledBackend

        return CompiledBackend(model, shape)
    raise RequestError(f"backend {name!r} is unknown", at="backend", remedy="eager or compiled")
