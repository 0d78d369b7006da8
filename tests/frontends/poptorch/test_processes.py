"""Wrapped models in other processes and threads, pickled and copied."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from poptorch_kit import Classifier
from test_executor import LABELS, X, classifier, options
from torch import nn

from abele.errors import OutOfMemoryError
from abele.frontends import poptorch
from abele.frontends.poptorch.models.batching import Batching
from abele.frontends.poptorch.models.compiling import words
from abele.machine import systems
from abele.network import NetworkBuilder
from abele.numerics import f16
from abele.session.advice import advice


@pytest.mark.skipif(sys.platform != "linux", reason="needs fork")
def test_fork__compiled_model__runs_in_the_child() -> None:
    model = classifier()
    inference = poptorch.inferenceModel(model, options())
    expected = inference(X)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(torch.equal(inference(X), expected)))
    child.start()
    arrived = receiver.poll(30)
    child.kill()
    child.join()
    assert arrived
    assert receiver.recv()


@pytest.mark.skipif(sys.platform != "linux", reason="needs fork")
def test_fork__of_a_loaders_workers_after_compiling__works() -> None:
    training = poptorch.trainingModel(classifier(), options())
    training(X, LABELS)
    loader = poptorch.DataLoader(
        options(), torch.utils.data.TensorDataset(X, LABELS), 24, num_workers=1, multiprocessing_context="fork"
    )
    assert [len(training(*batch)) for batch in loader] == [2]
    loader.terminate()


def test_threads__compiling_at_once__all_get_their_results() -> None:
    models = [classifier() for _ in range(3)]
    got: list[Any] = [None] * 3

    def work(number: int) -> None:
        try:
            got[number] = poptorch.inferenceModel(models[number], options())(X)
        except Exception as error:
            got[number] = error

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for model, result in zip(models, got, strict=True):
        assert isinstance(result, torch.Tensor), result
        torch.testing.assert_close(result, model(X).detach(), rtol=1e-5, atol=1e-5)


def test_threads__calling_one_model__wait_for_each_other() -> None:
    inference = poptorch.inferenceModel(lambda x: x * 2, options())
    wrong: list[object] = []

    def work(number: int) -> None:
        for _ in range(5):
            got = inference(torch.full((4,), float(number)))
            if not (got == 2 * number).all():
                wrong.append(got)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"])
def test_copies__of_a_training_wrapper__go_on_from_its_weights(copied: Any) -> None:
    model = classifier()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.5, weight_decay=0.1)
    training = poptorch.trainingModel(model, options(1, 2), optimizer)
    training(X, LABELS)
    twin = copied(training)
    assert not twin.isCompiled()
    assert twin.options.Training.gradient_accumulation == 2
    assert twin.model is not model
    assert type(twin.model.first.weight) is nn.Parameter
    torch.testing.assert_close(twin(X, LABELS), training(X, LABELS))
    for got, expected in zip(twin.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(got.detach(), expected.detach())


def test_copies__of_an_inference_wrapper_and_of_a_trained_model__have_the_newest_weights() -> None:
    model = classifier()
    training = poptorch.trainingModel(model, options(), torch.optim.SGD(model.parameters(), lr=0.5))
    training(X, LABELS)
    inference = pickle.loads(pickle.dumps(poptorch.inferenceModel(model, options())))
    plain = pickle.loads(pickle.dumps(model))
    torch.testing.assert_close(inference(X), model(X).detach(), rtol=1e-5, atol=1e-5)
    assert type(plain.first.weight) is nn.Parameter
    assert torch.equal(plain.first.weight, model.first.weight)


def test_copies__of_an_optimizer__keep_what_is_variable() -> None:
    optimizer = poptorch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=0.1, bias_correction=False)
    twin = pickle.loads(pickle.dumps(optimizer))
    assert not twin.variable_attrs.isConstant("lr")
    assert twin.variable_attrs.isConstant("eps")
    assert (twin.bias_correction, twin.loss_scaling) == (False, 1.0)


@pytest.mark.parametrize("wrap", [poptorch.inferenceModel, poptorch.trainingModel])
@pytest.mark.parametrize("model", [3, None, "model"])
def test_wrapping__what_is_no_model__is_refused(wrap: Any, model: object) -> None:
    with pytest.raises(poptorch.Error, match=r"the model is .*, not a torch\.nn\.Module") as caught:
        wrap(model)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("wrap", [poptorch.inferenceModel, poptorch.trainingModel])
def test_wrapping__options_that_are_none__are_refused(wrap: Any) -> None:
    with pytest.raises(poptorch.Error, match=r"the options are 3, not poptorch\.Options"):
        wrap(Classifier(), 3)


def test_wrapping__a_class__says_to_make_one() -> None:
    with pytest.raises(poptorch.Error) as caught:
        poptorch.inferenceModel(Classifier)
    assert caught.value.remedy == "make one: Classifier(...)"


def test_wrapping__an_optimizer_that_is_none__is_refused() -> None:
    with pytest.raises(poptorch.Error, match=r"the optimizer is 'sgd', not a torch\.optim\.Optimizer"):
        poptorch.trainingModel(Classifier(), options(), "sgd")


def test_import__without_pytorch__says_what_to_install() -> None:
    code = "import sys; sys.modules['torch'] = None\nfrom abele import poptorch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingPackageError: abele.poptorch needs PyTorch, which is not installed" in done.stderr
    assert "pip install 'abele[torch]'" in done.stderr


def test_advice__model_that_does_not_fit__is_what_a_pytorch_program_can_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = tmp_path / "largest.toml"
    largest.write_text('base = "bow-2000"\n[ipu]\nnum_tiles = 5\n')
    monkeypatch.setattr("abele.session.advice.larger_machine", lambda system: str(largest))
    opts = options(1, 2)
    opts.Abele.system(systems.bow_2000().evolve(ipu={"num_tiles": 4}))
    model = Classifier(features=1250, hidden=1250)
    with pytest.raises(OutOfMemoryError) as caught:
        poptorch.trainingModel(model, opts).compile(torch.zeros(8, 1250), torch.zeros(8, dtype=torch.long))
    advice = str(caught.value.remedy)
    assert "allowOutOfMemory" in advice
    # Weights alone are too much for any machine that there is: nothing is named that cannot help.
    assert "micro-batch" not in advice
    assert "half" not in advice
    assert "options.system('" not in advice
    assert "IPUs than" not in advice


def test_advice__activations_of_a_batch_that_do_not_fit__names_the_batch_that_was_tried() -> None:
    opts = options(1, 2)
    opts.Abele.system(systems.bow_2000().evolve(ipu={"num_tiles": 16}))
    model = Classifier(features=64, hidden=512)
    with pytest.raises(OutOfMemoryError) as caught:
        poptorch.trainingModel(model, opts).compile(torch.zeros(4096, 64), torch.zeros(4096, dtype=torch.long))
    first = str(caught.value.remedy).splitlines()[0]
    assert re.fullmatch(
        r"a smaller micro-batch than 2048, with options.Training.gradientAccumulation\(\d+\) .*\(tried: it fits\)",
        first,
    )
    accumulation = int(re.search(r"gradientAccumulation\((\d+)\)", first).group(1))
    again = options(1, accumulation)
    again.Abele.system(systems.bow_2000().evolve(ipu={"num_tiles": 16}))
    poptorch.trainingModel(model, again).compile(torch.zeros(4096, 64), torch.zeros(4096, dtype=torch.long))


def compiled_on_a_small_chip(model: torch.nn.Module, x: torch.Tensor) -> None:
    opts = options()
    opts.Abele.system(systems.bow_2000().evolve(ipu={"num_tiles": 12}))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    poptorch.trainingModel(model, opts, optimizer).compile(x, torch.zeros(len(x), dtype=torch.long))


def test_advice__weights_that_fit_in_half_precision__says_so_after_trying() -> None:
    model, x = Classifier(features=1024, hidden=1024), torch.zeros(1, 1024)
    with pytest.raises(OutOfMemoryError) as caught:
        compiled_on_a_small_chip(model, x)
    first = str(caught.value.remedy).splitlines()[0]
    assert first == "half precision: model.half() and inputs in torch.float16 (tried: it fits)"
    assert model.first.weight.dtype == torch.float32
    compiled_on_a_small_chip(model.half(), x.half())


@pytest.mark.usefixtures("whole_machine")
def test_advice__half_model_of_one_sample__names_neither() -> None:
    net = NetworkBuilder()
    net.parameter((16, 16), f16, "weight")
    net.input((1, 16), f16, "x")
    tiles = ({"tile": 0, "available_bytes": 1000, "temporaries": 900},)
    opts = options().setAvailableMemoryProportion({"IPU0": 0.4})
    schedule = Batching(opts, training=False).schedule()
    found = advice(OutOfMemoryError("too much", tiles=tiles), net, schedule, opts.settings("model"))
    assert words(found, training=False) == [
        'options.setAvailableMemoryProportion({"IPU0": 0.2}) instead of 0.4',
        "options.Abele.allowOutOfMemory() for a report of the program as it is",
    ]
