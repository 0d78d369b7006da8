"""Sessions of PopART's names: what comes back of a step, weights, inputs, orders of calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx")
torch = pytest.importorskip("torch", reason="needs PyTorch")

from abele import popart
from frontends.popart.popart_kit import All, Final, Perceptron, device, inference, read_weights, replicated, training

RATE = 0.01
EveryOther = popart.AnchorReturnType("EveryN", 2)
Sum = popart.AnchorReturnType("SUM")
GRADIENT = popart.reservedGradientPrefix()


def test_anchors__each_kind__are_those_micro_batches() -> None:
    net = Perceptron()
    anchors = {net.loss: Sum, net.shares: EveryOther, net.x: Final, net.hidden: All}
    session, found = training(net.builder, anchors, net.loss, popart.ConstSGD(RATE), batches=4)
    x, labels = net.samples(4)
    session.run(popart.PyStepIO({net.x: x, net.labels: labels}, found))
    losses, weights = net.torch_steps(x[:, None], labels[:, None], RATE)
    np.testing.assert_allclose(found[net.loss], sum(losses), rtol=1e-5)
    assert found[net.shares].shape == (2, 4, 4)
    assert found[net.hidden].shape == (4, 4, 16)
    np.testing.assert_array_equal(found[net.x], x[-1])
    held = read_weights(session, {net.weights[0]: (8, 16)})
    np.testing.assert_allclose(held[net.weights[0]], weights[0], atol=1e-6)


@pytest.mark.parametrize("accumulation", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_gradients__of_replicas_and_micro_batches__are_pytorchs(accumulation: int) -> None:
    net, w = Perceptron(), 0
    gradient, total = GRADIENT + net.weights[w], popart.reservedAccumPrefix() + net.weights[w]
    session, found = training(
        net.builder,
        {net.loss: All, gradient: All, total: All},
        net.loss,
        popart.ConstSGD(RATE),
        options=replicated(2, accumulation),
        batches=2,
        ipus=2,
    )
    x, labels = net.samples(2, accumulation, 2)
    session.run(popart.PyStepIO({net.x: x, net.labels: labels}, found))
    losses, weights = net.torch_steps(x, labels, RATE)
    np.testing.assert_allclose(found[net.loss].ravel(), losses, rtol=1e-5)
    made = found[gradient].reshape(2, accumulation, 2, 8, 16)
    start = [torch.tensor(array, requires_grad=True) for array in net.arrays]
    for micro in range(accumulation):
        for replica in range(2):
            loss = net.torch_losses(start, x[0, micro, replica], labels[0, micro, replica])
            want = torch.autograd.grad(loss, start[w])[0].numpy()
            np.testing.assert_allclose(made[0, micro, replica], want, rtol=1e-5, atol=1e-5)
    held = read_weights(session, {net.weights[1]: (16, 4)})
    np.testing.assert_allclose(held[net.weights[1]], weights[1], atol=1e-5)


def test_gradients__of_an_input_and_an_activation__are_pytorchs() -> None:
    net = Perceptron()
    names = [GRADIENT + net.x, GRADIENT + net.shares]
    session, found = training(net.builder, [*names, net.loss], net.loss, popart.ConstSGD(RATE))
    x, labels = net.samples()
    session.run(popart.PyStepIO({net.x: x, net.labels: labels}, found))
    given = torch.tensor(x, requires_grad=True)
    shares = torch.softmax(torch.relu(given @ torch.tensor(net.arrays[0])) @ torch.tensor(net.arrays[1]), 1)
    loss = -(shares.log().gather(1, torch.tensor(labels).long()[:, None])).sum()
    want = torch.autograd.grad(loss, [given, shares])
    for name, gradient in zip(names, want, strict=True):
        np.testing.assert_allclose(found[name], gradient.numpy(), rtol=1e-4, atol=1e-5)
    held = read_weights(session, {net.weights[0]: (8, 16)})
    np.testing.assert_allclose(
        held[net.weights[0]], net.torch_steps(x[None, None], labels[None, None], RATE)[1][0], atol=1e-6
    )


@pytest.mark.slow
def test_state__of_adam__comes_back_after_a_step() -> None:
    net, w = Perceptron(), 1
    first = popart.reservedAccl1Prefix() + net.weights[w]
    adam = popart.Adam({"defaultLearningRate": (RATE, True), "defaultBeta1": (0.75, True)})
    session, found = training(net.builder, {first: Final, GRADIENT + net.weights[w]: All}, net.loss, adam)
    x, labels = net.samples()
    session.run(popart.PyStepIO({net.x: x, net.labels: labels}, found))
    np.testing.assert_allclose(found[first], 0.25 * found[GRADIENT + net.weights[w]], rtol=1e-5)


def test_variable_settings__each_replica_its_own__trains_apart() -> None:
    builder, random = popart.Builder(), np.random.default_rng(0)
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 3]))
    start = random.standard_normal((2, 3, 3)).astype(np.float32)
    alone = popart.VariableSettings(popart.CommGroup(popart.CommGroupType.Ungrouped, 0))
    weight = builder.addInitializedInputTensor(start, alone, "w")
    made = builder.aiOnnx.matmul([x, weight])
    assert builder.getTensorShape(made) == [2, 3]
    loss = builder.aiGraphcore.identityloss([made], popart.ReductionType.Sum)
    session, found = training(builder, {made: All}, loss, popart.ConstSGD(0.1), options=replicated(2), ipus=2)
    given = random.standard_normal((2, 2, 3)).astype(np.float32)
    session.run(popart.PyStepIO({x: given}, found))
    np.testing.assert_allclose(found[made], given @ start, rtol=1e-5)
    want = start - 0.1 * given.sum(1)[:, :, None] * np.ones((1, 1, 3), np.float32)
    np.testing.assert_allclose(read_weights(session, {weight: (2, 3, 3)})[weight], want, atol=1e-6)


def test_variable_settings__methods__count_groups_and_shapes() -> None:
    pairs = popart.VariableSettings(2, 2, popart.VariableRetrievalMode.AllReplicas)
    assert pairs.groups(4) == [[0, 2], [1, 3]]
    assert pairs.getGroupCount(4) == 2
    assert pairs.numReplicasReturningVariable(4) == 4
    assert pairs.shapeOnHost([3], 4) == [4, 3]
    assert pairs.shapeOnReplica([2, 3], 4, "w") == [3]


def test_input_settings__broadcast__gives_replicas_the_same() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [3]))
    shared = popart.InputSettings(popart.ReplicatedStreamMode.Broadcast)
    c = builder.addInputTensor(popart.TensorInfo("FLOAT", [3]), shared, "c")
    made = builder.aiOnnx.add([x, c])
    session, found = inference(builder, [made], options=replicated(2), batches=3, ipus=2)
    x_, c_ = np.arange(18, dtype=np.float32).reshape(3, 2, 3), np.arange(9, dtype=np.float32).reshape(3, 3)
    session.run(popart.PyStepIO({x: x_, c: c_}, found))
    np.testing.assert_array_equal(found[made], x_ + c_[:, None])


def test_integers__of_64_bits__come_back_so_and_must_fit_32() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("INT64", [3]))
    made = builder.aiOnnx.add([x, x])
    session, found = inference(builder, [made])
    assert found[made].dtype == np.int64
    session.run(popart.PyStepIO({x: np.arange(3)}, found))
    np.testing.assert_array_equal(found[made], [0, 2, 4])
    with pytest.raises(popart.popart_runtime_error, match="do not fit the 32 bits"):
        session.run(popart.PyStepIO({x: np.arange(3) + 2**40}, found))


def test_callbacks__micro_batch_by_micro_batch__are_asked_and_told() -> None:
    net = Perceptron()
    session, _ = inference(net.builder, [net.shares], batches=2)
    x, labels = net.samples(2)
    rows, told, taken = {net.x: iter(x), net.labels: iter(labels)}, [], []

    def out(name: str) -> Any:
        taken.append(np.zeros((4, 4), np.float32))
        return taken[-1]

    session.run(popart.PyStepIOCallback(lambda name, ahead: next(rows[name]), told.append, out, told.append))
    hidden = np.maximum(x @ net.arrays[0], 0) @ net.arrays[1]
    np.testing.assert_allclose(np.stack(taken), torch.softmax(torch.tensor(hidden), -1), rtol=1e-5)
    assert told.count(net.shares) == 2


def test_random_state__set_again__draws_the_same_mask() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [64]))
    weight = builder.addInitializedInputTensor(np.ones(64, np.float32))
    [kept] = builder.aiOnnx.dropout([x], 1, 0.5)
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.mul([kept, weight])], 0.1)
    session, found = training(builder, [kept], loss, popart.ConstSGD(0.1))
    session.setRandomSeed(5)
    assert session.getRandomSeed() == 5
    state, masks = session.getRNGState(), []
    for given in (None, None, state):
        if given is not None:
            session.setRNGState(given)
        session.run(popart.PyStepIO({x: np.ones(64, np.float32)}, found))
        masks.append(found[kept].copy())
    assert (masks[0] == masks[2]).all()
    assert (masks[0] != masks[1]).any()


def test_synthetic_data__without_arrays__runs() -> None:
    net, options = Perceptron(), popart.SessionOptions()
    options.syntheticDataMode = popart.SyntheticDataMode.RandomNormal
    session, found = training(net.builder, [net.loss], net.loss, popart.ConstSGD(RATE), options=options)
    session.run(popart.PyStepIO({}, found))
    assert session.report.total_cycles > 0


def test_update_optimizer_from_host__variable_numbers__are_used(tmp_path: Path) -> None:
    net = Perceptron()

    def sgd(rate: float, scale: float) -> Any:
        return popart.SGD({"defaultLearningRate": (rate, False), "lossScaling": (scale, False)})

    session, found = training(net.builder, [net.loss], net.loss, sgd(0.5, 8))
    session.updateOptimizerFromHost(sgd(RATE, 16))
    x, labels = net.samples()
    session.run(popart.PyStepIO({net.x: x, net.labels: labels}, found))
    want = net.torch_steps(x[None, None], labels[None, None], RATE)[1]
    held = read_weights(session, {net.weights[0]: (8, 16)})
    np.testing.assert_allclose(held[net.weights[0]], want[0], atol=1e-6)

    session.modelToHost(tmp_path / "trained.onnx")
    flow = popart.DataFlow(1, [net.shares])
    tested = popart.InferenceSession(str(tmp_path / "trained.onnx"), flow, device())
    tested.prepareDevice()
    tested.weightsFromHost()
    shares = tested.initAnchorArrays()
    tested.run(popart.PyStepIO({net.x: x, net.labels: labels}, shares))
    scores = torch.tensor(np.maximum(x @ want[0], 0) @ want[1])
    np.testing.assert_allclose(shares[net.shares], torch.softmax(scores, -1), rtol=1e-4)


def test_executable__saved_and_loaded__runs_without_compiling(tmp_path: Path) -> None:
    net = Perceptron()
    session, found = inference(net.builder, [net.shares])
    x, labels = net.samples()
    session.run(popart.PyStepIO({net.x: x, net.labels: labels}, found))
    session.compileAndExport(tmp_path / "program.popart")
    again = popart.InferenceSession(net.builder.getModelProto(), popart.DataFlow(1, [net.shares]), device())
    again.loadExecutable(tmp_path / "program.popart")
    again.prepareDevice()
    again.weightsFromHost()
    second = again.initAnchorArrays()
    again.run(popart.PyStepIO({net.x: x, net.labels: labels}, second))
    np.testing.assert_array_equal(second[net.shares], found[net.shares])
    other = popart.InferenceSession(net.builder.getModelProto(), popart.DataFlow(1, [net.hidden]), device())
    other.loadExecutable(tmp_path / "program.popart")
    with pytest.raises(popart.popart_exception, match="is of another model"):
        other.prepareDevice()


def test_serialize_ir__of_a_model__lists_its_operators() -> None:
    net = Perceptron()
    session, _ = inference(net.builder, [net.shares])
    listed = json.loads(session._serializeIr(popart.IrSerializationFormat.JSON))["maingraph"]
    assert [op["type"] for op in listed] == ["MatMul", "Relu", "MatMul", "Softmax", "Nll"]
    assert listed[0]["inputs"] == [{"index": 0, "name": net.x}, {"index": 1, "name": net.weights[0]}]


def test_tensors__that_the_loss_does_not_need__are_zeros_or_unknown() -> None:
    builder = popart.Builder()
    x, unread = (builder.addInputTensor("FLOAT", [3]) for _ in range(2))
    weight, idle = (builder.addInitializedInputTensor(np.ones(3, np.float32)) for _ in range(2))
    steps = builder.aiOnnx.add([builder.aiOnnx.floor([x]), weight])
    loss = builder.aiGraphcore.identityloss([steps], popart.ReductionType.Sum)
    gradient = popart.reservedGradientPrefix()
    session, anchors = training(builder, [gradient + x, gradient + weight], loss, popart.ConstSGD(0.1))
    session.run(popart.PyStepIO({x: np.ones(3, np.float32)}, anchors))  # Nothing reads the other input.
    assert (anchors[gradient + x].tolist(), anchors[gradient + weight].tolist()) == ([0] * 3, [1] * 3)
    assert unread not in anchors
    with pytest.raises(popart.popart_exception, match="Anchor tensor `Gradient___init_input/1' not in Ir Tensors"):
        training(builder, [gradient + idle], loss, popart.ConstSGD(0.1))
    with pytest.raises(popart.popart_exception, match="All operations in the main graph were pruned"):
        inference(builder, [x])


def test_reset_host_weights__of_another_model__are_sent() -> None:
    net, options = Perceptron(), popart.SessionOptions()
    options.constantWeights = False
    session, found = inference(net.builder, [net.shares], options=options)
    zeros = popart.Builder(net.builder.getModelProto())
    for tensor in zeros.proto.graph.initializer:
        tensor.raw_data = bytes(len(tensor.raw_data))
    session.resetHostWeights(zeros.getModelProto())
    session.weightsFromHost()
    x, labels = net.samples()
    session.run(popart.PyStepIO({net.x: x, net.labels: labels}, found))
    np.testing.assert_allclose(found[net.shares], 0.25)


# --- what is refused --------------------------------------------------------------------------------------------------


def made(net: Perceptron, anchors: Any, **changes: Any) -> Any:
    options = changes.pop("options", popart.SessionOptions())
    flow = popart.DataFlow(changes.pop("batches", 1), anchors)
    if changes.pop("inference", False):
        return popart.InferenceSession(net.builder.getModelProto(), flow, device(), userOptions=options)
    return popart.TrainingSession(
        net.builder.getModelProto(), flow, changes.pop("loss", net.loss), popart.ConstSGD(RATE), device(),
        userOptions=options,
    )  # fmt: skip


def option(**changes: Any) -> popart.SessionOptions:
    options = popart.SessionOptions()
    for name, value in changes.items():
        setattr(options, name, value)
    return options


@pytest.mark.parametrize(
    ("anchors", "changes", "words"),
    [
        ({}, {"inference": True}, "User must specify an anchor tensor when doing inference."),
        (["nothing"], {}, "Anchor tensor `nothing' not in Ir Tensors."),
        (["Gradient___nothing"], {}, "Anchor tensor `Gradient___nothing' not in Ir Tensors."),
        ({}, {"loss": "nothing"}, "Could not find loss tensor 'nothing'"),
        ({}, {"loss": "Softmax:0"}, "Loss tensor, 'Softmax:0', must be a scalar tensor"),
        ({}, {"options": option(accumulationFactor=2)}, "enableGradientAccumulation is False"),
        (["Softmax:0"], {"inference": True, "options": option(enableGradientAccumulation=True)}, "training session"),
        ({}, {"options": option(enablePipelining=True)}, "Pipelining requires more than 1 IPU (currently 1)"),
    ],
)
def test_sessions__wrong_parts__are_refused_in_popart_words(anchors: Any, changes: Any, words: str) -> None:
    with pytest.raises(popart.popart_exception) as refused:
        made(Perceptron(), anchors, **changes)
    assert words in refused.value.args[0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: s.weightsToHost(), "Devicex::prepare() must be called before Devicex::weightsToHost"),
        (lambda s: s.getReport(), "Session must have been prepared before a report can be fetched"),
        (lambda s: s.getCycleCount(), "SessionOption 'instrumentWithHardwareCycleCounter' must be"),
        (lambda s: s.loadExecutable("nowhere"), "there is no executable 'nowhere'"),
        (lambda s: s.resetHostWeights(b""), "Cannot call resetHostWeights when constantWeights is set"),
    ],
)
def test_sessions__calls_out_of_order__are_refused_in_popart_words(call: Any, words: str) -> None:
    with pytest.raises(popart.popart_exception) as refused:
        call(made(Perceptron(), ["Softmax:0"], inference=True))
    assert words in refused.value.args[0]


def test_run__wrong_arrays_or_no_weights__is_refused_in_popart_words() -> None:
    net = Perceptron()
    session = made(net, ["Softmax:0"], inference=True)
    session.prepareDevice()
    x, labels = net.samples()
    found = session.initAnchorArrays()
    with pytest.raises(popart.popart_exception, match="Must call weightsFromHost before run"):
        session.run(popart.PyStepIO({net.x: x, net.labels: labels}, found))
    session.weightsFromHost()
    with pytest.raises(popart.popart_runtime_error, match="Unexpected number of input elements for Tensor input"):
        session.run(popart.PyStepIO({net.x: x[:2].copy(), net.labels: labels}, found))
    with pytest.raises(popart.popart_exception, match="has been provided as one of the inputs to the stepIO, but it"):
        session.run(popart.PyStepIO({net.x: x, net.labels: labels, "other": x}, found))
    with pytest.raises(popart.popart_exception, match="not c-contiguous"):
        popart.PyStepIO({net.x: x[:, ::2]}, found)


def test_input_shape_info__unknown_extent__must_be_said() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", ["batch", 2]))
    builder.addOutputTensor(builder.aiOnnx.relu([x]))
    flow = popart.DataFlow(1, ["Relu:0"])
    with pytest.raises(popart.popart_exception, match="must be specified in InputShapeInfo, as it has shape"):
        popart.InferenceSession(builder.getModelProto(), flow, device())
    info = popart.InputShapeInfo()
    info.add(x, popart.TensorInfo("FLOAT", [3, 2]))
    session = popart.InferenceSession(builder.getModelProto(), flow, device(), info)
    assert session.getInfo("Relu:0").shape() == [3, 2]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("EveryN",), "Must specify return period with option 'EVERYN'"),
        (("EveryN", 0), "Anchor return period must be greater than zero"),
        (("All", 2), "A return period should not be supplied for this anchor return type"),
        (("Some",), "Invalid anchor return type ID supplied: Some"),
    ],
)
def test_anchor_return_type__wrong_words__are_refused(given: Any, words: str) -> None:
    with pytest.raises(popart.popart_exception, match=words):
        popart.AnchorReturnType(*given)
    with pytest.raises(RuntimeError, match="Invalid anchor period"):
        made(Perceptron(), {"Softmax:0": EveryOther}, batches=3).initAnchorArrays()
