"""Requests: a prompt, how its continuation is drawn, and where it ends.

``Request(prompt=[1, 5, 9], max_tokens=32, temperature=0.8, top_p=0.9, seed=7, stop=("\\n\\n",))`` draws up to 32 tokens
of the most likely nine tenths. Every field is checked when the request is made, so that whoever serves strangers can
answer them before anything runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from abele.errors import AbeleError, InvalidOptionError

MOST_COMPLETIONS = 128
MOST_STOPS = 16
LONGEST_STOP = 256
_SEEDS = range(-(2**63), 2**64)


class RequestError(InvalidOptionError):
    """A request of text that cannot be served: its settings, its prompt, or its size."""


class PromptLengthError(RequestError):
    """A prompt without tokens, or one that leaves no room in the context."""


class GeneratorError(AbeleError, RuntimeError):
    """A sequence that went wrong while it was generated; others go on."""


class NotANumberError(GeneratorError):
    """Logits that are NaN: numbers of the model overflowed, or its weights are damaged."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A prompt and how it goes on.

    Attributes:
        prompt: Token ids.
        max_tokens: Most tokens to generate; None for as many as the context has room for.
        temperature: Divisor of logits; 0 takes the most likely token.
        top_k: Number of most likely tokens to draw from; 0 for all.
        top_p: Probability that the tokens to draw from cover, in 0 … 1.
        min_p: Least probability of a token to draw from, as a part of the most likely one's.
        repetition_penalty: Divisor of positive logits, and factor of negative ones, of tokens seen before; 1 for none.
        seed: Whole number of 64 bits that fixes the draws; None draws one.
        stop: Texts that end the continuation, and are not part of it.
        end_ids: Tokens that end it, beside those of the generator.
        logprobs: Number of most likely tokens whose log-probabilities each event reports; None reports none, and 0 that
            of the token itself.
        n: Continuations of this prompt, each with draws of its own.
    """

    prompt: tuple[int, ...]
    max_tokens: int | None = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    end_ids: tuple[int, ...] = ()
    logprobs: int | None = None
    n: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt", _ids("prompt", self.prompt))
        object.__setattr__(self, "end_ids", _ids("end_ids", self.end_ids))
        object.__setattr__(self, "stop", _stops(self.stop))
        if not self.prompt:
            raise PromptLengthError("a prompt without tokens", at="prompt", remedy="begin with the model's first token")
        if self.max_tokens is not None:
            _whole("max_tokens", self.max_tokens, 1, None)
        _number("temperature", self.temperature, 0.0, None)
        _whole("top_k", self.top_k, 0, None)
        _number("top_p", self.top_p, 0.0, 1.0)
        _number("min_p", self.min_p, 0.0, 1.0)
        _number("repetition_penalty", self.repetition_penalty, 0.0, None)
        if self.repetition_penalty == 0:
            raise RequestError("repetition_penalty is 0: logits cannot be divided by it", remedy="1 for no penalty")
        if self.seed is not None and (not _is_whole(self.seed) or self.seed not in _SEEDS):
            raise RequestError(f"seed {_short(self.seed)} is no whole number of 64 bits", at="seed")
        if self.logprobs is not None:
            _whole("logprobs", self.logprobs, 0, None)
        _whole("n", self.n, 1, MOST_COMPLETIONS)


def _short(value: object) -> str:
    """A value as errors quote it: strangers send long ones, and whole numbers too long for ``repr``."""
    try:
        text = repr(value)
    except ValueError:
        text = f"a whole number of {value.bit_length()} bits" if isinstance(value, int) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(name: str, value: Any, least: int, most: int | None) -> None:
    if not _is_whole(value) or value < least or (most is not None and value > most):
        allowed = f"{least} or more" if most is None else f"{least} … {most}"
        raise RequestError(f"{name} is {_short(value)}, must be a whole number, {allowed}", at=name)


def _number(name: str, value: Any, least: float, most: float | None) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        inside = is_number and math.isfinite(value) and value >= least and (most is None or value <= most)
    except OverflowError:
        inside = False
    if not inside:
        allowed = f"{least:g} or more" if most is None else f"{least:g} … {most:g}"
        raise RequestError(f"{name} is {_short(value)}, must be a number, {allowed}", at=name)


def _ids(name: str, ids: Sequence[int]) -> tuple[int, ...]:
    """Token ids as whole numbers; arrays and tensors of them are taken as well."""
    if hasattr(ids, "tolist"):
        ids = ids.tolist()
    if isinstance(ids, str | bytes) or not hasattr(ids, "__iter__"):
        raise RequestError(f"{name} is {_short(ids)}, must be token ids", at=name, remedy="encode the text first")
    found = tuple(ids)
    for i, token in enumerate(found):
        if not _is_whole(token) or not 0 <= token < 2**31:
            raise RequestError(f"{name}[{i}] is {_short(token)}, must be a token id", at=f"{name}[{i}]")
    return found


def _stops(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    stops = () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)
    if len(stops) > MOST_STOPS:
        raise RequestError(f"{len(stops)} stop strings, of at most {MOST_STOPS}", at="stop")
    for i, text in enumerate(stops):
        if not isinstance(text, str) or not text or len(text) > LONGEST_STOP:
            raise RequestError(
                f"stop[{i}] is {_short(text)}, must be a text of 1 … {LONGEST_STOP} characters", at=f"stop[{i}]"
            )
    return stops
