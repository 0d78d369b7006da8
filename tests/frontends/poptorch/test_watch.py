"""Models, weights and optimisers that change beside what was compiled."""

from __future__ import annotations

import copy
import gc
import warnings
from collections.abc import Callable

import pytest
import torch
from poptorch_kit import Classifier
from test_executor import LABELS, X, classifier, options
from torch import nn

from abele.frontends import poptorch
from abele.frontends.poptorch.models.exporting import ModelWatch

CHANGES: dict[str, tuple[Callable[[nn.Module], object], str]] = {
    "layer": (lambda m: setattr(m, "last", nn.Linear(16, 4)), "the module 'last' is another one"),
    "parameter": (lambda m: setattr(m.last, "bias", nn.Parameter(torch.ones(4))), "parameter 'last.bias' is another"),
    "no_parameter": (lambda m: setattr(m.last, "bias", None), "the parameter 'last.bias' is another one"),
    "new_module": (lambda m: m.add_module("extra", nn.Linear(2, 2)), "the module 'extra' is new"),
    "removed": (lambda m: m.__delattr__("last"), "the module 'last' is gone"),
    "buffer": (lambda m: m.first.register_buffer("scale", torch.ones(1)), "the buffer 'first.scale' is new"),
    "frozen": (lambda m: m.last.requires_grad_(False), "'last.weight' has requires_grad=False, and had True"),
    "half": (lambda m: m.half(), r"the type of 'first.weight' is torch\.float16, and was torch\.float32"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_watch__change__is_told_in_words(name: str) -> None:
    change, text = CHANGES[name]
    model = nn.Sequential()
    model.first, model.last = nn.Linear(12, 16), nn.Linear(16, 4)
    if name == "buffer":
        model.first.register_buffer("other", torch.ones(1))
    watch = ModelWatch(model, training=True)
    assert watch.change() is None
    change(model)
    assert text.replace("\\", "") in (watch.change() or "")


def test_watch__frozen_parameter__does_not_matter_to_inference() -> None:
    model = Classifier()
    watch = ModelWatch(model, training=False)
    model.requires_grad_(False)
    assert watch.change() is None


def test_call__layer_replaced_since__warns_and_goes_on_until_destroyed() -> None:
    model = classifier()
    inference = poptorch.inferenceModel(model, options())
    before = inference(X)
    model.last = nn.Linear(16, 3)
    with pytest.warns(UserWarning, match="model changed after it was compiled: the module 'last' is another"):
        assert torch.equal(inference(X), before)
    with warnings.catch_warnings(record=True) as caught:
        inference(X)
    assert not caught
    inference.destroy()
    torch.testing.assert_close(inference(X), model(X).detach(), rtol=1e-5, atol=1e-5)


def test_copy_weights_to_device__after_training__restores_the_hosts() -> None:
    model = classifier()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    training = poptorch.trainingModel(model, options(), torch.optim.SGD(model.parameters(), lr=0.5))
    first = training(X, LABELS)[1]
    training.copyWeightsToDevice()
    torch.testing.assert_close(training(X, LABELS)[1], first)
    training.copyWeightsToDevice()
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name])


def test_copy_weights_to_device__of_an_inference_wrapper__takes_what_another_trained() -> None:
    model = classifier()
    inference = poptorch.inferenceModel(model, options())
    inference(X)
    training = poptorch.trainingModel(model, options(), torch.optim.SGD(model.parameters(), lr=0.5))
    training(X, LABELS)
    inference.copyWeightsToDevice()
    torch.testing.assert_close(inference(X), model(X).detach(), rtol=1e-5, atol=1e-5)


def test_wrapper__that_nobody_holds__leaves_its_training_behind() -> None:
    model, kept = classifier(), classifier()
    kept.load_state_dict(model.state_dict())
    poptorch.trainingModel(model, options(), torch.optim.SGD(model.parameters(), lr=0.5))(X, LABELS)
    gc.collect()
    assert type(model.first.weight) is nn.Parameter
    training = poptorch.trainingModel(kept, options(), torch.optim.SGD(kept.parameters(), lr=0.5))
    training(X, LABELS)
    for got, expected in zip(model.parameters(), kept.parameters(), strict=True):
        assert torch.equal(got, expected)


