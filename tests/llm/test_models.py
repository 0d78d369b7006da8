"""Models against transformers' with the same weights."""

from __future__ import annotations

import pytest
import torch

from abele.llm.cache import CacheSizeError, PagedCache
from abele.llm.config import LlamaConfig, ModelConfigError, NeoXConfig, Rotary
from abele.llm.models.t5 import CrossCache
from llm.families import FAMILIES, pair, t5_pair

I32 = torch.int32


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_logits__whole_and_through_the_cache__are_those_of_transformers(name: str) -> None:
    oracle, model = pair(name)
    tokens = torch.randint(0, 67, (2, 12), generator=torch.Generator().manual_seed(2))
    want = oracle(tokens, use_cache=False).logits
    torch.testing.assert_close(model.logits(tokens), want, rtol=1e-4, atol=1e-5)

    cache = PagedCache.of(model.config, pages=9, page=4)
    table = torch.tensor([[3, 1, 5], [2, 8, 7]], dtype=I32)
    counts = torch.tensor([7, 3], dtype=I32)  # the second prompt is shorter: 4 tokens of it are padding
    got = model.step(tokens[:, :7], torch.zeros(2, dtype=I32), table, cache, counts)
    torch.testing.assert_close(got, want[[0, 1], counts - 1], rtol=1e-4, atol=1e-5)
    for i in range(5):
        places = counts + i
        got = model.step(tokens[[0, 1], places][:, None], places, table, cache)
        torch.testing.assert_close(got, want[[0, 1], places], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("gated", [False, True])
@torch.no_grad()
def test_t5__texts_of_different_lengths__decodes_as_transformers(gated: bool) -> None:
    oracle, model = t5_pair(gated=gated)
    generator = torch.Generator().manual_seed(2)
    texts, tokens = (torch.randint(0, 67, (2, n), generator=generator) for n in (17, 15))
    lengths, slots = torch.tensor([17, 6], dtype=I32), torch.tensor([2, 0], dtype=I32)
    mask = torch.arange(17) < lengths[:, None]
    want = oracle(texts, attention_mask=mask, decoder_input_ids=tokens, use_cache=False).logits

    cross = CrossCache(model.config, slots=3, length=17)
    model.remember(model.encode(texts, lengths), lengths, cross, slots)
    torch.testing.assert_close(model.head(model(tokens, cross, slots)), want, rtol=1e-4, atol=2e-5)
    cache = PagedCache.of(model.config, pages=9, page=4)
    table = torch.tensor([[3, 1, 5, 6], [2, 8, 7, 4]], dtype=I32)
    for i in range(15):
        got = model.step(tokens[:, i : i + 1], torch.full((2,), i, dtype=I32), table, cache, cross, slots)
        torch.testing.assert_close(got, want[:, i], rtol=1e-4, atol=2e-5)


@torch.no_grad()
def test_cache__a_sequence_without_pages__harms_nobody() -> None:
    _, model = pair("llama")
    tokens = torch.randint(0, 67, (2, 6), generator=torch.Generator().manual_seed(2))
    cache = PagedCache.of(model.config, pages=3, page=4)
    table = torch.tensor([[2, 1], [0, 0]], dtype=I32)
    whole = model.logits(tokens[:1])
    for i in range(6):
        got = model.step(tokens[:, i : i + 1], torch.tensor([i, 40 * i], dtype=I32), table, cache)
        torch.testing.assert_close(got[:1], whole[:, i], rtol=1e-4, atol=1e-5)


def test_config__sizes_that_do_not_go_together__are_refused() -> None:
    sizes = {"vocabulary": 8, "hidden": 8, "layers": 1, "heads": 3, "kv_heads": 2, "head_size": 4, "wide": 8}
    with pytest.raises(ModelConfigError, match="3 heads of queries cannot share 2 heads"):
        LlamaConfig(**sizes, positions=8)
    with pytest.raises(ModelConfigError, match="positions is 0"):
        LlamaConfig(**(sizes | {"heads": 2}), positions=0)
    with pytest.raises(ModelConfigError, match="they turn in pairs"):
        NeoXConfig(**(sizes | {"heads": 2}), positions=8)
    with pytest.raises(ModelConfigError, match="rotary layout 'quarters' is unknown"):
        Rotary(layout="quarters")  # type: ignore[arg-type]
    with pytest.raises(CacheSizeError, match="page 0 is scratch"):
        PagedCache(layers=1, pages=1, page=4, kv_heads=1, head_size=4)
