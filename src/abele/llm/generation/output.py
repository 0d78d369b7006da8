"""Output of one sequence: tokens of decode calls turned into events, up to its end.

A decode call of 8 steps may run past a stop string that its third token completes: the event has three tokens, and
the other five are dropped. A sequence that had to give its pages back makes its tokens once more; they are compared
with those given out before, and not given out again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from abele.errors import AbeleError
from abele.llm.generation.backend import NOT_A_NUMBER, DecodedTokens
from abele.llm.generation.events import Event, FinishReason, StepCost, TokenLogprob
from abele.llm.generation.requests import GeneratorError, NotANumberError
from abele.llm.generation.scheduler import Continuation
from abele.llm.generation.text import TextPieces


@dataclass
class SequenceOutput:
    """Tokens and text of a sequence so far.

    Attributes:
        continuation: The sequence.
        pieces: Its text.
        end_ids: Tokens that end it.
        ids: Tokens given out.
    """

    continuation: Continuation
    pieces: TextPieces
    end_ids: frozenset[int]
    ids: list[int] = field(default_factory=list)

    def event(self, answer: DecodedTokens, cost: StepCost) -> tuple[Event, AbeleError | None]:
        """The news in a decode call, and what went wrong in it; its ``finish_reason`` says whether it is the last."""
        slot, before = self.continuation.slot, self.continuation.num_made
        made = [int(token) for token in answer.tokens[slot, : answer.counts[slot]]]
        first, text, error = len(self.ids), "", None
        reason: FinishReason | None = None
        for place, token in enumerate(made, before):
            error = self._wrong(place, token)
            if error is not None:
                reason = "error"
            elif place >= first:
                piece, reason = self.take(token)
                text += piece
            if reason is not None:
                break
        event = self.news(
            ids=tuple(self.ids[first:]),
            text=text,
            logprobs=self._logprobs(answer, first - before, len(self.ids) - before),
            finish_reason=reason,
            cost=cost,
        )
        return event, error

    def news(
        self,
        *,
        ids: tuple[int, ...] = (),
        text: str = "",
        logprobs: tuple[TokenLogprob, ...] = (),
        finish_reason: FinishReason | None = None,
        cost: StepCost | None = None,
    ) -> Event:
        """An event of this sequence; the last one has all the text that was held back."""
        return Event(
            self.continuation.ticket,
            ids=ids,
            text=text if finish_reason is None else text + self.pieces.finish(),
            index=self.continuation.index,
            logprobs=logprobs,
            finish_reason=finish_reason,
            cost=cost or StepCost(),
            num_tokens=len(self.ids),
        )

    def take(self, token: int) -> tuple[str, FinishReason | None]:
        """Text that a new token sets free, and why it is the last one."""
        self.ids.append(token)
        if token in self.end_ids:
            return "", "stop"
        text = self.pieces.add(token)
        if self.pieces.is_stopped:
            return text, "stop"
        return text, "length" if len(self.ids) == self.continuation.limit else None

    def _wrong(self, place: int, token: int) -> AbeleError | None:
        if token == NOT_A_NUMBER:
            return NotANumberError(
                f"the logits of token {place} are NaN",
                at=f"request {self.continuation.ticket.id}",
                because="a number of the model overflowed, or its weights are damaged",
                remedy="weights in a wider type, or a whole file of weights",
            )
        if place < len(self.ids) and token != self.ids[place]:
            return GeneratorError(
                f"token {place} was {self.ids[place]}, and is {token} the second time",
                at=f"request {self.continuation.ticket.id}",
                because="its pages were given to others, and the model does not repeat its numbers",
                remedy="more pages",
            )
        return None

    def _logprobs(self, answer: DecodedTokens, first: int, end: int) -> tuple[TokenLogprob, ...]:
        """Log-probabilities of the answer's tokens from ``first`` up to ``end``, where the request wants them."""
        wanted, slot = self.continuation.request.logprobs, self.continuation.slot
        if wanted is None or answer.logprobs is None or answer.top_ids is None or answer.top_logprobs is None:
            return ()
        return tuple(
            TokenLogprob(int(token), float(logprob), tuple(zip(ids[:wanted], values[:wanted], strict=True)))
            for token, logprob, ids, values in zip(
                answer.tokens[slot, first:end],
                answer.logprobs[slot, first:end],
                answer.top_ids[slot, first:end].tolist(),
                answer.top_logprobs[slot, first:end].tolist(),
                strict=True,
            )
        )
