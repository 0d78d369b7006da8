"""Gradients where the pieces of a function meet, where weights and logits that begin as zeros are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional
from poptorch_kit import Apply, Lossy, check_against_torch

POINTS = torch.tensor([0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0, 0.5, -0.5, 20.0], dtype=torch.float64)
ONES = torch.ones(10, dtype=torch.float64)


def _logits(value: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(value, 0.3 * ONES.to(value.dtype), reduction="none")


def _weighted_logits(value: torch.Tensor) -> torch.Tensor:
    twice = 2 * ONES.to(value.dtype)
    return functional.binary_cross_entropy_with_logits(value, twice * 0.2, pos_weight=twice, reduction="none")


JOINTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "softplus": functional.softplus,
    "softplus, scaled": lambda x: functional.softplus(x, beta=2.0),
    "logsigmoid": functional.logsigmoid,
    "cross entropy of logits": _logits,
    "cross entropy of weighted logits": _weighted_logits,
    "soft margins": lambda x: functional.soft_margin_loss(x, -ONES.to(x.dtype), reduction="none"),
    "mish": functional.mish,
    "selu": functional.selu,
    "celu": lambda x: functional.celu(x, 1.5),
    "relu6": functional.relu6,
    "hardtanh": functional.hardtanh,
    "hardsigmoid": functional.hardsigmoid,
    "hardswish": functional.hardswish,
    "clamp": lambda x: x.clamp(-1.0, 1.0),
    "asinh": torch.asinh,
    "sinh": lambda x: torch.sinh(x / 20),
    "xlogy": lambda x: torch.xlogy(x, 2.0),
    "xlog1py": lambda x: torch.special.xlog1py(x, 2.0),
}


@pytest.mark.parametrize("name", JOINTS)
def test_gradient__where_pieces_meet__equals_pytorch(name: str) -> None:
    # One is added so that a slope also counts where the value is zero.
    model = Apply(lambda x: JOINTS[name](x) + 1.0, (10,))
    model.scale.data.fill_(1.0)
    check_against_torch(Lossy(model), (POINTS,), rtol=1e-6)
