"""SmolLM2 from its file in eager PyTorch: known tokens and perplexity, beside the package ``gguf``."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from abele.llm.config import SMOLLM2_135M
from abele.llm.loading import LoadedModel, describe, load
from abele.llm.models.causal import CausalModel
from abele.llm.tokenizer import Tokenizer
from abele.weights import open_weights
from llm.smollm2 import CHAT, GOLDEN, PERPLEXITY, SURE, WATER, smollm2_path

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load(smollm2_path())


def _parts(loaded: LoadedModel) -> tuple[CausalModel, Tokenizer]:
    assert isinstance(loaded.model, CausalModel)
    assert loaded.tokenizer is not None
    return loaded.model, loaded.tokenizer


def _perplexity(model: CausalModel, ids: list[int]) -> float:
    with torch.no_grad():
        logits = model.logits(torch.tensor([ids]))[0].float()
    return float(torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])).exp())


def test_read__tensors_of_every_kind__as_gguf_reads_them() -> None:
    file = open_weights(smollm2_path())
    assert len(file) == 272
    for tensor in gguf.GGUFReader(smollm2_path()).tensors:
        if not tensor.name.startswith(("token_embd", "blk.0.", "output")):
            continue
        ours = file[tensor.name]
        want = gguf.quants.dequantize(tensor.data[:64], tensor.tensor_type)
        np.testing.assert_array_equal(ours.read()[:64], want)
        if (matrix := ours.quantised()) is not None:
            np.testing.assert_array_equal(matrix.rows(slice(64)).dequantised(), want)


def test_load__configuration_and_sizes__those_published(loaded: LoadedModel) -> None:
    assert loaded.config == SMOLLM2_135M
    told = describe(smollm2_path())
    assert (told.parameters, told.cache_bytes_per_token()) == (134_515_008, 23_040)


def test_tokenizer__prompts_and_chat__known_tokens(loaded: LoadedModel) -> None:
    _, tokenizer = _parts(loaded)
    assert tokenizer.encode("The capital of France is") == [504, 3575, 282, 4649, 314]
    assert tokenizer.encode("1, 2, 3, 4, 5,")[:5] == [33, 28, 216, 34, 28]
    assert len(tokenizer.encode(WATER)) == 57
    assert tokenizer.decode(GOLDEN["The capital of France is"]) == " Paris.\n\nThe answer is: 2018-01"
    assert len(tokenizer.chat(CHAT[0])) == 34
    assert tokenizer.decode(CHAT[1]).startswith("Gravity is a fundamental concept in physics that describes the curv")
    assert set(tokenizer.ends) == {0, 2}


def test_logits__f32__known_greedy_tokens_and_gaps(loaded: LoadedModel) -> None:
    model, tokenizer = _parts(loaded)
    known = {tuple(tokenizer.encode(prompt)): answer for prompt, answer in GOLDEN.items()}
    for prompt, answer in (known | {tuple(tokenizer.chat(CHAT[0])): CHAT[1]}).items():
        with torch.no_grad():
            logits = model.logits(torch.tensor([[*prompt, *answer]]))[0, len(prompt) - 1 : -1]
        assert logits.argmax(-1).tolist() == answer  # f32 chooses alike even where the gap is .07


def test_f16__perplexity_and_tokens_up_to_the_first_small_gap() -> None:
    model, tokenizer = _parts(load(smollm2_path(), dtype="float16"))
    assert _perplexity(model, tokenizer.encode(WATER)) == pytest.approx(PERPLEXITY, rel=1e-2)
    prompt, answer = "The capital of France is", GOLDEN["The capital of France is"]
    ids = tokenizer.encode(prompt)
    with torch.no_grad():
        best = model.logits(torch.tensor([ids + answer]))[0, len(ids) - 1 : -1].float().topk(2)
    small = (best.values[:, 0] - best.values[:, 1] < SURE).nonzero()[0]
    assert best.indices[: int(small), 0].tolist() == answer[: int(small)]
    assert int(small) >= 5


def test_f32__perplexity__that_of_the_reference(loaded: LoadedModel) -> None:
    model, tokenizer = _parts(loaded)
    assert _perplexity(model, tokenizer.encode(WATER)) == pytest.approx(PERPLEXITY, rel=1e-3)


@pytest.mark.parametrize(("scheme", "tolerance"), [("stored", 1e-3), ("int8", 3e-2)])
def test_quantised__perplexity__within_bounds(scheme: str, tolerance: float) -> None:
    model, tokenizer = _parts(load(smollm2_path(), quantise=scheme))
    assert _perplexity(model, tokenizer.encode(WATER)) == pytest.approx(PERPLEXITY, rel=tolerance)
