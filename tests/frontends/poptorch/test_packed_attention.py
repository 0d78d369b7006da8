"""Attention with masks of packed or padded sequences gives what PyTorch gives, and leaves out the keys they hide."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as functional
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import abele.kernels.plan.passes as passes
from abele import poptorch
from support.examples import examples

BATCH, TOKENS, WIDTH, HEADS = 2, 96, 64, 2
WITHOUT = tuple(step for step in passes.PIPELINE if step.name != "skip_keys")


def same(ids: Tensor) -> Tensor:
    return ids[:, None, :, None] == ids[:, None, None, :]


def real(ids: Tensor) -> Tensor:
    return (ids > 0)[:, None, None, :]


MASKS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "truth values": lambda ids, x: same(ids),
    "added -1000": lambda ids, x: (1 - same(ids).to(x.dtype)) * -1000.0,
    "with causal": lambda ids, x: same(ids) & torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril(),
    "padded rows": lambda ids, x: same(ids) & real(ids),
    "padded keys": lambda ids, x: real(ids),
}
FURTHER: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "two dims": lambda ids, x: ids[0][:, None] == ids[0][None, :],
    "three dims": lambda ids, x: (ids[:, :, None] == ids[:, None, :]).unsqueeze(1),
    "expanded": lambda ids, x: same(ids).expand(BATCH, HEADS, TOKENS, TOKENS),
    "added -10000": lambda ids, x: (1.0 - same(ids).to(x.dtype)) * -10000.0,
    "added least": lambda ids, x: (1.0 - same(ids).to(x.dtype)) * torch.finfo(x.dtype).min,
    "chosen -inf": lambda ids, x: torch.where(same(ids), 0.0, -math.inf),
    "filled": lambda ids, x: torch.zeros(BATCH, 1, TOKENS, TOKENS).masked_fill(~same(ids), -1e9),
    "padded keys -10000": lambda ids, x: (1.0 - real(ids).to(x.dtype)) * -10000.0,
    "padded keys of one sample -10000": lambda ids, x: (1.0 - real(ids[:1]).to(x.dtype)) * -10000.0,
}


class Attention(nn.Module):
    def __init__(self, mask: str, style: str = "sdpa") -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mask, self.style = mask, style

    def forward(self, x: Tensor, ids: Tensor, y: Tensor | None = None) -> tuple[Tensor, ...]:
        parts = self.qkv(x).view(BATCH, TOKENS, 3, HEADS, WIDTH // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        if self.style == "flex":
            numbers = ids.long()
            blocks = create_block_mask(
                lambda b, h, i, j: numbers[b, i] == numbers[b, j], BATCH, None, TOKENS, TOKENS, device="cpu"
            )
            mixed = flex_attention(q, k, v, block_mask=blocks)
        elif self.style == "explicit":
            mask = (MASKS | FURTHER)[self.mask](ids, x)
            scores = q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
            scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
            mixed = scores.softmax(-1) @ v
        else:
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=(MASKS | FURTHER)[self.mask](ids, x))
        if self.style == "dropout":
            mask = MASKS[self.mask](ids, x)
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.3)
        out = self.out(mixed.transpose(1, 2).reshape(BATCH, TOKENS, WIDTH))
        if y is None:
            return (out,)
        return out, poptorch.identity_loss(((out - y) ** 2).mean(), reduction="none")


def sorted_ids(seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    ids = torch.sort(torch.randint(0, 4, (BATCH, TOKENS)), dim=1, descending=True)[0].to(torch.int32)
    ids[:, 0] = 3
    return ids


def check_training(model: Attention, ids: Tensor, folder: Path | None = None) -> None:
    """One step of training gives PyTorch's result and weights; with a folder, keys are left out."""
    torch.manual_seed(1)
    x, y = torch.randn(2, BATCH, TOKENS, WIDTH)
    other = copy.deepcopy(model)
    if model.style == "flex":  # in PyTorch it has no gradients on a CPU
        other.mask, other.style = "truth values", "sdpa"
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.5)
    options = poptorch.Options()
    options.Abele.threads(1)
    training = poptorch.trainingModel(model, options, optimizer=optimizer)
    out, _ = training(x, ids, y)
    expected, loss = other(x, ids, y)
    loss.backward()
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    training.copyWeightsToHost()
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs - 0.5 * theirs.grad, rtol=1e-4, atol=1e-6)
    if folder is not None:
        texts = [p.read_text() for p in folder.glob("plan-*/*skip_keys.txt")]
        assert sum(text.count("with the keys seen") for text in texts) == 2


