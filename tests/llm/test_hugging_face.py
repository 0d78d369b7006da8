"""Models of transformers as they are, generating on the device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from abele import poptorch
from abele.frontends.poptorch.hugging_face.cached import GenerationError
from llm.families import pair

_PROMPTS = torch.tensor([[5, 9, 33, 12, 60, 7], [0, 0, 41, 8, 19, 3]])
_MASK = (torch.arange(6) >= torch.tensor([[0], [2]])).long()
_PLAIN: dict[str, Any] = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}


def _oracle(name: str) -> Any:
    model, _ = pair(name)
    model.generation_config.eos_token_id = None
    return model


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "gpt-2"])
def test_generate__padded_prompts__makes_the_text_of_transformers(name: str) -> None:
    model = _oracle(name)
    want = model.generate(_PROMPTS, attention_mask=_MASK, max_new_tokens=5, **_PLAIN)
    got = poptorch.generate(model, _PROMPTS, _MASK, max_new_tokens=5, pad_token_id=0)
    assert torch.equal(got, want)
    end = int(want[0, 7])  # the first sequence ends with its second token, and is padded from there on
    want = model.generate(_PROMPTS, attention_mask=_MASK, max_new_tokens=5, **(_PLAIN | {"eos_token_id": end}))
    got = poptorch.generate(model, _PROMPTS, _MASK, max_new_tokens=5, pad_token_id=0, eos_token_id=end)
    assert torch.equal(got, want)


@pytest.mark.slow
def test_generate__drawn__depends_on_prompt_and_seed_alone() -> None:
    model = _oracle("neox")
    settings: dict[str, Any] = {"max_new_tokens": 5, "do_sample": True, "temperature": 1.5, "top_k": 20}
    both = poptorch.generate(model, _PROMPTS, _MASK, seed=[3, 8], **settings)
    assert torch.equal(poptorch.generate(model, _PROMPTS[1:], _MASK[1:], seed=8, **settings), both[1:])
    assert not torch.equal(poptorch.generate(model, _PROMPTS, _MASK, seed=[4, 9], **settings), both)


@pytest.mark.slow
def test_generating__greedy_and_beams__are_those_of_the_host() -> None:
    model = _oracle("mistral")
    greedy = model.generate(_PROMPTS, attention_mask=_MASK, max_new_tokens=5, **_PLAIN)
    beams = model.generate(_PROMPTS[:1], max_new_tokens=5, num_beams=2, **_PLAIN)
    with poptorch.generating(model, batch=2, length=16) as cache:
        got = model.generate(_PROMPTS, attention_mask=_MASK, cache=cache, max_new_tokens=5, **_PLAIN)
        assert torch.equal(got, greedy)
        cache.reset()
        assert torch.equal(model.generate(_PROMPTS[:1], cache=cache, max_new_tokens=5, num_beams=2, **_PLAIN), beams)
        with pytest.raises(GenerationError, match="in a cache of 16"):
            model.generate(_PROMPTS, attention_mask=_MASK, cache=cache, max_new_tokens=15, **_PLAIN)
    assert "forward" not in model.__dict__


def test_generate__prompts_and_models_that_cannot__are_refused() -> None:
    model = _oracle("gpt-2")
    with pytest.raises(GenerationError, match="a prompt of nothing"):
        poptorch.generate(model, torch.zeros(1, 0, dtype=torch.int64))
    with pytest.raises(GenerationError, match="3 too many"):
        poptorch.generate(model, _PROMPTS, _MASK, max_new_tokens=61)
    with pytest.raises(GenerationError, match="padded on the right"):
        poptorch.generate(model, _PROMPTS, _MASK.flip(1))
    with pytest.raises(GenerationError, match="max_new_tokens is 0"):
        poptorch.generate(model, _PROMPTS, max_new_tokens=0)
    with pytest.raises(GenerationError, match="does not predict tokens"):
        poptorch.generate(torch.nn.Linear(2, 2), _PROMPTS)
    with pytest.raises(ValueError, match="temperature is -1"):
        poptorch.generate(model, _PROMPTS, temperature=-1.0)
