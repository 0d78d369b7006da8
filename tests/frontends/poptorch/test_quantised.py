"""Layers of quantised weights: on the device as in eager PyTorch, trained around, saved and loaded."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from abele import poptorch
from abele.errors import InvalidOptionError, TensorError, TypeMismatchError


class Tied(torch.nn.Module):
    """A table that is the head, too, with a trained layer between."""

    def __init__(self) -> None:
        super().__init__()
        self.head = poptorch.QuantisedLinear.from_linear(torch.nn.Linear(64, 50, bias=False), "int4-32")
        self.embedding = poptorch.QuantisedEmbedding.tied_to(self.head)
        self.middle = torch.nn.Linear(64, 64)
        self.up = poptorch.QuantisedLinear.from_linear(torch.nn.Linear(64, 64), "int8")
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, tokens: torch.Tensor, wanted: torch.Tensor | None = None) -> Any:
        logits = self.head(self.up(torch.tanh(self.middle(self.embedding(tokens)))))
        return logits if wanted is None else (logits, self.loss(logits, wanted))


@pytest.mark.slow
def test_model__of_mixed_layers__is_that_of_pytorch() -> None:
    torch.manual_seed(0)
    model = Tied()
    tokens = torch.randint(0, 50, (3,))
    torch.testing.assert_close(poptorch.inferenceModel(model)(tokens), model(tokens), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("scheme", ["int4-64", pytest.param("f143", marks=pytest.mark.slow)])
def test_layer__of_halves_and_three_dims__is_that_of_pytorch(scheme: str) -> None:
    torch.manual_seed(1)
    layer = poptorch.QuantisedLinear.from_linear(torch.nn.Linear(64, 24), scheme)
    x = torch.randn(2, 3, 64, dtype=torch.float16)
    made = poptorch.inferenceModel(layer)(x)
    assert made.dtype == torch.float16
    torch.testing.assert_close(made, layer(x), atol=2e-3, rtol=2e-3)


def test_training__around_frozen_codes__takes_pytorchs_steps() -> None:
    torch.manual_seed(2)
    model = Tied()
    other, codes = copy.deepcopy(model), model.head.codes.clone()
    tokens, wanted = torch.randint(0, 50, (5,)), torch.randint(0, 50, (5,))
    optimizer = torch.optim.SGD(other.parameters(), lr=0.5)
    trained = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.5))
    for _ in range(2):
        optimizer.zero_grad()
        _, loss = other(tokens, wanted)
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(trained(tokens, wanted)[1], loss.detach(), atol=1e-5, rtol=1e-5)
    trained.copyWeightsToHost()
    torch.testing.assert_close(model.middle.weight, other.middle.weight, atol=1e-5, rtol=1e-4)
    assert torch.equal(model.head.codes, codes)


def test_state__saved_loaded_and_cast__keeps_codes_and_scales() -> None:
    torch.manual_seed(3)
    linear = torch.nn.Linear(128, 8)
    layer = poptorch.QuantisedLinear.from_linear(linear, "f143")
    fresh = poptorch.QuantisedLinear(128, 8, kind="f143")
    fresh.load_state_dict(layer.state_dict())
    fresh.half()
    assert fresh.scales.dtype == torch.float32
    assert torch.equal(fresh.dequantised(), layer.dequantised())
    assert (layer.dequantised() - linear.weight).abs().max() < linear.weight.abs().max() / 16
    assert layer.matrix.nbytes == layer.nbytes == 128 * 8 + 8 * 4


def test_layer__wrong_input__is_refused() -> None:
    layer = poptorch.QuantisedLinear(64, 8, kind="int4", group=32)
    with pytest.raises(TensorError, match="64"):
        layer(torch.zeros(1, 63))
    with pytest.raises(TypeMismatchError, match="float"):
        layer(torch.zeros(1, 64, dtype=torch.int32))
    with pytest.raises(TensorError, match="groups of 48"):
        poptorch.QuantisedLinear(64, 8, kind="int4", group=48)
    with pytest.raises(InvalidOptionError, match="int5"):
        poptorch.QuantisedLinear(64, 8, kind="int5")
    with pytest.raises(TypeMismatchError, match="int32"):
        poptorch.QuantisedEmbedding(8, 64)(torch.zeros(2))
