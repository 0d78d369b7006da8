"""Tensors inside a model that come back by name."""

from __future__ import annotations

import copy

import pytest
import torch
from test_executor import LABELS, X, classifier, eager_losses, options

from abele import poptorch
from abele.errors import UnknownArrayError

MODES = poptorch.OutputMode


@pytest.mark.parametrize("mode", ["native", "tiles"])
def test_anchors__of_gradients_and_updates__equal_eager_pytorch(mode: str) -> None:
    model = classifier()
    eager = copy.deepcopy(model)
    opts = options(2, 1, mode)
    opts.anchorTensor("gradient", "Gradient___last.weight", MODES.Final)
    opts.anchorTensor("updates", "UpdatedVar___last.bias", MODES.All)
    opts.anchorTensor("labels", "labels", MODES.EveryN, 2)
    training = poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), lr=0.5))
    training(X, LABELS)
    biases = []
    optimiser = torch.optim.SGD(eager.parameters(), lr=0.5)
    for part in (slice(0, 12), slice(12, 24)):
        optimiser.zero_grad()
        eager(X[part], LABELS[part])[1].backward()
        optimiser.step()
        biases.append(eager.last.bias.detach().clone())
    close = torch.testing.assert_close
    close(training.getAnchoredTensor("gradient"), eager.last.weight.grad, rtol=1e-4, atol=1e-6)
    close(training.getAnchoredTensor("updates"), torch.cat(biases), rtol=1e-5, atol=1e-6)
    assert torch.equal(training.getAnchoredTensor("labels"), LABELS[12:].int())
    close(model.last.bias.detach(), eager.last.bias.detach(), rtol=1e-5, atol=1e-6)


def test_anchors__of_accumulated_updates__are_one_for_each_update() -> None:
    model = classifier()
    eager = copy.deepcopy(model)
    opts = options(2, 3)
    opts.anchorTensor("updates", "UpdatedVar___last.bias")
    opts.anchorTensor("sum", "x", MODES.Sum)
    training = poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), lr=0.5))
    training(X, LABELS)
    eager_losses(eager, torch.optim.SGD(eager.parameters(), lr=0.5), 2, 3)
    updates = training.getAnchoredTensor("updates").reshape(2, 4)
    torch.testing.assert_close(updates[1], eager.last.bias.detach(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(training.getAnchoredTensor("sum"), X.reshape(6, 4, 12).sum(0), rtol=1e-5, atol=1e-5)


def test_anchors__of_any_variable__have_what_it_holds() -> None:
    model = poptorch.inferenceModel(lambda x: torch.relu(x * 2) + 1, options())
    with pytest.raises(AssertionError, match="Tensor names are only available once the model has been compiled"):
        model.getTensorNames()
    model.compile(X)
    names = model.getTensorNames()
    assert "x" in names
    opts = options()
    opts.anchorTensor("inside", names[-1])
    anchored = poptorch.inferenceModel(lambda x: torch.relu(x * 2) + 1, opts)
    with pytest.raises(poptorch.Error, match="Model has not been compiled or has been destroyed"):
        anchored.getAnchoredTensor("inside")
    anchored.compile(X)
    with pytest.raises(poptorch.Error, match="Please run the model at least once before obtaining anchored tensors"):
        anchored.getAnchoredTensor("inside")
    expected = anchored(X)
    got = anchored.getAnchoredTensor("inside").flatten().sort().values
    assert any(torch.allclose(got, v.flatten().sort().values) for v in (expected, expected - 1, X * 2))
    with pytest.raises(poptorch.Error, match="No tensor is anchored as 'outside'"):
        anchored.getAnchoredTensor("outside")


def test_anchors__of_nothing__name_the_nearest() -> None:
    opts = options()
    opts.anchorTensor("gradient", "Gradient___last.wait")
    model = classifier()
    training = poptorch.trainingModel(model, opts)
    with pytest.raises(poptorch.Error, match=r"no tensor 'gradient/last\.wait' to bring to the host") as caught:
        training(X, LABELS)
    assert isinstance(caught.value, UnknownArrayError)
    assert "did you mean 'gradient/last.weight'" in str(caught.value)


def test_anchor_tensor__every_n_without_a_period__is_refused() -> None:
    with pytest.raises(AssertionError, match="EveryN output mode requires a positive output_return_period"):
        poptorch.Options().anchorTensor("short", "long", MODES.EveryN, None)
