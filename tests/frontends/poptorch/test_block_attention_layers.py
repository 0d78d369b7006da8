"""Attention over blocks in models: PyTorch's with the mask expanded, on the host and on the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from abele import poptorch
from abele.errors import InvalidOptionError, PatternMismatchError, SparsePatternError, TypeMismatchError
from abele.frontends.poptorch.sparse import BlockSparseSelfAttention, block_sparse_attention
from abele.sparsity import (
    Pattern,
    banded_pattern,
    bigbird_pattern,
    random_pattern,
    stack_patterns,
    strided_pattern,
)
from support.examples import examples


def expanded(pattern: Pattern, causal: bool) -> torch.Tensor:
    """The mask of elements that are seen."""
    held = pattern.to_dense(np.ones((pattern.num_blocks, *pattern.block))) > 0
    return torch.tensor(held & (np.tri(*pattern.shape, dtype=bool) if causal else True))


def by_torch(q: Any, k: Any, v: Any, patterns: list[Pattern], causal: bool) -> Any:
    """PyTorch's attention under the mask, zeros for queries that see nothing."""
    mask = torch.stack([expanded(p, causal) for p in patterns])
    made = scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return torch.where(mask.any(-1, keepdim=True), made, 0.0)


@given(
    st.sampled_from(((16, 16), (8, 4), (4, 8))),
    st.sampled_from((0.2, 0.6, 1.0)),
    st.booleans(),
    st.booleans(),
    st.integers(0, 99),
)
@examples(12)
def test_block_sparse_attention__in_eager_mode__result_and_gradients_are_those_of_the_expanded_mask(
    block: tuple[int, int], density: float, causal: bool, own: bool, seed: int
) -> None:
    patterns = [random_pattern((32, 48), density, block, seed=seed + (h if own else 0)) for h in range(3)]
    torch.manual_seed(seed)
    q, k, v = (torch.randn(2, 3, n, 8, dtype=torch.float64, requires_grad=True) for n in (32, 48, 48))
    weight = torch.randn(2, 3, 32, 8, dtype=torch.float64)
    results = []
    for made in (
        block_sparse_attention(q, k, v, patterns if own else patterns[0], causal),
        by_torch(q, k, v, patterns, causal),
    ):
        results.append([made, *torch.autograd.grad((made * weight).sum(), (q, k, v))])
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, torch.nan_to_num(want), rtol=1e-9, atol=1e-9)


@given(st.integers(1, 32), st.integers(1, 48), st.booleans(), st.booleans(), st.integers(0, 99))
@examples(10)
def test_block_sparse_attention__short_sequences_and_padded_keys__are_the_corner_of_the_mask(
    queries: int, keys: int, causal: bool, padded: bool, seed: int
) -> None:
    patterns = [random_pattern((32, 48), 0.6, (8, 8), seed=seed + h) for h in range(3)]
    torch.manual_seed(seed)
    q, k, v = (torch.randn(2, 3, n, 8, dtype=torch.float64, requires_grad=True) for n in (queries, keys, keys))
    hidden = torch.rand(2, keys) < 0.4 if padded else None
    shown = torch.stack([expanded(p, causal)[:queries, :keys] for p in patterns]).expand(2, 3, queries, keys)
    if hidden is not None:
        shown = shown & ~hidden[:, None, None]
    want = torch.where(shown.any(-1, keepdim=True), scaled_dot_product_attention(q, k, v, attn_mask=shown), 0.0)
    made = block_sparse_attention(q, k, v, patterns, causal, key_padding_mask=hidden)
    weight = torch.randn(2, 3, queries, 8, dtype=torch.float64)
    for got, expected in zip(
        [made, *torch.autograd.grad((made * weight).sum(), (q, k, v))],
        [want, *torch.autograd.grad((want * weight).sum(), (q, k, v))],
        strict=True,
    ):
        torch.testing.assert_close(got, torch.nan_to_num(expected), rtol=1e-9, atol=1e-9)


