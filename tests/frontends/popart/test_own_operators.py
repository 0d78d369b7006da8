"""Operators of users, groups of replicas, packed data, decoding and ends of runs."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx")
torch = pytest.importorskip("torch", reason="needs PyTorch")

from abele import popart
from abele.poplibs import popops
from abele.poplibs.popops.expr import _1
from frontends.popart.popart_kit import All, Final, Perceptron, infer, inference, replicated, training


@popart.register_op("Cube", domain="tests.example", version=2)
class Cube(popart.CustomOp):
    """scale · x³."""

    @staticmethod
    def shapes(x: Any, *, scale: float = 1.0) -> Any:
        return x

    @staticmethod
    def lower(call: Any, x: Any, *, scale: float = 1.0) -> Any:
        return popops.map(call.graph, _1 * _1 * _1 * scale, [x], call.prog)

    @staticmethod
    def gradient(builder: Any, inputs: Any, outputs: Any, grads: Any, *, scale: float = 1.0) -> Any:
        square = builder.aiOnnx.mul([inputs[0], inputs[0]])
        return [builder.aiGraphcore.scale([builder.aiOnnx.mul([square, grads[0]])], 3 * scale)]


def cubes(name: str = "Cube", version: int = 2) -> tuple[Any, str, str, str]:
    """A builder with x · w, its cubes and their sum."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [4]))
    weight = builder.addInitializedInputTensor(np.arange(1, 5, dtype=np.float32), "w")
    [made] = builder.customOp(name, version, "tests.example", [builder.aiOnnx.mul([x, weight])], {"scale": 0.5}, 1)
    return builder, x, weight, made


def test_custom_op__registered__trains_by_its_gradient() -> None:
    builder, x, weight, made = cubes()
    assert builder.getTensorShape(made) == [4]
    loss = builder.aiGraphcore.identityloss([made], popart.ReductionType.Sum)
    session, found = training(builder, [made, "Gradient___" + weight], loss, popart.ConstSGD(0.1))
    given = np.array([1, -1, 2, 0.5], np.float32)
    session.run(popart.PyStepIO({x: given}, found))
    w = np.arange(1, 5)
    np.testing.assert_allclose(found[made], 0.5 * (given * w) ** 3, rtol=1e-6)
    np.testing.assert_allclose(found["Gradient___w"], 1.5 * (given * w) ** 2 * given, rtol=1e-6)


@pytest.mark.parametrize(("name", "version"), [("Cubes", 2), ("Cube", 1)])
def test_custom_op__not_registered__says_how_to_register(name: str, version: int) -> None:
    builder, *_, made = cubes(name, version)
    with pytest.raises(popart.popart_exception) as refused:
        inference(builder, [made])
    assert f"{name} '' of the domain 'tests.example' has no lowering" in str(refused.value)
    assert f"register it, version {version}" in str(refused.value)


GIVEN = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
PAIRS, APART = (
    popart.CommGroup(popart.CommGroupType.Consecutive, 2),
    popart.CommGroup(popart.CommGroupType.Orthogonal, 2),
)
HALVES, STEPS = [[0, 1], [2, 3]], [[0, 2], [1, 3]]
Operator = popart.CollectiveOperator


@pytest.mark.parametrize(
    ("operator", "group", "members", "joined"),
    [
        (Operator.Mean, None, [[0, 1, 2, 3]], lambda rows: rows.mean(0)),
        (Operator.Min, PAIRS, HALVES, lambda rows: rows.min(0)),
        (Operator.Mul, APART, STEPS, lambda rows: rows.prod(0)),
        (Operator.SquareAdd, APART, STEPS, lambda rows: (rows**2).sum(0)),
    ],
)
def test_replicated_all_reduce__in_groups__joins_their_members(
    operator: Any, group: Any, members: Any, joined: Any
) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [3]))
    made = builder.aiGraphcore.replicatedallreduce([x], operator, group)
    every = builder.aiGraphcore.replicatedallgather([x], group)
    session, found = inference(builder, [made, every], options=replicated(4), ipus=4)
    session.run(popart.PyStepIO({x: GIVEN}, found))
    for row in members:
        for replica in row:
            np.testing.assert_allclose(found[made][replica], joined(GIVEN[row]), rtol=1e-5)
            np.testing.assert_array_equal(found[every][replica], GIVEN[row].ravel())


