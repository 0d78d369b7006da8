"""Layers that make no sense, and blocks with experts of public models: what users are told."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from abele import poptorch


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"top_k": 5}, "top_k = 5 of 4 experts"),
        ({"top_k": 0}, "top_k is a positive whole number, not 0"),
        ({"num_experts": 2.5}, "num_experts is a positive whole number, not 2.5"),
        ({"capacity_factor": 0.0}, "a capacity factor of 0.0 gives experts no slots"),
        ({"eval_capacity_factor": -1.0}, "a capacity factor of -1.0"),
        ({"capacity_factor": float("nan")}, "a capacity factor of nan"),
        ({"choice": "token"}, "choice is 'token'[\\s\\S]*did you mean 'tokens'"),
        ({"scores": "soft"}, "scores is 'soft'"),
        ({"choice": "experts", "dropless": True}, "drop none of their choices"),
        ({"activation": "swish"}, "no activation 'swish'"),
        ({"group_size": 0}, "positive whole number"),
    ],
)
def test_layer__that_makes_no_sense__is_refused(kwargs: dict[str, Any], words: str) -> None:
    with pytest.raises(poptorch.Error, match=words):
        poptorch.MixtureOfExperts(**{"dim": 6, "hidden": 5, "num_experts": 4} | kwargs)


def test_layer__tokens_of_another_width__are_refused() -> None:
    with pytest.raises(poptorch.Error, match=r"takes tokens \[..., 6\], got \[3, 5\]"):
        poptorch.MixtureOfExperts(6, 5, 4)(torch.randn(3, 5))


def test_layer__tokens_with_nan__are_named_on_the_host() -> None:
    x = torch.randn(3, 6)
    x[1, 2] = float("nan")
    with pytest.raises(poptorch.Error, match="not finite: token 1 has"):
        poptorch.MixtureOfExperts(6, 5, 4)(x)


def test_layer__token_with_nan_on_the_device__is_nan_and_the_only_one() -> None:
    made = poptorch.MixtureOfExperts(6, 5, 4, capacity_factor=4.0).eval()
    x = torch.randn(5, 6)
    clean = made(x).output
    x[1, 2] = float("nan")
    found = poptorch.inferenceModel(made)(x)[0]
    assert found[1].isnan().all()
    torch.testing.assert_close(found[[0, 2, 3, 4]], clean[[0, 2, 3, 4]])


class SparseBlock(nn.Module):
    """A loop over experts, each on the tokens that a mask picks."""

    def __init__(self, experts: int = 3) -> None:
        super().__init__()
        self.gate = nn.Linear(6, experts, bias=False)
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(experts))

    def picked(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights, chosen = torch.topk(torch.softmax(self.gate(x), 1), 2)
        return weights, nn.functional.one_hot(chosen, len(self.experts)).permute(2, 1, 0)


class ByWhere(SparseBlock):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, mask = self.picked(x)
        made = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rank, token = torch.where(mask[number])
            made.index_add_(0, token, expert(x[token]) * weights[token, rank, None])
        return made


class ByMask(SparseBlock):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, mask = self.picked(x)
        made = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = mask[number].any(0)
            made[rows] += expert(x[rows])
        return made


class ByHits(SparseBlock):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, mask = self.picked(x)
        made = torch.zeros_like(x)
        for number in mask.sum((1, 2)).nonzero():
            made = made + self.experts[int(number)](x)
        return made


class BySorting(SparseBlock):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, mask = self.picked(x)
        ends = mask.sum((1, 2)).cumsum(0).tolist()
        return torch.cat([e(x[b:n]) for e, b, n in zip(self.experts, [0, *ends], ends, strict=False)])


class OnAll(SparseBlock):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, mask = self.picked(x)
        shares = (mask * weights.T).sum(1)
        return torch.stack([s[:, None] * e(x) for s, e in zip(shares, self.experts, strict=True)]).sum(0)


@pytest.mark.parametrize("block", [ByWhere, ByMask, ByHits, BySorting])
def test_block__that_picks_tokens_by_values__is_refused_with_the_layer_as_remedy(block: type[SparseBlock]) -> None:
    with pytest.raises(poptorch.Error, match=r"values?[\s\S]*poptorch\.MixtureOfExperts"):
        poptorch.inferenceModel(block())(torch.randn(4, 6))


def test_block__that_gives_all_tokens_to_all_experts__is_captured() -> None:
    block, x = OnAll(), torch.randn(4, 6)
    torch.testing.assert_close(poptorch.inferenceModel(block)(x), block(x), rtol=1e-5, atol=1e-5)