class Model(torch.nn.Module):
    """An attention between a projection and a loss."""

    def __init__(self, pattern: Any, causal: bool) -> None:
        super().__init__()
        self.attention = BlockSparseSelfAttention(32, 2, pattern=pattern, causal=causal)
        self.head = torch.nn.Linear(32, 4)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores of classes, and the loss."""
        scores = self.head(self.attention(x).mean(1))
        return scores, torch.nn.functional.cross_entropy(scores, labels)


PATTERNS = {
    "local": banded_pattern((64, 64), 1, (16, 16)),
    "strided": strided_pattern((64, 64), 2, (16, 16)),
    "bigbird": bigbird_pattern((64, 64), (8, 8), window=1, num_global=1, num_random=1),
}


@pytest.mark.parametrize(
    ("kind", "causal"), [("local", True), ("strided", False), ("bigbird", False), ("per head", True)]
)
def test_block_sparse_self_attention__trained_on_the_device__is_trained_as_on_the_host(kind: str, causal: bool) -> None:
    pattern: Any = [PATTERNS["local"], PATTERNS["strided"]] if kind == "per head" else PATTERNS[kind]
    torch.manual_seed(1)
    host = Model(pattern, causal)
    device = Model(pattern, causal)
    device.load_state_dict(host.state_dict())
    x, labels = torch.randn(2, 64, 32), torch.tensor([1, 3])
    trained = poptorch.trainingModel(device, optimizer=poptorch.optim.SGD(device.parameters(), lr=0.5))
    optimiser = torch.optim.SGD(host.parameters(), lr=0.5)
    for _ in range(3):
        optimiser.zero_grad()
        _, loss = host(x, labels)
        loss.backward()
        optimiser.step()
        _, found = trained(x, labels)
        assert float(found) == pytest.approx(float(loss.detach()), rel=1e-4)
    trained.copyWeightsToHost()
    for one, other in zip(host.parameters(), device.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_block_sparse_self_attention__padded_batch_of_short_sequences__is_trained_as_on_the_host() -> None:
    class Padded(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = BlockSparseSelfAttention(32, 2, pattern=PATTERNS["bigbird"])

        def forward(self, x: torch.Tensor, padding: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            made = self.attention(x, padding).masked_fill(padding[..., None], 0.0)
            return poptorch.identity_loss((made - target).square(), "mean")

    torch.manual_seed(4)
    host, device = Padded(), Padded()
    device.load_state_dict(host.state_dict())
    x, target = torch.randn(2, 2, 51, 32).unbind(0)
    padding = torch.arange(51) >= torch.tensor([[51], [20]])
    trained = poptorch.trainingModel(device, optimizer=poptorch.optim.SGD(device.parameters(), lr=1.0))
    optimiser = torch.optim.SGD(host.parameters(), lr=1.0)
    for _ in range(2):
        optimiser.zero_grad()
        loss = host(x, padding, target)
        loss.backward()
        optimiser.step()
        assert float(trained(x, padding, target)) == pytest.approx(float(loss.detach()), rel=1e-4)
    trained.copyWeightsToHost()
    for one, other in zip(host.parameters(), device.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("on_device", [False, True])
def test_block_sparse_self_attention__with_dropout__drops_shares_while_training_alone(on_device: bool) -> None:
    class Shares(torch.nn.Module):
        """Attention of equal scores to ones: the sum of a query's shares."""

        def forward(self, q: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return block_sparse_attention(q, q, v, PATTERNS["local"], dropout_p=0.25)

    q, v = torch.zeros(8, 2, 64, 8), torch.ones(8, 2, 64, 4)
    model = Shares()
    sums = (poptorch.inferenceModel(model) if on_device else model)(q, v)
    assert float(sums.mean()) == pytest.approx(1.0, abs=0.02)
    # A query of three blocks keeps a binomial part of 48 shares, each grown by 4 / 3.
    kept = sums[:, :, 16:48, 0] * 48 * 0.75
    torch.testing.assert_close(kept, kept.round(), rtol=0, atol=1e-3)
    assert float(kept.var()) == pytest.approx(48 * 0.75 * 0.25, rel=0.3)
    layer = BlockSparseSelfAttention(16, 2, pattern=PATTERNS["local"], dropout=0.5)
    x = torch.randn(1, 64, 16)
    assert not torch.allclose(layer.train()(x), layer(x))
    torch.testing.assert_close(layer.eval()(x), layer(x))


def test_block_sparse_attention__in_half_precision_on_the_device__is_near_the_host() -> None:
    class Half(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return block_sparse_attention(q, k, v, PATTERNS["local"], True)

    torch.manual_seed(2)
    q, k, v = (torch.randn(1, 2, 64, 16) for _ in range(3))
    made = poptorch.inferenceModel(Half())(q.half(), k.half(), v.half())
    torch.testing.assert_close(made.float(), Half()(q, k, v), rtol=2e-2, atol=1e-2)


def test_block_sparse_attention__what_does_not_fit__is_typed_errors() -> None:
    q = torch.zeros(1, 2, 64, 8)
    with pytest.raises(PatternMismatchError, match="is not of 64 queries x 64 keys"):
        block_sparse_attention(q, q, q, random_pattern((32, 32), 0.5, (8, 8)))
    with pytest.raises(SparsePatternError, match="3 patterns for 2 heads"):
        block_sparse_attention(q, q, q, [PATTERNS["local"]] * 3)
    with pytest.raises(PatternMismatchError, match="do not fit each other"):
        block_sparse_attention(q, q, q[:, :1], PATTERNS["local"])
    with pytest.raises(PatternMismatchError, match="a width of 30 is no multiple of 4 heads"):
        BlockSparseSelfAttention(30, 4, pattern=PATTERNS["local"])
    with pytest.raises(SparsePatternError, match="0 patterns for 4 heads"):
        BlockSparseSelfAttention(32, 4, pattern=[])
    with pytest.raises(PatternMismatchError, match=r"key_padding_mask is \[1, 64\], got \[64\]"):
        block_sparse_attention(q, q, q, PATTERNS["local"], key_padding_mask=torch.zeros(64, dtype=torch.bool))
    with pytest.raises(TypeMismatchError, match=r"key_padding_mask holds truth values, got torch\.float32"):
        block_sparse_attention(q, q, q, PATTERNS["local"], key_padding_mask=torch.zeros(1, 64))
    for wrong in (-0.1, 1.0, float("nan")):
        with pytest.raises(InvalidOptionError, match="dropout_p is from 0 to less than 1"):
            block_sparse_attention(q, q, q, PATTERNS["local"], dropout_p=wrong)
    with pytest.raises(InvalidOptionError, match="dropout is a number, got 'half'"):
        BlockSparseSelfAttention(32, 4, pattern=PATTERNS["local"], dropout="half")  # type: ignore[arg-type]
    with pytest.raises(PatternMismatchError, match="is not of tokens x tokens"):
        BlockSparseSelfAttention(32, 4, pattern=random_pattern((32, 64), 0.5, (8, 8)))


def test_block_sparse_self_attention__saved_with_its_model__comes_back(tmp_path: Path) -> None:
    model = poptorch.inferenceModel(BlockSparseSelfAttention(16, 2, pattern=[PATTERNS["local"], PATTERNS["strided"]]))
    x = torch.randn(1, 64, 16)
    made = model(x)
    model.save(str(tmp_path / "model.poptorch"))
    torch.testing.assert_close(poptorch.load(str(tmp_path / "model.poptorch"))(x), made)


def test_block_sparse_self_attention__in_text__says_its_pattern() -> None:
    layer = BlockSparseSelfAttention(32, 2, pattern=PATTERNS["local"], causal=True)
    assert str(layer).startswith("BlockSparseSelfAttention(\n  32, num_heads=2, Pattern(64 x 64 in blocks of 16 x 16")
    stack = stack_patterns([PATTERNS["local"], PATTERNS["strided"]])
    q = torch.randn(1, 2, 64, 8)
    one, other = (block_sparse_attention(q, q, q, p) for p in (stack, [PATTERNS["local"], PATTERNS["strided"]]))
    torch.testing.assert_close(one, other)
