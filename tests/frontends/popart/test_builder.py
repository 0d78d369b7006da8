"""PopART's builder: names, shapes, attributes, graphs inside, versions; models as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs onnx")
pytest.importorskip("torch", reason="needs PyTorch")

from abele import popart
from frontends.popart.popart_kit import Perceptron, device, infer, inference


def two_inputs() -> tuple[popart.Builder, str, str]:
    builder = popart.Builder()
    info = popart.TensorInfo("FLOAT", [2, 3])
    return builder, builder.addInputTensor(info), builder.addInputTensor("FLOAT", [2, 3], "other")


def test_names__of_inputs_results_and_scopes__are_popart_s() -> None:
    builder, x, other = two_inputs()
    assert (x, other) == ("input", "other")
    assert builder.addInputTensor(popart.TensorInfo(np.float16, [1])) == "input/1"
    assert builder.aiOnnx.add([x, other]) == "Add:0"
    assert builder.aiOnnx.add([x, other]) == "Add:0/1"
    with builder.nameScope("a"), builder.nameScope("b"):
        assert builder.aiOnnx.mul([x, other], "m") == "a/b/m:0"
        assert builder.getNameScope("n") == "a/b/n"
        assert builder.addInitializedInputTensor(np.ones(2, np.float16)) == "a/b/init_input"
    assert builder.getInputTensorIds() == ["input", "other", "input/1", "a/b/init_input"]
    assert builder.getTrainableTensorIds() == ["a/b/init_input"]
    assert builder.isInitializer("a/b/init_input")
    assert builder.getTensorDtypeString("a/b/init_input") == "float16"
    assert builder.getTensorShape("Add:0") == [2, 3]


def test_opsets__a_second_version__is_refused() -> None:
    builder, x, _ = two_inputs()
    builder.aiOnnxOpset9.relu([x])
    with pytest.raises(RuntimeError, match=r"Invalid opset 'aiOnnxOpset8' selected. Opset for domain ai.onnx already"):
        builder.aiOnnxOpset8.relu([x])
    assert builder.aiOnnx.version == 9


@pytest.mark.parametrize("name", ["add", "conv", "gemm", "matmul"])
def test_operators__a_wrong_keyword__is_a_type_error(name: str) -> None:
    builder, x, other = two_inputs()
    with pytest.raises(TypeError, match=rf"^{name}\(\): incompatible function arguments"):
        getattr(builder.aiOnnx, name)([x, other], colour=1)


def test_node_attributes__added_twice_or_missing__are_refused() -> None:
    builder, x, other = two_inputs()
    made = builder.aiOnnx.add([x, other])
    builder.addNodeAttribute("test", 5, {made})
    assert builder.nodeHasAttribute("test", {made})
    assert builder.getInt64NodeAttribute("test", {made}) == 5
    with pytest.raises(popart.popart_exception, match=r"Node already has attribute test."):
        builder.addNodeAttribute("test", 6, {made})
    builder.removeNodeAttribute("test", {made})
    with pytest.raises(popart.popart_exception, match="Node does not have an attribute test"):
        builder.getInt64NodeAttribute("test", {made})
    with pytest.raises(popart.popart_exception, match=r"Cannot remove attribute test as it does not exist."):
        builder.removeNodeAttribute("test", {made})


def test_subgraphs__call_loop_and_if__run() -> None:
    values = np.array([3.0, -1.0], np.float32)

    def called(builder: Any, x: str) -> str:
        inner = builder.createSubgraphBuilder()
        given = inner.addInputTensor(popart.TensorInfo("FLOAT", [2]))
        inner.addOutputTensor(inner.aiOnnx.mul([given, given]))
        return str(builder.aiGraphcore.call([x], 1, inner)[0])

    def looped(builder: Any, x: str) -> str:
        trips, keep = (builder.aiOnnx.constant(np.array(v)) for v in (5, True))
        body = builder.createSubgraphBuilder()
        body.addInputTensor(popart.TensorInfo("INT64", []))
        body.addOutputTensor(body.addInputTensor(popart.TensorInfo("BOOL", [])))
        carried = body.addUntypedInputTensor()
        body.addOutputTensor(body.aiOnnx.add([carried, carried]))
        return str(builder.aiOnnx.loop([trips, keep, x], 1, body)[0])

    def chosen(builder: Any, x: str, condition: str) -> str:
        branches = [builder.createSubgraphBuilder() for _ in range(2)]
        for branch, name in zip(branches, ("neg", "exp"), strict=True):
            branch.addInputTensorFromParentGraph(x)
            branch.addOutputTensor(getattr(branch.aiOnnx, name)([x]))
        return str(builder.aiOnnx.logical_if([condition], 1, *branches)[0])

    np.testing.assert_allclose(infer(called, values), values**2)
    np.testing.assert_allclose(infer(looped, values), 32 * values)
    np.testing.assert_allclose(infer(chosen, values, np.array(True)), np.exp(values), rtol=1e-5)
    np.testing.assert_allclose(infer(chosen, values, np.array(False)), -values)
    with pytest.raises(popart.popart_exception, match="Can not add untyped tensors to the top-level graph"):
        popart.Builder().addUntypedInputTensor()


def test_save_initializers_externally__beside_the_model__are_read_again(tmp_path: Path) -> None:
    net = Perceptron()
    net.builder.saveInitializersExternally(net.weights, tmp_path / "weights.bin")
    net.builder.saveModelProto(tmp_path / "model.onnx")
    assert (tmp_path / "weights.bin").stat().st_size == sum(a.nbytes for a in net.arrays)
    flow = popart.DataFlow(1, [net.hidden])
    session = popart.InferenceSession(str(tmp_path / "model.onnx"), flow, device())
    np.testing.assert_array_equal(session.weights[net.weights[0]], net.arrays[0])


@pytest.mark.parametrize("given", ["no/such/file.onnx", b"no model"])
def test_session__of_no_model__is_refused(given: Any) -> None:
    with pytest.raises(popart.popart_exception, match="Failed to load"):
        popart.InferenceSession(given, popart.DataFlow(1, ["x"]), device())


def test_shapes__of_operands_that_do_not_fit__are_refused_by_builder_and_session() -> None:
    builder, x, other = two_inputs()
    made = builder.aiOnnx.matmul([x, other])
    with pytest.raises(popart.popart_exception, match="whose inner dimensions differ"):
        builder.getTensorShape(made)
    with pytest.raises(popart.popart_exception, match="whose inner dimensions differ"):
        inference(builder, [made])


# --- models as a whole ------------------------------------------------------------------------------------------------


def test_graph_transformer__floats_to_halves__run_in_halves() -> None:
    net = Perceptron()
    transformer = popart.GraphTransformer(net.builder.getModelProto())
    transformer.convertFloatsToHalfs()
    builder = popart.Builder(transformer.getModelProto())
    assert builder.getTensorDtypeString(net.hidden) == "float16"
    session, found = inference(builder, [net.hidden])
    x, labels = net.samples()
    session.run(popart.PyStepIO({net.x: x.astype(np.float16), net.labels: labels}, found))
    assert found[net.hidden].dtype == np.float16
    np.testing.assert_allclose(found[net.hidden], np.maximum(x @ net.arrays[0], 0), atol=0.01)


def test_graph_transformer__wide_integers_and_unused_inputs__are_changed() -> None:
    builder, x, other = two_inputs()
    wide = builder.addInitializedInputTensor(np.array([1, 2**40]), "wide")
    builder.addOutputTensor(builder.aiOnnx.relu([x]))
    builder.addOutputTensor(builder.aiOnnx.cast([wide], "FLOAT"))
    with pytest.raises(popart.popart_exception, match="which int32 does not hold"):
        popart.GraphTransformer(builder.getModelProto()).convertINT64ToINT32()
    transformer = popart.GraphTransformer(builder.getModelProto())
    transformer.convertINT64ToINT32(True)
    transformer.removeUnusedInputs()
    transformer.convertInitializersToConstants([wide])
    proto = onnx.load_from_string(transformer.getModelProto())
    assert [v.name for v in proto.graph.input] == [x]
    assert not proto.graph.initializer
    constant = onnx.numpy_helper.to_array(proto.graph.node[0].attribute[0].t)
    assert (constant == [1, 2**31 - 1]).all()
    assert other not in transformer.getModelProto().decode("latin1")


# --- what there is ----------------------------------------------------------------------------------------------------


def test_supported_operations__and_the_others__are_all_of_the_version() -> None:
    there = popart.getSupportedOperations(False)
    missing = {o.type for o in popart.getUnsupportedOperations(10)}
    names = {o.type for o in there if o.domain == "ai.onnx"}
    assert popart.OperatorIdentifier("ai.onnx", "Conv", 1) in there
    assert popart.OperatorIdentifier("ai.graphcore", "Gelu", 1) in there
    assert {"StringNormalizer", "TfIdfVectorizer"} <= missing
    assert not missing & names


def test_operators__of_popart_s_domain__have_a_lowering() -> None:
    there = {o.type for o in popart.getSupportedOperations() if o.domain == "ai.graphcore"}
    from abele.frontends.popart.graphcore import SIGNATURES

    assert {own.name for own in SIGNATURES.values()} <= there


def test_methods__of_operators__take_arguments_at_popart_s_places() -> None:
    image = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    pooled = infer(lambda b, x: b.aiOnnx.maxpool([x], 1, [2, 2], 0, [1, 1], [0] * 4, 0, [2, 2])[0], image)
    np.testing.assert_array_equal(pooled[0, 0], [[5, 7], [13, 15]])
    np.testing.assert_array_equal(infer(lambda b, x: b.aiOnnx.transpose([x], []), image), image.T)
    builder = popart.Builder()
    with pytest.raises(popart.popart_exception, match="Add has 1 inputs"):
        builder.aiOnnx.add([builder.addInputTensor("FLOAT", [2])])
    with pytest.raises(TypeError, match=r"^matmul\(\): incompatible function arguments"):
        builder.aiOnnx.matmul()
    with pytest.raises(popart.popart_exception, match="no tensor 'sum'"):
        builder.addOutputTensor("sum")


@pytest.mark.parametrize(
    ("dtype", "name"),
    [("FLOAT", "float32"), (popart.DataType.FLOAT16, "float16"), ("DOUBLE", "float64"), (np.int8, "int8")],
)
def test_types__of_tensors__are_named_as_numpy_names_them(dtype: Any, name: str) -> None:
    info = popart.TensorInfo(dtype, np.array([2, 3]))
    builder = popart.Builder()
    x = builder.addInputTensor(info, popart.DebugContext("x"))
    builder.addOutputTensor(builder.aiOnnx.identity([x]))
    assert (x, info.data_type_lcase(), builder.getTensorDtypeString(x)) == ("x", name, name)
    onnx.checker.check_model(onnx.load_model_from_string(builder.getModelProto()))


def test_patterns__by_names_and_levels__are_on_or_off() -> None:
    chosen = popart.Patterns(["PostNRepl", "SqrtGradOp"])
    chosen.InPlace = True
    assert str(chosen).split() == ["PostNRepl", "InPlace", "SqrtGradOp"]
    assert popart.Patterns().enablePattern("SplitGather", False).isPatternEnabled("PreUniRepl")
    with pytest.raises(popart.popart_exception, match="Invalid pattern name 'Nope'"):
        popart.Patterns(["Nope"])
    place = popart.TensorLocation(storage=popart.TensorStorage.OffChip, loadTileSet=popart.TileSet.IO)
    assert place.serialized() == [1, 1, 0, 0]


def test_logger__levels__are_checked() -> None:
    logger = popart.getLogger("session")
    logger.setLevel("DEBUG")
    assert logger.getLevel() == "DEBUG"
    logger.setLevel("OFF")
    with pytest.raises(popart.popart_exception, match="Unknown logging level 'LOUD'"):
        logger.setLevel("LOUD")


def test_exceptions__of_each_kind__are_below_popart_s_own() -> None:
    assert issubclass(popart.popart_runtime_error, popart.popart_exception)
    assert issubclass(popart.OutOfMemoryException, popart.popart_exception)
    kind = popart.poplar_recoverable_runtime_error
    assert issubclass(kind, popart.poplar_system_runtime_error)
    assert issubclass(kind, popart.poplar_exception)
    assert kind("link").recoveryAction


def test_options__unknown_or_of_another_type__are_refused() -> None:
    options = popart.SessionOptions()
    with pytest.raises(AttributeError, match="did you mean 'enablePipelining'"):
        options.enablePipelinig = True
    with pytest.raises(TypeError, match="accumulationFactor takes a whole number"):
        options.accumulationFactor = "2"
    options.enableExplicitIR(True)
    assert options.useHostCopyOps
    patterns = popart.Patterns(popart.PatternsLevel.Default).enablePattern("InPlace", False)
    assert not patterns.InPlace
    with pytest.raises(popart.popart_exception, match="Invalid pattern name 'Nothing'"):
        popart.Patterns(["Nothing"])