def test_optimizer__of_another_model__is_refused() -> None:
    model, other = classifier(), Classifier()
    with pytest.raises(poptorch.Error, match="holds 4 of 4 parameters that the model does not have") as caught:
        poptorch.trainingModel(model, options(), torch.optim.SGD(other.parameters(), lr=0.1))
    assert "after its last change" in str(caught.value.remedy)
    training = poptorch.trainingModel(model, options(), torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(poptorch.Error, match="parameters that the model does not have"):
        training.setOptimizer(torch.optim.SGD(other.parameters(), lr=0.1))


def test_optimizer__whose_layer_was_replaced__is_refused_when_compiling() -> None:
    model = classifier()
    training = poptorch.trainingModel(model, options(), torch.optim.SGD(model.parameters(), lr=0.1))
    model.last = nn.Linear(16, 4)
    with pytest.raises(poptorch.Error, match="holds 2 of 4 parameters that the model does not have"):
        training(X, LABELS)


def test_set_optimizer__of_other_parameters__is_refused_after_compiling() -> None:
    model = classifier()
    training = poptorch.trainingModel(model, options(), torch.optim.SGD(model.parameters(), lr=0.1))
    training.compile(X, LABELS)
    with pytest.raises(poptorch.Error, match="groups hold other parameters"):
        training.setOptimizer(torch.optim.SGD(model.first.parameters(), lr=0.1))


def test_optimizer__of_some_parameters__trains_those() -> None:
    model = classifier()
    before = model.first.weight.detach().clone()
    training = poptorch.trainingModel(model, options(), torch.optim.SGD(model.last.parameters(), lr=0.5))
    training(X, LABELS)
    assert torch.equal(model.first.weight, before)


def test_weights__shared_by_two_training_wrappers__are_trained_by_both() -> None:
    first, second = classifier(), Classifier()
    second.first = first.first
    eager = copy.deepcopy((first, second))
    assert eager[0].first is eager[1].first
    wrappers = [poptorch.trainingModel(m, options(), torch.optim.SGD(m.parameters(), lr=0.5)) for m in (first, second)]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.5) for m in eager]
    for number in (0, 1, 1, 0, 0, 1):
        wrappers[number](X, LABELS)
        optimizers[number].zero_grad()
        eager[number](X, LABELS)[1].backward()
        optimizers[number].step()
    for got, expected in zip((first, second), eager, strict=True):
        for ours, theirs in zip(got.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=1e-4, atol=1e-5)


def test_calls__train_evaluate_save_train_load_train__equal_eager_pytorch() -> None:
    model = classifier()
    eager = copy.deepcopy(model)
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.5)
    training = poptorch.trainingModel(model, options(), torch.optim.SGD(model.parameters(), lr=0.5))
    inference = poptorch.inferenceModel(model, options())

    def step() -> None:
        optimizer.zero_grad()
        expected = eager(X, LABELS)[1]
        expected.backward()
        optimizer.step()
        torch.testing.assert_close(training(X, LABELS)[1], expected.detach(), rtol=1e-4, atol=1e-5)

    step()
    model.eval()
    torch.testing.assert_close(inference(X), eager(X).detach(), rtol=1e-4, atol=1e-5)
    saved = copy.deepcopy(model.state_dict())
    step()
    training.load_state_dict(saved)
    eager.load_state_dict(saved)
    step()
    training.detachFromDevice()
    model.load_state_dict(saved)
    eager.load_state_dict(saved)
    step()
    torch.testing.assert_close(inference(X), eager(X).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Detected call of")
def test_learning_rate__of_a_scheduler__is_taken_by_set_optimizer() -> None:
    model = classifier()
    eager = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.5) for m in (model, eager)]
    schedules = [torch.optim.lr_scheduler.StepLR(o, 1, 0.1) for o in optimizers]
    training = poptorch.trainingModel(model, options(), optimizers[0])
    for _ in range(3):
        training(X, LABELS)
        optimizers[1].zero_grad()
        eager(X, LABELS)[1].backward()
        optimizers[1].step()
        for schedule in schedules:
            schedule.step()
        training.setOptimizer(optimizers[0])
    torch.testing.assert_close(model.last.weight.detach(), eager.last.weight.detach(), rtol=1e-4, atol=1e-5)
