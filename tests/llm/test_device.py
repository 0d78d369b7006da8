"""Models of ours on the device: prompts and steps over one cache, against plain PyTorch.

Llama itself is in ``generation/test_compiled.py``.
"""

from __future__ import annotations

import copy

import pytest
import torch

from abele import poptorch
from abele.llm.cache import PagedCache
from abele.llm.models.causal import CausalModel
from abele.llm.models.parts import join_products
from llm.families import pair

I32 = torch.int32


class _Step(torch.nn.Module):
    def __init__(self, model: CausalModel, cache: PagedCache) -> None:
        super().__init__()
        self.model, self.cache = model, cache

    def forward(self, tokens, first, table, count):  # type: ignore[no-untyped-def]
        return self.model.step(tokens, first, table, self.cache, count)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt-j", "gemma 2", "mixtral"])
@torch.no_grad()
def test_step__prompt_and_next_tokens__are_those_of_pytorch(name: str) -> None:
    _, model = pair(name)
    step = _Step(join_products(model), PagedCache.of(model.config, pages=9, page=4))
    host = copy.deepcopy(step)
    tokens = torch.randint(0, 67, (2, 10), generator=torch.Generator().manual_seed(2))
    table, counts = torch.tensor([[3, 1, 5], [2, 8, 7]], dtype=I32), torch.tensor([7, 3], dtype=I32)
    prefill, decode = poptorch.inferenceModel(step), poptorch.inferenceModel(step)
    inputs = tokens[:, :7].contiguous(), torch.zeros(2, dtype=I32), table, counts
    torch.testing.assert_close(prefill(*inputs), host(*inputs), rtol=1e-4, atol=2e-5)
    prefill.copyWeightsToHost()
    for i in range(3):
        inputs = tokens[[0, 1], counts + i][:, None], counts + i, table, torch.ones(2, dtype=I32)
        torch.testing.assert_close(decode(*inputs), host(*inputs), rtol=1e-4, atol=2e-5)


@torch.no_grad()
def test_join_products__logits__stay() -> None:
    _, model = pair("qwen 2")
    tokens = torch.arange(12)[None]
    before = model.logits(tokens)
    names = dict(join_products(model).named_parameters())
    assert "layers.0.attention.joined.bias" in names
    assert "layers.0.wide.gate.weight" not in names
    torch.testing.assert_close(model.logits(tokens), before)
