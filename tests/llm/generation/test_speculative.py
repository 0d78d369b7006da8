"""Speculative decoding: greedy text of the large model, and its distribution otherwise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from abele.llm.config import LlamaConfig
from abele.llm.generation import Generator, Request, RequestError, Speculation
from abele.llm.generation.speculative import Chooser
from abele.llm.models.llama import Llama
from abele.llm.sampling import SettingTensors, sample
from llm.families import pair

SIZES = {"slots": 1, "positions": 64, "page": 4, "chunk": 8}


def _near(model: torch.nn.Module, noise: float) -> torch.nn.Module:
    """A model that often agrees with this one."""
    _, near = pair("llama")
    with torch.no_grad():
        for value in near.parameters():
            value.add_(torch.randn(value.shape, generator=torch.Generator().manual_seed(3)) * noise)
    return near


@pytest.mark.parametrize(("noise", "least"), [(0.0, 1.0), (0.005, 0.4)])
def test_greedy__with_any_draft__is_the_text_of_the_large_model(noise: float, least: float) -> None:
    _, model = pair("llama")
    both = Speculation(Generator(model, **SIZES), Generator(_near(model, noise), **SIZES), drafted=3)
    for prompt, options in (
        ([1, 2, 3], {}),
        ([5] * 9, {"repetition_penalty": 1.5}),
        ([60] * 50, {"max_tokens": None}),
        ([4, 4], {"end_ids": [11, 5, 40]}),
        ([8], {"max_tokens": 1}),
    ):
        settings = {"max_tokens": 15, **options}
        (wanted,) = Generator(model, **SIZES).generate([prompt], **settings)
        made = both.generate(prompt, **settings)
        assert (made.ids, made.finish_reason) == (wanted.ids, wanted.finish_reason)
    assert both.num_kept >= least * both.num_drafted
    assert both.target.scheduler.pool.num_held == both.draft.scheduler.pool.num_held == 0
    assert not both.target.scheduler.running


def test_draws__of_drafts_that_are_checked__have_the_large_model_s_distribution() -> None:
    share, wanted = np.array([0.5, 0.3, 0.2, 0.0, 0.0]), np.array([0.1, 0.4, 0.0, 0.3, 0.2])
    chooser, draws = Chooser(Request(prompt=(1,), temperature=1.0), 3), 6000
    drafts = [chooser.drawn(share, place, 1) for place in range(draws)]
    found = [chooser.checked(token, share, wanted, place) for place, token in enumerate(drafts)]
    for tokens, chances in ((drafts, share), (found, wanted)):
        counts = np.bincount(tokens, minlength=5) / draws
        assert (np.abs(counts - chances) <= 4 * np.sqrt(chances * (1 - chances) / draws)).all()
    kept = np.mean([a == b for a, b in zip(drafts, found, strict=True)])
    assert kept == pytest.approx(np.minimum(share, wanted).sum(), abs=0.03)


def test_distribution__of_settings__is_what_the_sampler_draws_from() -> None:
    logits = np.random.default_rng(1).normal(0, 3, 50).astype(np.float32)
    request = Request(prompt=(1,), temperature=0.7, top_k=20, top_p=0.9, min_p=0.01, repetition_penalty=1.3)
    chooser = Chooser(request, 0)
    share = chooser.distribution(logits, [1, 4, 9])
    draws, many = 4000, chooser.settings
    rows = [torch.cat([x] * draws) for x in many]
    seen = torch.zeros(draws, 50, dtype=torch.bool)
    seen[:, [1, 4, 9]] = True
    made = sample(torch.from_numpy(logits).expand(draws, -1), SettingTensors(*rows), torch.arange(draws).int(), seen)
    counts = np.bincount(made.token.numpy(), minlength=50) / draws
    assert set(np.flatnonzero(counts)) <= set(np.flatnonzero(share))
    assert (np.abs(counts - share) <= 4.5 * np.sqrt(share * (1 - share) / draws)).all()


def test_draws__with_one_seed__are_one_text() -> None:
    _, model = pair("llama")
    both = Speculation(Generator(model, **SIZES), Generator(_near(model, 0.005), **SIZES))
    texts = [both.generate([1, 2], temperature=0.8, seed=seed, max_tokens=12).ids for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert 0 < both.num_kept < both.num_drafted


def test_speculation__models_and_requests_that_do_not_fit__are_refused() -> None:
    _, model = pair("llama")
    other = Llama(LlamaConfig(vocabulary=9, hidden=8, layers=1, heads=1, kv_heads=1, head_size=8, wide=8, positions=64))
    with pytest.raises(RequestError, match="a draft model of 9 tokens, for one of 67"):
        Speculation(Generator(model, **SIZES), Generator(other, **SIZES))
    both = Speculation(Generator(model, **SIZES), Generator(model, **SIZES))
    with pytest.raises(RequestError, match="n or logprobs with a draft model"):
        both.generate([1], n=2)
    both.draft.submit([1])
    with pytest.raises(RequestError, match="beside other sequences"):
        both.generate([1])
