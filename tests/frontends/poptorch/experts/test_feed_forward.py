"""Experts' feed-forward networks, and their derivative written out, beside PyTorch's."""

from __future__ import annotations

import pytest
import torch

from abele import poptorch
from abele.frontends.poptorch.experts.feed_forward import ACTIVATIONS, ExpertWeights, apply_experts, experts_backward


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("gated", "bias"), [(False, True), (True, True), (True, False)])
def test_experts_backward__of_each_activation__is_autograd(activation: str, gated: bool, bias: bool) -> None:
    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64, requires_grad=True)

    weights = ExpertWeights(
        drawn(3, 4, 5),
        drawn(3, 5, 4),
        drawn(3, 5) if bias else None,
        drawn(3, 4) if bias else None,
        drawn(3, 4, 5) if gated else None,
        drawn(3, 5) if gated and bias else None,
    )
    x, grad = drawn(3, 6, 4), torch.randn(3, 6, 4, dtype=torch.float64)
    made = apply_experts(x, weights, activation)
    expected = torch.autograd.grad(made, [x, *weights.given()], grad)
    of_x, of_weights = experts_backward(x, weights, activation, grad)
    for found, wanted in zip([of_x, *of_weights], expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


def test_apply_experts__unknown_activation__names_the_nearest() -> None:
    weights = ExpertWeights(torch.ones(1, 2, 2), torch.ones(1, 2, 2))
    with pytest.raises(poptorch.Error, match=r"no activation 'gelo'[\s\S]*did you mean 'gelu'"):
        apply_experts(torch.ones(1, 1, 2), weights, "gelo")
