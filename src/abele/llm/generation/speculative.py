"""Speculative decoding: a small model drafts tokens, the large one checks them all in one call.

A draft of 4 tokens costs 4 steps of the small model and one call of the large one with 5 tokens. Where the large one
agrees with the first 3, the call gives 4 tokens: those 3 and its own fourth. Greedy text is that of the large model
alone. With a temperature a drafted token x is kept with probability min(1, p(x) / q(x)), of the large model's p and
the draft's q; otherwise a token is drawn from what p has above q. So every token has exactly the distribution p.

Rows of the cache behind the last token kept hold what was given up; they are written again before they are read.

Source: Leviathan, Kalman, Matias, "Fast inference from transformers via speculative decoding" (2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from abele.llm.generation.backend import Floats, PrefillCall, ScoringBackend
from abele.llm.generation.calls import alone, folded_seed, page_table
from abele.llm.generation.events import Completion, Ticket
from abele.llm.generation.generator import Generator, Prompt
from abele.llm.generation.output import SequenceOutput
from abele.llm.generation.requests import GeneratorError, NotANumberError, Request, RequestError
from abele.llm.generation.scheduler import Continuation, Scheduler
from abele.llm.generation.text import TextPieces
from abele.llm.sampling import SamplingSettings, SettingTensors, cut, penalised

_DRAFT, _KEEP, _OTHER = 1, 2, 3
"""Streams of random numbers of one position: the draft's token, whether it stays, the one in its place."""


class Speculation:
    """A large model with a draft model, one sequence at a time.

    Args:
        target: Engine of the large model, with a backend that gives logits.
        draft: Engine of the small one, of the same vocabulary.
        drafted: Tokens drafted per call of the large model.

    Attributes:
        num_drafted: Tokens drafted so far.
        num_kept: Those of them that were kept.
    """

    def __init__(self, target: Generator, draft: Generator, *, drafted: int = 4) -> None:
        if target.backend.vocabulary != draft.backend.vocabulary:
            raise RequestError(
                f"a draft model of {draft.backend.vocabulary:,} tokens, "
                f"for one of {target.backend.vocabulary:,}: they must have the same ones"
            )
        if drafted < 1:
            raise RequestError(f"drafted is {drafted}, must be at least 1", at="drafted")
        self.target, self.draft, self.drafted = target, draft, drafted
        self.num_drafted = self.num_kept = 0

    def generate(self, prompt: Request | Prompt, **settings: Any) -> Completion:
        """A completion, distributed as the large model's alone; greedy ones are the same.

        Raises:
            RequestError: The request cannot be served, or one of the engines has sequences under way.
            NotANumberError: Logits are NaN.
        """
        request = prompt if isinstance(prompt, Request) else self.target.request(prompt, **settings)
        if request.n != 1 or request.logprobs is not None:
            raise RequestError("n or logprobs with a draft model", remedy="a request per completion, without logprobs")
        if self.target.has_work or self.draft.has_work:
            raise RequestError("a draft model beside other sequences", remedy="wait until has_work is False")
        self.target.check(request)
        self.draft.check(request)
        ticket = Ticket(-1, request, request.seed or 0)
        large, small = _ScoredReader(self.target, ticket), _ScoredReader(self.draft, ticket)
        ends = frozenset({*request.end_ids, *self.target.end_ids})
        output = SequenceOutput(large.continuation, TextPieces(self.target.tokenizer, request.stop), ends)
        chooser = Chooser(request, ticket.seed)
        made = Completion()
        try:
            while made.finish_reason is None:
                for token in self._round(large, small, chooser):
                    text, made.finish_reason = output.take(token)
                    made.text += text
                    if made.finish_reason is not None:
                        break
        finally:
            large.close()
            small.close()
        made.ids, made.text, made.cost = output.ids, made.text + output.pieces.finish(), large.cost + small.cost
        return made

    def _round(self, large: _ScoredReader, small: _ScoredReader, chooser: Chooser) -> list[int]:
        """Tokens of one call of the large model: those drafted that it keeps, and one of its own."""
        tokens = large.continuation.tokens
        room = large.continuation.limit - large.continuation.num_made - 1
        drafts: list[int] = []
        shares: list[NDArray[np.float64]] = []
        for _ in range(min(self.drafted, room)):
            logits = small.read([*tokens, *drafts])[-1]
            shares.append(chooser.distribution(logits, [*tokens, *drafts]))
            drafts.append(chooser.drawn(shares[-1], len(tokens) + len(drafts), _DRAFT))
        rows = large.read([*tokens, *drafts])
        kept: list[int] = []
        for token, share, row in zip(drafts, shares, rows[-len(drafts) - 1 :], strict=False):
            wanted, place = chooser.distribution(row, tokens + kept), len(tokens) + len(kept)
            kept.append(chooser.checked(token, share, wanted, place))
            if kept[-1] != token:
                break
        else:
            kept.append(chooser.drawn(chooser.distribution(rows[-1], tokens + kept), len(tokens) + len(kept), _OTHER))
        self.num_drafted += len(drafts)
        self.num_kept += len(kept) - 1
        for reader in (large, small):
            reader.accept(kept)
        return kept


