"""Adapters of low rank, losses of packed texts beside texts one by one, and training beside PyTorch's own loop."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from abele import poptorch
from abele.errors import AbeleError, InvalidOptionError
from abele.llm.config import LlamaConfig
from abele.llm.models.llama import Llama
from abele.llm.tuning import (
    LoraLinear,
    PackedModel,
    add_lora,
    load_lora,
    merge_lora,
    perplexity,
    save_lora,
    text_rows,
    tune,
)

TEXTS = [
    "for each item of the list",
    "the list has one item",
    "while it holds",
    "each of them holds",
    "a list of lists, one for each item of the first, is read once",
    "an item",
]


class Letters:
    """A tokenizer of ASCII."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode("ascii"))


TOKENS = torch.arange(22).reshape(2, 11) * 2


def _model(*, quantised: bool = False, **changes: Any) -> Llama:
    torch.manual_seed(3)
    sizes = {"vocabulary": 64, "hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2, "head_size": 8, "wide": 48}
    model = Llama(LlamaConfig(**{**sizes, "positions": 64, **changes}))
    if quantised:
        for name, layer in list(model.layers.named_modules()):
            if isinstance(layer, nn.Linear):
                model.layers.set_submodule(name, poptorch.QuantisedLinear.from_linear(layer, "int8"))
    return model


def _stirred(model: nn.Module) -> nn.Module:
    for layer in model.modules():
        if isinstance(layer, LoraLinear):
            nn.init.normal_(layer.lora_B.weight, std=0.1)
    return model


@pytest.mark.parametrize("quantised", [False, True])
@torch.no_grad()
def test_add_lora__at_first_and_merged__same_numbers(quantised: bool, tmp_path: Path) -> None:
    model = _model(quantised=quantised, query_bias=True)
    before = model.logits(TOKENS)
    names = add_lora(model, rank=4, targets=["query", "value", "down"])
    assert len(names) == 6
    torch.testing.assert_close(model.logits(TOKENS), before)
    assert {name.split(".")[-2] for name, p in model.named_parameters() if p.requires_grad} == {"lora_A", "lora_B"}
    adapted = _stirred(model).logits(TOKENS)  # type: ignore[operator]
    assert (adapted - before).abs().max() > 1e-2
    save_lora(model, tmp_path)
    other = _model(quantised=quantised, query_bias=True)
    assert load_lora(other, tmp_path) == names
    torch.testing.assert_close(other.logits(TOKENS), adapted)
    torch.testing.assert_close(merge_lora(model).logits(TOKENS), adapted, atol=1e-5, rtol=1e-4)  # type: ignore[operator]
    assert not any(isinstance(layer, LoraLinear) for layer in model.modules())


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"rank": 0}, "adapters of rank 0"),
        ({"targets": []}, "adapters on no layers"),
        ({"targets": ["querry"]}, "no linear layer is called 'querry'"),
    ],
)
def test_add_lora__what_cannot_be__is_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        add_lora(_model(), **how)
    with pytest.raises(InvalidOptionError, match="no adapters"):
        save_lora(_model(), "nowhere")


def test_load_lora__other_model_or_damaged_settings__is_refused(tmp_path: Path) -> None:
    model = _model()
    add_lora(model)
    save_lora(model, tmp_path)
    with pytest.raises(AbeleError, match=r"is \(8, 32\), not \(8, 16\)"):
        load_lora(_model_of_16(), tmp_path)
    told = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(told | {"target_modules": ["query"]}))
    with pytest.raises(AbeleError, match="those of another model"):
        load_lora(_model(), tmp_path)
    (tmp_path / "adapter_config.json").write_text("{")
    with pytest.raises(AbeleError, match="cannot be read"):
        load_lora(_model(), tmp_path)


def _model_of_16() -> Llama:
    sizes = {"vocabulary": 64, "hidden": 16, "layers": 2, "heads": 4, "kv_heads": 2, "head_size": 8, "wide": 48}
    return Llama(LlamaConfig(**sizes, positions=64))


@pytest.mark.parametrize("changes", [{}, {"window": 2}, {"score_softcap": 2.0}])
@torch.no_grad()
def test_packed_rows__of_several_texts__have_the_losses_of_each_alone(changes: dict[str, Any]) -> None:
    model, rows = PackedModel(_model(vocabulary=128, **changes)), text_rows(Letters(), TEXTS, length=64)
    assert len(rows) < len(TEXTS)
    packed = sum(model(*batch)[1].item() for batch in rows.batches(1))
    alone = 0.0
    for text in TEXTS:
        ids = torch.tensor([Letters().encode(text)])
        logits = model.model.logits(ids)[0, :-1]
        alone += nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum").item()
    assert packed == pytest.approx(alone, rel=1e-5)


@pytest.mark.parametrize("checkpoints", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_tune__adapters_on_the_device__follows_pytorchs_own_loop(checkpoints: bool) -> None:
    rows = text_rows(Letters(), TEXTS, length=64)
    model = _model(vocabulary=128, layers=1, quantised=True)
    add_lora(model, targets=["query", "value", "down"], rank=2)
    other = PackedModel(copy.deepcopy(model)).train()
    optimizer = torch.optim.AdamW([p for p in other.parameters() if p.requires_grad], lr=0.01)
    frozen = {n: p.clone() for n, p in model.state_dict().items() if "lora" not in n}
    losses = []
    while len(losses) < 4:
        for batch in rows.batches(2, seed=len(losses)):
            loss = other(*batch)[0]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    tuned = tune(model, rows, rows, updates=4, batch=2, lr=0.01, checkpoints=checkpoints)
    assert not [layer for layer in model.layers if "forward" in vars(layer)]
    assert tuned.losses == pytest.approx(losses[:4], rel=1e-4)
    assert tuned.after < tuned.before
    assert all(torch.equal(p, frozen[n]) for n, p in model.state_dict().items() if n in frozen)
    summed = [other.eval()(*batch)[1:] for batch in rows.batches(1)]
    wanted = math.exp(sum(loss.item() for loss, _ in summed) / sum(n.item() for _, n in summed))
    assert perplexity(model, rows) == pytest.approx(wanted, rel=1e-3)


def test_tune__without_what_it_needs__says_so() -> None:
    model, rows = _model(vocabulary=128), text_rows(Letters(), TEXTS, length=64)
    with pytest.raises(InvalidOptionError, match="batches of 99"):
        tune(model, rows, rows, updates=1, batch=99)
    with pytest.raises(InvalidOptionError, match="gradient"):
        tune(model.requires_grad_(False), rows, rows, updates=1)
    with pytest.raises(InvalidOptionError, match="two tokens"):
        text_rows(Letters(), ["", "a"])
