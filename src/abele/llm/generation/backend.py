"""Backends: models behind calls of fixed shapes, over one cache that stays where it is.

With 8 slots, chunks of 64 tokens and tables of 128 pages, a prompt of 150 tokens takes three prefill calls with
tokens[64] and table[128]; then each decode call takes one token per slot and runs up to ``steps`` steps of all 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from abele.errors import InvalidOptionError
from abele.llm.generation.events import StepCost

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]

MOST_END_IDS = 8
NOT_A_NUMBER = -1
"""Token of a step whose logits were NaN."""


class BackendSizeError(InvalidOptionError):
    """Slots, pages, chunks or steps of a backend that do not go together."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes that a backend is made for.

    Attributes:
        slots: Sequences per decode call.
        positions: Longest sequence.
        page: Positions per page of the cache.
        pages: Pages of the cache, the scratch page included.
        chunk: Tokens per prefill call.
        steps: Most steps per decode call.
        top: Most likely tokens that each step reports; 0 where log-probabilities are not reported at all.

    Raises:
        BackendSizeError: One of them is below 1, or a cache has fewer than 2 pages.
    """

    slots: int
    positions: int
    page: int
    pages: int
    chunk: int
    steps: int
    top: int = 0

    def __post_init__(self) -> None:
        for name, least in (
            ("slots", 1),
            ("positions", 2),
            ("page", 1),
            ("pages", 2),
            ("chunk", 1),
            ("steps", 1),
            ("top", 0),
        ):
            size = getattr(self, name)
            if not isinstance(size, int) or isinstance(size, bool) or not least <= size < 2**31:
                raise BackendSizeError(f"{name} is {size!r}, must be a whole number, {least} or more", at=name)

    @property
    def table(self) -> int:
        """Pages per sequence."""
        return -(-self.positions // self.page)


@dataclass(frozen=True, kw_only=True)
class PrefillCall:
    """A chunk of one prompt.

    Attributes:
        tokens: i32[chunk]; those behind ``count`` are padding.
        first: Position of the first token.
        count: Tokens that count.
        table: Pages of the sequence, i32[table].
    """

    tokens: Ints
    first: int
    count: int
    table: Ints


@dataclass(frozen=True, kw_only=True)
class DecodeCall:
    """Steps of all slots.

    Attributes:
        tokens: Last token of each slot's sequence, i32[slots].
        first: Its position, i32[slots].
        table: Pages of each sequence, i32[slots, table]; zeros for idle slots.
        steps: Most steps of each slot, i32[slots]: 0 for idle slots.
        end_ids: Tokens that end a sequence, i32[slots, MOST_END_IDS], padded with −1.
        temperature: f32[slots]; 0 is greedy.
        top_k: i32[slots]; 0 for all tokens.
        top_p: f32[slots].
        min_p: f32[slots].
        penalty: Repetition penalty, f32[slots].
        seeds: i32[slots].
        history: Tokens of each sequence, i32[slots, positions], padded with one of them; None without penalties.
    """

    tokens: Ints
    first: Ints
    table: Ints
    steps: Ints
    end_ids: Ints
    temperature: Floats
    top_k: Ints
    top_p: Floats
    min_p: Floats
    penalty: Floats
    seeds: Ints
    history: Ints | None = None


_NO_COST = StepCost()


@dataclass(frozen=True, kw_only=True)
class DecodedTokens:
    """Tokens of one decode call.

    Attributes:
        tokens: i32[slots, steps]; NOT_A_NUMBER where logits were NaN.
        counts: Tokens of each slot, i32[slots].
        logprobs: Log-probability of each token, f32[slots, steps]; None where the shape has no ``top``.
        top_ids: Most likely tokens, i32[slots, steps, top].
        top_logprobs: Their log-probabilities, f32[slots, steps, top].
        cost: Modelled time of the call.
    """

    tokens: Ints
    counts: Ints
    logprobs: Floats | None = None
    top_ids: Ints | None = None
    top_logprobs: Floats | None = None
    cost: StepCost = _NO_COST


class Backend(Protocol):
    """A model with its cache. Calls come from one thread, one after the other."""

    @property
    def shape(self) -> Shape:
        """Sizes of its calls."""
        ...

    @property
    def vocabulary(self) -> int:
        """Tokens that it knows."""
        ...

    def prefill(self, call: PrefillCall) -> StepCost:
        """Writes the keys and values of a chunk to the cache."""
        ...

    def decode(self, call: DecodeCall) -> DecodedTokens:
        """Draws tokens for every slot, and writes the keys and values of what it is given."""
        ...

    def copy_pages(self, sources: Ints, targets: Ints) -> StepCost:
        """Copies pages of the cache, all read before any is written."""
        ...


class ScoringBackend(Backend, Protocol):
    """A backend that gives logits to the host, for what is decided there."""

    def score(self, call: PrefillCall) -> tuple[Floats, StepCost]:
        """Logits f32[count, vocabulary] of what follows each token of a chunk, which is written to the cache."""
        ...