def test_replicated_all_reduce__gradient__is_of_the_sum_of_all_losses() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [3]))
    weight = builder.addInitializedInputTensor(np.ones(3, np.float32), "w")
    total = builder.aiGraphcore.replicatedallreduce([builder.aiOnnx.mul([x, weight])])
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([total, x])], popart.ReductionType.Sum)
    session, found = training(builder, {loss: All}, loss, popart.ConstSGD(1.0), options=replicated(2), ipus=2)
    session.run(popart.PyStepIO({x: GIVEN[:2].copy()}, found))
    session.weightsToHost()
    held = np.zeros(3, np.float32)
    session.readWeights(popart.PyWeightsIO({weight: held}))
    np.testing.assert_allclose(held, 1 - GIVEN[:2].sum(0) ** 2, rtol=1e-5)


def test_ctc_beam_search__with_all_beams__is_the_sum_over_alignments() -> None:
    logs = torch.log_softmax(torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(0)), -1).numpy()
    lengths = np.array([4, 3], np.uint32)

    def decode(builder: Any, *names: str) -> Any:
        return builder.aiGraphcore.ctcbeamsearchdecoder(list(names), 0, 40, 2)

    scores, counts, labels = infer(decode, logs, lengths)
    for batch, steps in enumerate(lengths):
        shares: dict[tuple[int, ...], float] = defaultdict(float)
        for path in itertools.product(range(3), repeat=int(steps)):
            collapsed = tuple(n for n, _ in itertools.groupby(path) if n)
            shares[collapsed] += float(np.exp(sum(logs[t, batch, n] for t, n in enumerate(path))))
        best = sorted(shares.items(), key=lambda entry: -entry[1])[:2]
        for place, (word, share) in enumerate(best):
            np.testing.assert_allclose(scores[batch, place], np.log(share), rtol=1e-4)
            assert tuple(labels[batch, place, : counts[batch, place]]) == word


def test_packed_data_block__of_several_tensors__is_the_graph_on_each_sequence() -> None:
    builder, inner = popart.Builder(), None
    data = builder.addInputTensor(popart.TensorInfo("FLOAT", [10, 2]))
    gates = builder.addInputTensor(popart.TensorInfo("FLOAT", [10, 2]))
    inner = builder.createSubgraphBuilder()
    given = [inner.addInputTensor(popart.TensorInfo("FLOAT", [2, 4, 2])) for _ in range(2)]
    inner.addOutputTensor(inner.aiOnnx.mul(given))
    begins, lengths, targets = [0, 3, 4, 8], [3, 1, 4, 2], [7, 6, 2, 0]
    known = [builder.aiOnnx.constant(np.array(v, np.int32)) for v in (begins, lengths, targets)]
    made = builder.aiGraphcore.packedDataBlock(
        [data, known[0], known[1], gates, known[0], known[1], known[2]], [4, 4], 11, 2, inner
    )
    assert builder.getTensorShape(made) == [11, 2]
    session, found = inference(builder, [made])
    rows = np.random.default_rng(1).standard_normal((2, 10, 2)).astype(np.float32)
    session.run(popart.PyStepIO({data: rows[0].copy(), gates: rows[1].copy()}, found))
    want = np.zeros((11, 2), np.float32)
    for begin, count, target in zip(begins, lengths, targets, strict=True):
        want[target : target + count] = rows[0, begin : begin + count] * rows[1, begin : begin + count]
    np.testing.assert_allclose(found[made], want, rtol=1e-6)


