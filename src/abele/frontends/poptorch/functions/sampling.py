"""The next token of each sequence: greedy, or drawn with noise that the device makes.

A token drawn from a softmax is the argmax of logits / temperature plus Gumbel noise, so one pass over the vocabulary
draws. The noise of a sequence comes from its seed and its position alone: a text is the same whatever else is in the
batch.

Top-k and top-p keep the tokens above a threshold, which a search finds: each round counts what lies above 3 thresholds,
and 16 rounds narrow 105 units of log-probability to below the spacing of f32. Nothing sorts the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from abele.errors import InvalidOptionError
from abele.frontends.poptorch.functions.keyed_draws import keyed_uniform

LOWEST = -104.0
"""Logits relative to the highest below which e^x is zero in f32, and no noise makes a token win."""
_WAYS, _ROUNDS = 3, 16


class SamplingSettingError(InvalidOptionError):
    """A setting of sampling outside its range."""


@dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """Choice of one sequence's tokens.

    Attributes:
        temperature: Divisor of logits; 0 takes the highest logit.
        top_k: Highest tokens that may be drawn; 0 for all.
        top_p: Probability that the highest tokens which may be drawn must reach; 1 for all.
        min_p: Probability, relative to the highest, below which tokens are not drawn.
        repetition_penalty: Divisor of positive and factor of negative logits of tokens seen before.
        seed: Seed of the noise.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low, high, above in (
            ("temperature", 0.0, math.inf, False),
            ("top_k", 0, 2**31 - 1, False),
            ("top_p", 0.0, 1.0, True),
            ("min_p", 0.0, 1.0, False),
            ("repetition_penalty", 0.0, math.inf, True),
            ("seed", -(2**63), 2**64 - 1, False),
        ):
            value = getattr(self, name)
            whole = name in ("top_k", "seed")
            fits = not isinstance(value, bool) and isinstance(value, int if whole else (int, float))
            if not fits or not low <= value <= high or value == math.inf or (above and value == low):
                least = "above" if above else "at least"
                bound = f"{least} {low:g}" + ("" if high == math.inf else f" and at most {high:g}")
                kind = "a whole number" if whole else "a number"
                raise SamplingSettingError(f"{name} is {value!r}", because=f"it is {kind} {bound}")


class SettingTensors(NamedTuple):
    """Settings of a batch of sequences, one element per sequence.

    Attributes:
        temperature: f32[B].
        top_k: i32[B].
        top_p: f32[B].
        min_p: f32[B].
        repetition_penalty: f32[B].
        seed: i32[B].
    """

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    repetition_penalty: torch.Tensor
    seed: torch.Tensor

    @classmethod
    def of(cls, settings: Sequence[SamplingSettings]) -> SettingTensors:
        """The settings of sequences side by side; seeds of 64 bits are folded to 32."""
        if not settings:
            raise SamplingSettingError("settings of no sequence", remedy="one SamplingSettings per sequence")
        columns = {}
        for name in cls._fields:
            values = [_folded(s.seed) if name == "seed" else getattr(s, name) for s in settings]
            columns[name] = torch.tensor(values, dtype=torch.int32 if name in ("seed", "top_k") else torch.float32)
        return cls(**columns)


def _folded(seed: int) -> int:
    """The halves of a seed of 64 bits, the high one multiplied by an odd number, as i32."""
    word = (seed ^ ((seed >> 32) * 0x9E3779B1)) & 0xFFFFFFFF
    return word - (1 << 32) if word >> 31 else word


class Sampled(NamedTuple):
    """Chosen tokens.

    Attributes:
        token: i32[B].
        log_probability: Of the token by the model's own logits, before any setting changes them, f32[B].
        bad: True where logits hold NaN or +∞, or nothing finite: the token means nothing, bool[B].
    """

    token: torch.Tensor
    log_probability: torch.Tensor
    bad: torch.Tensor


def gumbel(seeds: torch.Tensor, positions: torch.Tensor, count: int) -> torch.Tensor:
    """Gumbel noise f32[B, count] of sequences with these seeds i32[B] at these positions i32[B]."""
    drawn = keyed_uniform(torch.stack((seeds, positions.to(seeds.dtype)), -1), count)
    return -torch.log(-torch.log(drawn))


