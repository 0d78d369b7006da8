"""Sampling against transformers' processors of logits and against the softmax it draws from."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import transformers as tf
from scipy.stats import chisquare

from abele import poptorch
from abele.llm.sampling import (
    SamplingSettingError,
    SamplingSettings,
    SettingTensors,
    cut,
    sample,
    top_log_probabilities,
)

_SETTINGS = [
    SamplingSettings(temperature=0.0),
    SamplingSettings(temperature=0.7, top_k=9, seed=1),
    SamplingSettings(temperature=1.4, top_p=0.8, seed=2),
    SamplingSettings(temperature=1.0, top_k=40, top_p=0.6, min_p=0.01, seed=2**40),
    SamplingSettings(temperature=2.0, min_p=0.1, repetition_penalty=1.7, seed=-1),
    SamplingSettings(temperature=1.0, top_k=1, seed=3),
]


def _logits(rows: int, count: int = 211) -> torch.Tensor:
    return torch.randn(rows, count, generator=torch.Generator().manual_seed(0)) * 3


def _warped(logits: torch.Tensor, s: SamplingSettings) -> torch.Tensor:
    """Logits after transformers' own processors, in its order."""
    ids = torch.zeros(1, 1, dtype=torch.int64)
    steps = [tf.TemperatureLogitsWarper(s.temperature or 1.0)]
    steps += [tf.TopKLogitsWarper(s.top_k)] if s.top_k else []
    steps += [tf.TopPLogitsWarper(s.top_p)] if s.top_p < 1 else []
    steps += [tf.MinPLogitsWarper(s.min_p)] if s.min_p else []
    for step in steps:
        logits = step(ids, logits)
    return logits


def test_cut__top_k_top_p_and_min_p__keep_the_tokens_that_transformers_keeps() -> None:
    logits = _logits(len(_SETTINGS))
    settings = SettingTensors.of(_SETTINGS)
    x = logits / torch.where(settings.temperature > 0, settings.temperature, 1.0)[:, None]
    x = x - x.amax(-1, keepdim=True)
    kept = x >= cut(x, settings)[:, None]
    want = torch.cat([_warped(row[None], s) for row, s in zip(logits, _SETTINGS, strict=True)])
    assert torch.equal(kept, want > -math.inf)


def test_sample__many_positions__draws_from_the_softmax() -> None:
    s, count = SamplingSettings(temperature=1.3, top_k=12, repetition_penalty=1.5, seed=11), 6000
    row = _logits(1, 40)
    seen = torch.arange(40)[None] % 3 == 0
    settings = SettingTensors(*(t.expand(count) for t in SettingTensors.of([s])))
    positions = torch.arange(count, dtype=torch.int32)
    drawn = sample(row.expand(count, -1), settings, positions, seen.expand(count, -1)).token
    processor = tf.RepetitionPenaltyLogitsProcessor(s.repetition_penalty)
    chances = _warped(processor(torch.arange(0, 40, 3)[None], row), s).softmax(-1)[0].double().numpy()
    counts = np.bincount(drawn.numpy(), minlength=40)
    assert not counts[chances == 0].any()
    kept = chances > 0
    expected = chances[kept] / chances.sum() * count
    assert kept.sum() == 12
    assert expected.min() > 5
    assert chisquare(counts[kept], expected).pvalue > 1e-3


def test_sample__other_sequences_beside__text_is_the_same() -> None:
    logits, settings = _logits(6), SettingTensors.of(_SETTINGS)
    positions = torch.arange(6, dtype=torch.int32) * 100
    together = sample(logits, settings, positions)
    for i in range(6):
        alone = sample(logits[i : i + 1], SettingTensors(*(t[i : i + 1] for t in settings)), positions[i : i + 1])
        assert alone.token == together.token[i]
    assert together.token[0] == logits[0].argmax()
    want = logits.log_softmax(-1)[torch.arange(6), together.token.long()]
    torch.testing.assert_close(together.log_probability, want)


def test_sample__nan_or_nothing_finite__is_flagged() -> None:
    logits = _logits(4)
    logits[0, 7] = math.nan
    logits[1, 7] = math.inf
    logits[2] = -math.inf
    logits[3, 5:] = -math.inf
    drawn = sample(logits, SettingTensors.of([SamplingSettings(seed=4)] * 4), torch.zeros(4, dtype=torch.int32))
    assert drawn.bad.tolist() == [True, True, True, False]
    assert drawn.token[3] < 5


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", -0.1), ("top_k", 1.5), ("top_p", 0.0), ("min_p", 2.0), ("repetition_penalty", math.nan)],
)
def test_settings__out_of_range__are_refused(name: str, value: float) -> None:
    with pytest.raises(SamplingSettingError, match=f"{name} is {value!r}"):
        SamplingSettings(**{name: value})  # type: ignore[arg-type]


class _Sampler(torch.nn.Module):
    def forward(self, logits, settings, positions, seen):  # type: ignore[no-untyped-def]
        return sample(logits, settings, positions, seen), top_log_probabilities(logits, 4)


def test_sample__on_the_device__is_what_pytorch_chooses() -> None:
    logits, settings = _logits(6), SettingTensors.of(_SETTINGS)
    logits[1, 3] = math.nan
    seen = torch.rand(6, 211, generator=torch.Generator().manual_seed(1)) < 0.3
    inputs = logits, settings, torch.arange(6, dtype=torch.int32), seen
    want, (best, tokens) = _Sampler()(*inputs)
    got, (best_there, tokens_there) = poptorch.inferenceModel(_Sampler())(*inputs)
    assert got.bad.tolist() == want.bad.tolist() == [False, True, False, False, False, False]
    good = ~want.bad
    assert torch.equal(got.token[good], want.token[good])
    torch.testing.assert_close(got.log_probability[good], want.log_probability[good], rtol=1e-5, atol=1e-5)
    assert torch.equal(tokens_there[good], tokens[good])
    torch.testing.assert_close(best_there[good], best[good], rtol=1e-5, atol=1e-5)
