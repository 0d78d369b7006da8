"""State of optimisers and norms of gradients by PopART's names: anchors, files, weights, clipping of some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx")
torch = pytest.importorskip("torch", reason="needs PyTorch")

from abele import popart
from frontends.popart.popart_kit import All, Final, Perceptron, device, read_weights, replicated, training

GRADIENT = popart.reservedGradientPrefix()
RATE = 0.01


def test_clip_norms__of_some_weights__are_one_norm_for_each_group() -> None:
    net = Perceptron()
    first, second = net.weights
    clips = [popart.ClipNormSettings.clipWeights([first], 0.5), popart.ClipNormSettings.clipWeights([second], 0.25)]
    gradients = [GRADIENT + first, GRADIENT + second, GRADIENT + net.x]
    session, found = training(net.builder, gradients, net.loss, popart.ConstSGD(RATE, clip_norm_settings=clips))
    x, labels = net.samples()
    session.run(popart.PyStepIO({net.x: x, net.labels: labels}, found))
    start = [torch.tensor(array, requires_grad=True) for array in net.arrays]
    net.torch_losses(start, x, labels).backward()
    held = read_weights(session, {first: (8, 16), second: (16, 4)})
    for name, weight, norm in zip((first, second), start, (0.5, 0.25), strict=True):
        assert weight.grad.norm() > norm
        torch.nn.utils.clip_grad_norm_([weight], norm)
        np.testing.assert_allclose(held[name], (weight - RATE * weight.grad).detach(), atol=1e-6)


@pytest.mark.parametrize(
    ("clips", "words"),
    [
        ([popart.ClipNormSettings.clipWeights(["none"], 1.0)], "is none that is trained"),
        ([popart.ClipNormSettings.clipAllWeights(1.0)] * 2, "is to be clipped by two norms"),
    ],
)
def test_clip_norms__of_wrong_weights__are_refused(clips: Any, words: str) -> None:
    net = Perceptron()
    flow, optimizer = popart.DataFlow(1, [net.loss]), popart.ConstSGD(RATE, clip_norm_settings=clips)
    with pytest.raises(popart.popart_exception, match=words):
        popart.TrainingSession(net.builder.getModelProto(), flow, net.loss, optimizer, device())


def test_state__of_momentum__comes_back_of_each_update() -> None:
    net = Perceptron()
    w = net.weights[1]
    sgd = popart.SGD({"defaultLearningRate": (RATE, True), "defaultMomentum": (0.5, True)})
    session, found = training(net.builder, {"Accl___" + w: All, "UpdatedVar___" + w: All}, net.loss, sgd, batches=2)
    x, labels = net.samples(2)
    session.run(popart.PyStepIO({net.x: x, net.labels: labels}, found))
    weights = [torch.tensor(array, requires_grad=True) for array in net.arrays]
    theirs = torch.optim.SGD(weights, RATE, momentum=0.5)
    for update in range(2):
        theirs.zero_grad()
        net.torch_losses(weights, x[update], labels[update]).backward()
        theirs.step()
        np.testing.assert_allclose(found["UpdatedVar___" + w][update], weights[1].detach(), atol=1e-6)
        momentum = theirs.state[weights[1]]["momentum_buffer"]
        np.testing.assert_allclose(found["Accl___" + w][update], momentum, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_state__of_adam__comes_back_of_each_update_and_goes_on_from_a_file(tmp_path: Path) -> None:
    net = Perceptron()
    w = net.weights[1]
    anchors = {
        net.loss: All,
        "Step___" + w: All,
        "UpdatedVar___" + w: All,
        "Accl1___" + w: All,
        "Accl2___" + w: Final,
    }
    adam = popart.Adam({"defaultLearningRate": (RATE, True), "defaultEps": (1e-6, True)})
    options = replicated(1, 2)
    session, found = training(net.builder, anchors, net.loss, adam, options=options, batches=3)
    x, labels = net.samples(3, 2)
    arrays = {net.x: x, net.labels: labels}
    session.run(popart.PyStepIO(arrays, found))
    weights = [torch.tensor(array, requires_grad=True) for array in net.arrays]
    theirs = torch.optim.Adam(weights, RATE, eps=1e-6)
    for update in range(3):
        theirs.zero_grad()
        for micro in range(2):
            net.torch_losses(weights, x[update, micro], labels[update, micro]).backward()
        theirs.step()
        np.testing.assert_array_equal(found["Step___" + w][update], update + 1)
        for micro in range(2):
            np.testing.assert_allclose(found["UpdatedVar___" + w][update, micro], weights[1].detach(), atol=1e-5)
            mean = theirs.state[weights[1]]["exp_avg"]
            np.testing.assert_allclose(found["Accl1___" + w][update, micro], mean, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(found["Accl2___" + w], theirs.state[weights[1]]["exp_avg_sq"], rtol=1e-3, atol=1e-6)
    held = read_weights(session, {"Accl2___" + w: (16, 4), "Step___" + w: ()})
    np.testing.assert_array_equal(held["Accl2___" + w], found["Accl2___" + w])
    assert held["Step___" + w] == 3

    session.modelToHost(tmp_path / "trained.onnx")
    session.saveExecutable(tmp_path / "trained.popart")
    flow = session.dataFlow
    again = popart.TrainingSession(str(tmp_path / "trained.onnx"), flow, net.loss, adam, device(), userOptions=options)
    again.loadExecutable(tmp_path / "trained.popart")
    again.prepareDevice()
    again.weightsFromHost()
    second = again.initAnchorArrays()
    session.run(popart.PyStepIO(arrays, found))
    again.run(popart.PyStepIO(arrays, second))
    for name in anchors:
        np.testing.assert_array_equal(second[name], found[name])


@pytest.mark.parametrize("name", ["Accl3___{}", "Step___nothing", "Accl___{}"])
def test_state__that_the_optimizer_does_not_keep__is_no_tensor(name: str) -> None:
    net = Perceptron()
    flow = popart.DataFlow(1, [name.format(net.weights[0])])
    with pytest.raises(popart.popart_exception, match="not in Ir Tensors"):
        popart.TrainingSession(net.builder.getModelProto(), flow, net.loss, popart.Adam({}), device())


@pytest.mark.slow
def test_accumulation_type__of_half__sums_in_it() -> None:
    net = Perceptron()
    sums = "Accum___" + net.weights[0]
    optimizer = popart.SGD({"defaultLearningRate": (RATE, True)}, accumType="FLOAT16")
    session, found = training(net.builder, {sums: Final}, net.loss, optimizer, options=replicated(1, 2))
    x, labels = net.samples(2)
    session.run(popart.PyStepIO({net.x: x, net.labels: labels}, found))
    assert (found[sums] == found[sums].astype(np.float16)).all()


@pytest.mark.slow
def test_running_statistics__after_training__are_what_inference_uses(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    builder, norm = popart.Builder(), torch.nn.BatchNorm1d(3)
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [16, 3]))
    tensors = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    held = [builder.addInitializedInputTensor(t.detach().numpy().copy()) for t in tensors]
    made = builder.aiOnnx.batchnormalization([x, *held], 5)[0]
    loss = builder.aiGraphcore.l1loss([made], 0.1, popart.ReductionType.Sum)
    session, found = training(builder, [loss], loss, popart.ConstSGD(RATE), batches=4)
    given = random.standard_normal((4, 16, 3)).astype(np.float32) * 2 + 1
    session.run(popart.PyStepIO({x: given}, found))
    optimizer = torch.optim.SGD(norm.parameters(), RATE)
    for row in torch.tensor(given):
        optimizer.zero_grad()
        (0.1 * norm(row).abs().sum()).backward()
        optimizer.step()
    session.modelToHost(tmp_path / "norm.onnx")
    tested = popart.InferenceSession(str(tmp_path / "norm.onnx"), popart.DataFlow(1, [made]), device())
    tested.prepareDevice()
    tested.weightsFromHost()
    results = tested.initAnchorArrays()
    tested.run(popart.PyStepIO({x: given[0].copy()}, results))
    norm.eval()
    # PyTorch's running variance is of one sample less: 16/15 of each batch's.
    np.testing.assert_allclose(results[made], norm(torch.tensor(given[0])).detach(), rtol=0.02, atol=0.02)