def penalised(logits: torch.Tensor, seen: torch.Tensor, penalty: torch.Tensor) -> torch.Tensor:
    """Logits [B, V], those of tokens ``seen`` bool[B, V] made less likely by ``penalty`` [B]."""
    factor = penalty[:, None]
    return torch.where(seen, torch.where(logits > 0, logits / factor, logits * factor), logits)


def threshold(x: torch.Tensor, weights: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Highest threshold [B] such that the weights of elements at or above it sum to ``target`` [B] at least.

    Args:
        x: Numbers [B, V] up to 0; those below ``LOWEST`` always pass.
        weights: Weight of each, not negative, [B, V].
        target: Sum to reach; where all together do not, the threshold is ``LOWEST``.
    """
    low = torch.full_like(target, LOWEST)
    high = torch.ones_like(target)
    shares = torch.arange(1, _WAYS + 1, dtype=x.dtype, device=x.device) / (_WAYS + 1)
    for _ in range(_ROUNDS):
        tried = low[:, None] + (high - low)[:, None] * shares
        above = x[:, None] >= tried[:, :, None]
        enough = torch.where(above, weights[:, None], 0.0).sum(-1) >= target[:, None]
        low = torch.maximum(low, torch.where(enough, tried, LOWEST).amax(-1))
        high = torch.minimum(high, torch.where(enough, 1.0, tried).amin(-1))
    return low


def cut(x: torch.Tensor, settings: SettingTensors) -> torch.Tensor:
    """Thresholds [B] below which no token may be drawn: those of top-k, then top-p of what is left, and min-p.

    Args:
        x: Logits over temperature, less the highest, [B, V].
        settings: Settings of each sequence.
    """
    wanted = torch.where(settings.top_k > 0, settings.top_k, x.shape[1]).to(x.dtype)
    of_k = threshold(x, torch.ones_like(x), wanted)
    mass = torch.where(x >= of_k[:, None], torch.exp(x), 0.0)
    of_p = threshold(x, mass, mass.sum(-1) * settings.top_p)
    of_p = torch.where(settings.top_p < 1, of_p, LOWEST)
    of_m = torch.where(settings.min_p > 0, torch.log(settings.min_p.clamp(min=1e-37)), LOWEST)
    return torch.maximum(torch.maximum(of_k, of_p), of_m)


def sample(
    logits: torch.Tensor,
    settings: SettingTensors,
    positions: torch.Tensor,
    seen: torch.Tensor | None = None,
    *,
    filtered: bool = True,
    draws: bool = True,
) -> Sampled:
    """The next token of each sequence.

    Args:
        logits: Of the model, [B, V].
        settings: Settings of each sequence.
        positions: Position of the token to choose, i32[B]: with the seed it decides the noise.
        seen: Tokens that the repetition penalty applies to, bool[B, V]; by default none.
        filtered: False where no sequence uses top-k, top-p or min-p, which saves the search.
        draws: False where all temperatures are 0, which saves the noise.
    """
    raw = logits.float()
    finite = (raw > -math.inf) & (raw < math.inf)
    bad = ~(finite | (raw == -math.inf)).all(-1) | ~finite.any(-1)
    raw = torch.where(finite, raw, -1e30)
    values = raw if seen is None else penalised(raw, seen, settings.repetition_penalty)
    if not draws:
        return _chosen(raw, values.argmax(-1), bad)
    drawn = settings.temperature > 0
    x = values / torch.where(drawn, settings.temperature, 1.0)[:, None]
    x = x - x.amax(-1, keepdim=True)
    noise = torch.where(drawn[:, None], gumbel(settings.seed, positions, x.shape[1]), 0.0)
    noisy = x + noise
    if filtered:
        noisy = torch.where(x >= cut(x, settings)[:, None], noisy, -1e30)
    return _chosen(raw, noisy.argmax(-1), bad)


def _chosen(raw: torch.Tensor, token: torch.Tensor, bad: torch.Tensor) -> Sampled:
    chosen = raw.gather(1, token[:, None])[:, 0]
    return Sampled(token.to(torch.int32), chosen - torch.logsumexp(raw, -1), bad)


def top_log_probabilities(logits: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities f32[B, count] of the likeliest tokens, in order, and the tokens i32[B, count]."""
    raw = logits.float()
    highest, tokens = raw.topk(count, -1)
    return highest - torch.logsumexp(raw, -1, keepdim=True), tokens.to(torch.int32)
