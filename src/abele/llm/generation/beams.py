"""Beam search: the continuations of highest total log-probability, over pages that beams share.

Four beams of a prompt of 100 tokens with 16 positions per page share six full pages; each has one of its own for what
follows. When two beams of the next step come from one of this step, the second shares the full pages of the first and
copies the last, of which only part is filled. Nothing else moves: tables are reordered, not caches.

A step looks at the ``2 · beams`` best extensions of all beams together. An extension by an end token is a hypothesis
where it is among the first ``beams``; its score is its log-probability divided by its length to the power of
``length_penalty``. The search ends when the best running beam cannot beat the worst of ``beams`` hypotheses any more.

Source: Graves, "Sequence transduction with recurrent neural networks" (2012); Wu et al., "Google's neural machine
translation system" (2016) for the penalty; ``transformers`` for what happens at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from abele.llm.generation.backend import MOST_END_IDS, DecodeCall, DecodedTokens, Shape
from abele.llm.generation.calls import alone
from abele.llm.generation.events import Completion, StepCost, Ticket
from abele.llm.generation.pages import PagePool
from abele.llm.generation.requests import NotANumberError, Request, RequestError

if TYPE_CHECKING:
    from abele.llm.generation.generator import Generator


@dataclass
class Beam:
    """One beam: its new tokens, their total log-probability, and the pages of its sequence."""

    ids: tuple[int, ...]
    logprob: float
    pages: list[int]


@dataclass(frozen=True)
class Extension:
    """A beam that is longer by a token."""

    beam: Beam
    token: int
    logprob: float


@dataclass(frozen=True)
class Hypothesis:
    """A finished sequence."""

    ids: tuple[int, ...]
    score: float
    ends: bool


class BeamSearch:
    """Search of one prompt.

    Args:
        generator: The engine; nothing else runs on it meanwhile.
        request: Prompt, length and end.
        num_beams: Beams.
        length_penalty: Power of the length that divides log-probabilities: above 0 favours long sequences.
        is_eager: True to end with as many hypotheses as beams, whatever could still come.

    Raises:
        RequestError: Draws, texts that stop or more beams than the backend has slots, pages or ``top / 2`` for.
    """

    def __init__(
        self, generator: Generator, request: Request, *, num_beams: int, length_penalty: float, is_eager: bool
    ) -> None:
        self.backend, self.request = generator.backend, request
        self.shape: Shape = generator.backend.shape
        self.scheduler = generator.scheduler
        self.pool: PagePool = generator.scheduler.pool
        self.num_beams, self.length_penalty, self.is_eager = num_beams, length_penalty, is_eager
        self.limit = generator.scheduler.check(request)
        self.end_ids = frozenset({*request.end_ids, *generator.end_ids})
        self.cost = StepCost()
        self._check()

    def run(self) -> list[Hypothesis]:
        """Hypotheses, the best first."""
        continuation, self.cost = alone(self.backend, self.scheduler, Ticket(-1, self.request, 0))
        beams = [Beam((), 0.0, self.scheduler.hand_over(continuation))]
        found: list[Hypothesis] = []
        try:
            while beams and len(beams[0].ids) < self.limit and self._can_improve(beams, found):
                best = self._extensions(beams)
                found = self._finished(best, found)
                beams = self._forked(beams, [x for x in best if not self._is_last(x)][: self.num_beams])
        finally:
            for beam in beams:
                self.pool.release(beam.pages)
        return found

    def _check(self) -> None:
        request, shape = self.request, self.shape
        if request.temperature or request.repetition_penalty != 1 or request.n != 1 or request.stop or request.logprobs:
            raise RequestError(
                "beams with temperature, repetition_penalty, n, logprobs or stop strings",
                because="beams take the most likely tokens, and end with end_ids or max_tokens",
            )
        if not 1 <= self.num_beams <= shape.slots or 2 * self.num_beams > shape.top:
            raise RequestError(
                f"{self.num_beams} beams, of a backend with {shape.slots} slots that reports {shape.top} tokens",
                remedy=f"1 … {min(shape.slots, shape.top // 2)} beams, or slots of beams and top of twice as many",
            )
        longest = -(-(len(request.prompt) + self.limit) // shape.page)
        shared = len(request.prompt) // shape.page
        needed = shared + (longest - shared + 1) * self.num_beams
        if needed > self.pool.num_available:
            raise RequestError(f"{self.num_beams} beams take {needed} pages, of {self.pool.num_available}")

    def _is_last(self, extension: Extension) -> bool:
        return extension.token in self.end_ids or len(extension.beam.ids) + 1 == self.limit

    def _can_improve(self, beams: Sequence[Beam], found: Sequence[Hypothesis]) -> bool:
        if len(found) < self.num_beams:
            return True
        length = len(beams[0].ids)
        return not self.is_eager and beams[0].logprob / max(1, length) ** self.length_penalty > found[-1].score

    def _extensions(self, beams: Sequence[Beam]) -> list[Extension]:
        """The best extensions of all beams together, the best first; the cache has the beams' last tokens then."""
        last = len(self.request.prompt) + len(beams[0].ids) - 1
        for beam in beams:
            while len(beam.pages) * self.shape.page <= last:
                page = self.pool.take()
                assert page is not None, "beams were checked to fit"
                beam.pages.append(page)
        answer = self.backend.decode(self._call(beams, last))
        self.cost += answer.cost
        return _best(beams, answer, 2 * self.num_beams)

    def _call(self, beams: Sequence[Beam], last: int) -> DecodeCall:
        slots, used = self.shape.slots, len(beams)
        tokens, first, steps = (np.zeros(slots, np.int32) for _ in range(3))
        table = np.zeros((slots, self.shape.table), np.int32)
        tokens[:used] = [beam.ids[-1] if beam.ids else self.request.prompt[-1] for beam in beams]
        first[:used], steps[:used] = last, 1
        for row, beam in zip(table, beams, strict=False):
            row[: len(beam.pages)] = beam.pages
        return DecodeCall(
            tokens=tokens,
            first=first,
            table=table,
            steps=steps,
            end_ids=np.full((slots, MOST_END_IDS), -1, np.int32),
            temperature=np.zeros(slots, np.float32),
            top_k=np.zeros(slots, np.int32),
            top_p=np.ones(slots, np.float32),
            min_p=np.zeros(slots, np.float32),
            penalty=np.ones(slots, np.float32),
            seeds=np.zeros(slots, np.int32),
        )

    def _finished(self, best: Sequence[Extension], found: Sequence[Hypothesis]) -> list[Hypothesis]:
        new = [
            Hypothesis(
                (*x.beam.ids, x.token),
                x.logprob / (len(x.beam.ids) + 1) ** self.length_penalty,
                x.token in self.end_ids,
            )
            for x in best[: self.num_beams]
            if self._is_last(x)
        ]
        return sorted([*found, *new], key=lambda h: -h.score)[: self.num_beams]

    def _forked(self, beams: Sequence[Beam], kept: Sequence[Extension]) -> list[Beam]:
        """The beams of the next step. The first child of a beam has its pages; others share the full ones."""
        full = (len(self.request.prompt) + len(beams[0].ids)) // self.shape.page
        taken: set[int] = set()
        sources: list[int] = []
        targets: list[int] = []
        new = []
        for extension in kept:
            pages = extension.beam.pages
            if id(extension.beam) in taken:
                for page in pages[:full]:
                    self.pool.share(page)
                own = [page for page in (self.pool.take() for _ in pages[full:]) if page is not None]
                sources += pages[full:]
                targets += own
                pages = pages[:full] + own
            taken.add(id(extension.beam))
            new.append(Beam((*extension.beam.ids, extension.token), extension.logprob, pages))
        if targets:
            self.cost += self.backend.copy_pages(np.array(sources, np.int32), np.array(targets, np.int32))
        for beam in beams:
            if id(beam) not in taken:
                self.pool.release(beam.pages)
        return new


def _best(beams: Sequence[Beam], answer: DecodedTokens, count: int) -> list[Extension]:
    """The ``count`` best extensions, by total log-probability."""
    assert answer.top_ids is not None
    assert answer.top_logprobs is not None
    rows = answer.top_logprobs[: len(beams), 0].astype(np.float64)
    if np.isnan(rows).any():
        raise NotANumberError("the logits of a beam are NaN", remedy="weights in a wider type, or a whole file of them")
    totals = rows + np.array([beam.logprob for beam in beams])[:, None]
    order = np.argsort(-totals, axis=None, kind="stable")[:count]
    return [
        Extension(beams[row], int(answer.top_ids[row, 0, place]), float(totals[row, place]))
        for row, place in zip(*np.unravel_index(order, totals.shape), strict=True)
    ]


def completion_of(hypothesis: Hypothesis, index: int, text: str, cost: StepCost) -> Completion:
    """A hypothesis as other completions are given."""
    return Completion(
        ids=list(hypothesis.ids),
        text=text,
        finish_reason="stop" if hypothesis.ends else "length",
        cost=cost,
        index=index,
        score=hypothesis.score,
    )