class _ScoredReader:
    """A sequence that has an engine for itself: which of its tokens the cache holds."""

    def __init__(self, generator: Generator, ticket: Ticket) -> None:
        backend: Any = generator.backend
        if not hasattr(backend, "score"):
            raise RequestError("a draft model over a backend without logits", remedy='backend="eager"')
        self.backend: ScoringBackend = backend
        self.scheduler: Scheduler = generator.scheduler
        self.continuation: Continuation
        self.continuation, self.cost = alone(backend, self.scheduler, ticket)
        limit = len(ticket.request.prompt) + self.continuation.limit
        if not self.scheduler.reserve(self.continuation, limit):
            self.close()
            raise GeneratorError("no pages left for a sequence that was checked to fit")

    def read(self, tokens: Sequence[int]) -> Floats:
        """Logits [new, vocabulary] of what follows each token that the cache does not hold yet."""
        first = self.continuation.filled
        new = np.array(tokens[first:], np.int32)
        table = page_table(self.backend.shape, self.continuation)
        logits, cost = self.backend.score(PrefillCall(tokens=new, first=first, count=len(new), table=table))
        if np.isnan(logits).any():
            raise NotANumberError(f"the logits of token {len(tokens)} are NaN")
        self.continuation.filled = len(tokens)
        self.cost += cost
        return logits

    def accept(self, kept: Sequence[int]) -> None:
        """The sequence with the tokens kept; its cache holds all of them but the last, at most."""
        tokens = self.continuation.tokens
        tokens += kept
        self.continuation.filled = min(self.continuation.filled, len(tokens) - 1)

    def close(self) -> None:
        """The end: slot and pages are free."""
        self.scheduler.remove(self.continuation)


class Chooser:
    """Distributions and draws of one sequence; a draw depends on the seed, the position and its purpose.

    Args:
        request: Temperature, filters and penalty.
        seed: Seed of 64 bits.
    """

    def __init__(self, request: Request, seed: int) -> None:
        self.request, self.seed = request, seed
        self.settings = SettingTensors.of(
            [
                SamplingSettings(
                    temperature=request.temperature,
                    top_k=min(request.top_k, 2**31 - 1),
                    top_p=max(request.top_p, 1e-6),
                    min_p=request.min_p,
                    repetition_penalty=request.repetition_penalty,
                    seed=folded_seed(seed, 0),
                )
            ]
        )

    def distribution(self, logits: Floats, tokens: Sequence[int]) -> NDArray[np.float64]:
        """Probability of each token [vocabulary] after ``tokens``; all of it on one token where draws are greedy."""
        values = torch.from_numpy(logits)[None]
        if self.request.repetition_penalty != 1:
            seen = torch.zeros_like(values, dtype=torch.bool)
            seen[0, list(tokens)] = True
            values = penalised(values, seen, self.settings.repetition_penalty)
        if self.request.temperature == 0:
            share = np.zeros(values.shape[1])
            share[int(values.argmax())] = 1.0
            return share
        x = values / self.request.temperature
        x = x - x.amax()
        kept = x >= cut(x, self.settings)[:, None]
        return x.double().masked_fill(~kept, -torch.inf).softmax(-1)[0].numpy()

    def checked(self, token: int, share: NDArray[np.float64], wanted: NDArray[np.float64], place: int) -> int:
        """A token drafted by the distribution ``share``, or another one: distributed as ``wanted``."""
        if self.uniform(place, _KEEP) * share[token] < wanted[token]:
            return token
        return self.drawn(np.maximum(wanted - share, 0.0), place, _OTHER)

    def uniform(self, place: int, stream: int) -> float:
        """A number in 0 … 1 of a position."""
        bits = np.random.Philox(key=self.seed, counter=[place, stream, 0, 0])
        return float(np.random.Generator(bits).random())

    def drawn(self, share: NDArray[np.float64], place: int, stream: int) -> int:
        """A token drawn with these weights; they need not sum to 1."""
        sums = np.cumsum(share)
        return int(np.searchsorted(sums, self.uniform(place, stream) * sums[-1], side="right"))