@pytest.mark.parametrize(
    "mask", [pytest.param(m, marks=[pytest.mark.slow] * (m in ("added -1000", "padded keys"))) for m in MASKS]
)
def test_attention__masks_of_sequences__train_as_in_torch_without_hidden_keys(mask, tmp_path, monkeypatch):
    monkeypatch.setenv("ABELE_DUMP_PASSES", str(tmp_path))
    check_training(Attention(mask), sorted_ids(), tmp_path)


@pytest.mark.slow
@pytest.mark.rest
@pytest.mark.parametrize("style", ["sdpa", "explicit"])
@pytest.mark.parametrize("mask", FURTHER)
def test_attention__further_spellings_of_masks__train_as_in_torch_without_hidden_keys(
    mask, style, tmp_path, monkeypatch
):
    monkeypatch.setenv("ABELE_DUMP_PASSES", str(tmp_path))
    check_training(Attention(mask, style), sorted_ids(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("mask", ["truth values", "added -1000", "padded keys"])
def test_attention__explicit_softmax__trains_as_in_torch_without_hidden_keys(mask, tmp_path, monkeypatch):
    monkeypatch.setenv("ABELE_DUMP_PASSES", str(tmp_path))
    check_training(Attention(mask, "explicit"), sorted_ids(), tmp_path)


@pytest.fixture(scope="module")
def trained():
    """Inference models, compiled once."""
    torch.manual_seed(2)
    models = [Attention(mask).eval() for mask in ("truth values", "added -1000", "padded rows")]
    return [(m, poptorch.inferenceModel(m, poptorch.Options())) for m in models]


@examples(4)
@given(seed=st.integers(0, 10**6), most=st.integers(0, 40), is_sorted=st.booleans(), scale=st.sampled_from([1, 30]))
def test_attention__any_ids_and_sizes_of_scores__gives_what_torch_gives(trained, seed, most, is_sorted, scale):
    torch.manual_seed(seed)
    ids = torch.randint(0, most + 1, (BATCH, TOKENS))
    ids = (torch.sort(ids, dim=1)[0] if is_sorted else ids).to(torch.int32)
    x = torch.randn(BATCH, TOKENS, WIDTH) * scale
    for model, compiled in trained:
        with torch.no_grad():
            expected = model(x, ids)[0]
        torch.testing.assert_close(compiled(x, ids)[0], expected, rtol=2e-3, atol=2e-4 * scale)


def test_attention__scores_of_another_mask_of_the_same_model__are_left_out_by_their_own():
    class Two(nn.Module):
        """Layers that see different parts: their tables differ."""

        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = Attention("truth values"), Attention("padded keys")

        def forward(self, x: Tensor, ids: Tensor) -> Tensor:
            return self.two(self.one(x, ids)[0], ids)[0]

    model = Two().eval()
    ids, x = sorted_ids(5), torch.randn(BATCH, TOKENS, WIDTH)
    with torch.no_grad():
        expected = model(x, ids)
    torch.testing.assert_close(poptorch.inferenceModel(model)(x, ids), expected, rtol=1e-4, atol=1e-5)


def test_flex_attention__document_mask__leaves_out_other_documents(tmp_path, monkeypatch):
    monkeypatch.setenv("ABELE_DUMP_PASSES", str(tmp_path))
    check_training(Attention("", "flex"), sorted_ids(), tmp_path)


def test_attention__dropout__drops_the_same_shares_whether_hidden_keys_are_left_out_or_not(tmp_path, monkeypatch):
    ids, found = sorted_ids(), []
    x, y = torch.randn(2, BATCH, TOKENS, WIDTH)
    model = Attention("truth values", "dropout")
    for folder, pipeline in (("skipped", passes.PIPELINE), ("whole", WITHOUT)):
        monkeypatch.setenv("ABELE_DUMP_PASSES", str(tmp_path / folder))
        monkeypatch.setattr(passes, "PIPELINE", pipeline)
        trained = copy.deepcopy(model)
        options = poptorch.Options().randomSeed(42)
        training = poptorch.trainingModel(trained, options, optimizer=poptorch.optim.SGD(trained.parameters(), lr=0.5))
        results = [training(x, ids, y)[0] for _ in range(2)]
        training.copyWeightsToHost()
        found.append([*results, *trained.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    texts = [p.read_text() for p in (tmp_path / "skipped").glob("plan-*/*skip_keys.txt")]
    assert sum(text.count("with the keys seen") for text in texts) == 2