def test_abort__where_its_condition_holds__ends_the_run() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]))
    builder.aiGraphcore.abort([builder.aiOnnx.greater([x, builder.aiOnnx.constant(np.float32([3, 3]))])])
    made = builder.aiOnnx.add([x, x])
    session, found = inference(builder, [made])
    session.run(popart.PyStepIO({x: np.ones(2, np.float32)}, found))
    np.testing.assert_array_equal(found[made], 2)
    with pytest.raises(popart.poplar_application_runtime_error, match="abort was reached"):
        session.run(popart.PyStepIO({x: np.float32([1, 4])}, found))


# --- what is refused, in the original's first words -----------------------------------------------------------------


def options(**changes: Any) -> Any:
    held = popart.SessionOptions()
    for name, value in changes.items():
        setattr(held, name, value)
    return held


def session_of(builder: Any, anchors: Any, held: Any) -> Any:
    flow = popart.DataFlow(1, anchors)
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1})
    return popart.InferenceSession(builder.getModelProto(), flow, device, userOptions=held)


def marked() -> Any:
    net = Perceptron()
    net.builder.recomputeOutputInBackwardPass(net.hidden)
    return session_of(net.builder, [net.shares], options(autoRecomputation=popart.RecomputationType.Standard))


def doubled() -> Any:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("DOUBLE", [2]))
    session_of(builder, [builder.aiOnnx.add([x, x])], None).prepareDevice()


def typed_twice() -> Any:
    builder = popart.Builder()
    builder.addNodeAttribute("test", 1, {builder.aiOnnx.relu([builder.addInputTensor("FLOAT", [1])])})
    builder.addNodeAttribute("test", 1, {"Relu:0"})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (marked, "A mixture of auto and manual recomputation is not supported"),
        (doubled, "Is there a poplar type for DOUBLE?"),
        (typed_twice, "Node already has attribute test."),
        (lambda: popart.Builder(b"nothing"), "Failed to load a ModelProto from the string"),
        (lambda: popart.Builder("/nowhere.onnx"), "Failed to load a ModelProto from the file"),
        (lambda: popart.Builder().addUntypedInputTensor(), "Can not add untyped tensors to the top-level graph"),
        (lambda: popart.Patterns(["Nothing"]), "Invalid pattern name 'Nothing'"),
        (lambda: popart.InferenceSession.fromIr(None, None), "sessions of a popxl.Ir are not made here"),
        (lambda: popart.DeviceManager().createIpuModelDevice({"ipuVersion": "ipu9"}), "there is no ipuVersion 'ipu9'"),
        (lambda: popart.DeviceManager().createIpuModelDevice({"numIpus": 2}), "a device has no option 'numIpus'"),
        (
            lambda: session_of(Perceptron().builder, ["Relu:0"], options(replicatedGraphCount=2)),
            "replicatedGraphCount is 2, and enableReplicatedGraphs is False",
        ),
        (
            lambda: session_of(
                Perceptron().builder,
                ["Relu:0"],
                options(enableDistributedReplicatedGraphs=True, globalReplicationFactor=4),
            ),
            "globalReplicationFactor is 4",
        ),
    ],
)
def test_programs__that_are_refused__get_popart_words(call: Any, words: str) -> None:
    with pytest.raises(popart.popart_exception) as refused:
        call()
    assert refused.value.args[0].startswith(words)


def test_devices__of_fewer_tiles__are_smaller_machines() -> None:
    net = Perceptron()
    manager = popart.DeviceManager()
    assert manager is popart.DeviceManager()
    device = manager.createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 8})
    flow = popart.DataFlow(1, {net.shares: Final})
    session = popart.InferenceSession(net.builder.getModelProto(), flow, device)
    session.prepareDevice()
    assert session.getReport().compilation.target.numTiles % 8 == 0
    assert session.getReport().compilation.target.numTiles <= 32
