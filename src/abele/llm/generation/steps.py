"""Steps of decoding as modules: plain PyTorch, and what the compiled backend captures.

The state of a call is in buffers: of 8 slots each has its last token, its position, the steps that are left to it, and
a row of the tokens made. One step moves every slot on whose ``left`` is above zero; ``alive`` is True while there is
one. A slot that is done stands still: it writes the same row once more, and what it draws is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from abele.llm.cache import PagedCache
from abele.llm.generation.backend import NOT_A_NUMBER, DecodeCall, Shape
from abele.llm.models.causal import CausalModel
from abele.llm.sampling import Sampled, SettingTensors, penalised, sample, top_log_probabilities

Tensor = torch.Tensor


class PrefillChunk(nn.Module):
    """Keys and values of a chunk of one prompt, written to the cache.

    Args:
        model: The model.
        cache: Its cache.
    """

    def __init__(self, model: CausalModel, cache: PagedCache) -> None:
        super().__init__()
        self.model, self.cache = model, cache

    def forward(self, tokens: Tensor, first: Tensor, count: Tensor, table: Tensor) -> Tensor:
        """The position behind the chunk, i32[1].

        Args:
            tokens: i32[1, chunk].
            first: Position of the first token, i32[1].
            count: Tokens that count, i32[1].
            table: Pages of the sequence, i32[1, table].
        """
        self.model(tokens, self.cache.view(table, first, tokens.shape[1], count))
        return first + count


@dataclass(frozen=True)
class TokenChoice:
    """Work that choosing a token takes; what no sequence of a call asks for is left out.

    Attributes:
        drawn: True where a temperature is above zero.
        filtered: True where top-k, top-p or min-p leave tokens out.
        penalised: True where tokens seen before are less likely.
    """

    drawn: bool = True
    filtered: bool = True
    penalised: bool = True

    @classmethod
    def of(cls, call: DecodeCall) -> TokenChoice:
        """The work that a call takes."""
        drawn = bool((call.temperature > 0).any())
        filtered = bool((call.top_k > 0).any() or (call.top_p < 1).any() or (call.min_p > 0).any())
        return cls(drawn, drawn and filtered, call.history is not None)


class DecodeStep(nn.Module):
    """One step of all slots.

    Args:
        model: The model.
        cache: Its cache.
        shape: Slots, steps and reported log-probabilities.
        choice: Work of choosing a token.
    """

    def __init__(self, model: CausalModel, cache: PagedCache, shape: Shape, choice: TokenChoice) -> None:
        super().__init__()
        self.model, self.cache, self.shape, self.choice = model, cache, shape, choice
        slots, steps = shape.slots, shape.steps
        for name in ("token", "place", "left", "count"):
            self.register_buffer(name, torch.zeros(slots, dtype=torch.int32))
        self.register_buffer("made", torch.zeros(slots, steps, dtype=torch.int32))
        self.register_buffer("alive", torch.zeros((), dtype=torch.bool))
        self.register_buffer("seen", torch.zeros(slots, model.config.vocabulary, dtype=torch.bool))
        if shape.top:
            self.register_buffer("logprobs", torch.zeros(slots, steps))
            self.register_buffer("top_ids", torch.zeros(slots, steps, shape.top, dtype=torch.int32))
            self.register_buffer("top_logprobs", torch.zeros(slots, steps, shape.top))

    token: Tensor
    place: Tensor
    left: Tensor
    count: Tensor
    made: Tensor
    alive: Tensor
    seen: Tensor
    logprobs: Tensor
    top_ids: Tensor
    top_logprobs: Tensor

    def share_state(self, other: DecodeStep) -> None:
        """One state for this step and another one of the same shape."""
        for name, buffer in other.named_buffers(recurse=False):
            self._buffers[name] = buffer

    def recall(self, history: Tensor) -> None:
        """Tokens seen before, i32[slots, positions], padded with one of them."""
        self.seen.zero_()
        self.seen.scatter_(1, history.long(), True)

    def results(self) -> tuple[Tensor, ...]:
        """Tokens made in this call, their counts, and log-probabilities where they are reported."""
        reports = (self.logprobs, self.top_ids, self.top_logprobs) if self.shape.top else ()
        return tuple(x.clone() for x in (self.made, self.count, *reports))

    def begin(self, tokens: Tensor, first: Tensor, steps: Tensor) -> None:
        """The state before the first step of a call: last tokens, their positions and steps left, i32[slots] each."""
        self.token.copy_(tokens)
        self.place.copy_(first)
        self.left.copy_(steps)
        self.count.zero_()
        self.alive.copy_((steps > 0).any())

    def forward(self, table: Tensor, end_ids: Tensor, settings: SettingTensors | None) -> None:
        """One step: what follows the last tokens is chosen, and becomes the last tokens."""
        hidden = self.model(self.token[:, None], self.cache.view(table, self.place, 1))
        logits = self.model.head(hidden[:, 0]).float()
        self._advance(logits, self._chosen(logits, settings), end_ids)

    def _chosen(self, logits: Tensor, settings: SettingTensors | None) -> Sampled:
        """The next token of each slot; greedy ones are the same as those that :func:`sample` takes."""
        seen = self.seen if self.choice.penalised else None
        if settings is not None and self.choice.drawn:
            return sample(logits, settings, self.place + 1, seen, filtered=self.choice.filtered)
        values = logits if seen is None or settings is None else penalised(logits, seen, settings.repetition_penalty)
        token = values.argmax(-1)
        own = logits.gather(1, token[:, None])[:, 0]
        # A sum shows what a maximum hides: the machine's maximum of a number and NaN is the number.
        total = logits.logsumexp(-1)
        return Sampled(token.int(), own - total, ~(total.abs() < torch.inf))

    def _advance(self, logits: Tensor, sampled: Sampled, end_ids: Tensor) -> None:
        """The state after each active slot has taken the token chosen for it."""
        active = self.left > 0
        chosen = torch.where(sampled.bad, NOT_A_NUMBER, sampled.token)
        here = (torch.arange(self.shape.steps) == self.count[:, None]) & active[:, None]
        self.made.copy_(torch.where(here, chosen[:, None], self.made))
        if self.shape.top:
            values, ids = top_log_probabilities(logits, self.shape.top)
            self.logprobs.copy_(torch.where(here, sampled.log_probability[:, None], self.logprobs))
            self.top_ids.copy_(torch.where(here[..., None], ids[:, None], self.top_ids))
            self.top_logprobs.copy_(torch.where(here[..., None], values[:, None], self.top_logprobs))
        self.count.add_(active.int())
        self.place.add_(active.int())
        self.token.copy_(torch.where(active, chosen, self.token).clamp(min=0))
        if self.choice.penalised:
            self.seen.scatter_(1, self.token.long()[:, None], True)
        is_last = (chosen[:, None] == end_ids).any(-1) | (chosen == NOT_A_NUMBER)
        self.left.copy_(torch.where(is_last, 0, self.left - 1).clamp(min=0))
        self.alive.copy_((self.left > 0).any())
