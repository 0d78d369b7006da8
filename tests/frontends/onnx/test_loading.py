"""Loading and running: sources, shapes, held values, initialisers, functions, graphs inside, names and errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from abele import onnx as abele_onnx
from abele.errors import ElementRangeError, SignatureError, UnsupportedOpError
from abele.onnx import ModelError, ModelShapeError
from frontends.onnx.node_cases import interpreted

MLP = """<ir_version: 8, opset_import: ["" : 17]> mlp (float[N, 4] x) => (float[N, 3] y)
    <float[4, 3] w = {1,2,3,4,5,6,7,8,9,10,11,12}, float[3] b = {0.5, -100, 1}>
    { a = MatMul (x, w) c = Add (a, b) y = Relu (c) }"""


def held(model: abele_onnx.Model, *arrays: np.ndarray) -> list[np.ndarray]:
    return list(interpreted(model, dict(zip((p.name for p in model.inputs), arrays, strict=True))).values())


def same(text: str, *arrays: np.ndarray, shapes: dict | None = None) -> abele_onnx.Model:
    """A model in ONNX's text, whose results are the reference's."""
    proto = parser.parse_model(text)
    model = abele_onnx.load(proto, shapes)
    names = [v.name for v in proto.graph.input]
    wanted = ReferenceEvaluator(proto).run(None, dict(zip(names, arrays, strict=True)))
    for got, right in zip(held(model, *arrays), wanted, strict=True):
        assert got.shape == right.shape
        assert got.dtype == right.dtype
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-6)
    return model


X = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)


@pytest.mark.parametrize("kind", ["path", "text of a path", "bytes", "bytearray", "model"])
def test_load__from_each_source__gives_the_same_results(kind: str, tmp_path: Path) -> None:
    proto = parser.parse_model(MLP)
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    contents = path.read_bytes()
    sources = {"path": path, "text of a path": str(path), "bytes": contents, "model": proto}
    model = abele_onnx.load(sources.get(kind, bytearray(contents)), {"N": 2})
    (wanted,) = ReferenceEvaluator(proto).run(None, {"x": X})
    np.testing.assert_allclose(held(model, X)[0], wanted, rtol=1e-6)


def test_model__compiled__runs_in_all_its_ways() -> None:
    proto = parser.parse_model(MLP)
    model = abele_onnx.load(proto, {"x": (2, 4)})
    (wanted,) = ReferenceEvaluator(proto).run(None, {"x": X})
    ways = [model.infer(X), model.infer(x=X), model.infer({"x": X}), {"y": model.run(None, {"x": X})[0]}]
    for made in (*ways, {"y": model.run(["y"], {"x": X})[0]}):
        np.testing.assert_allclose(made["y"], wanted, rtol=1e-6)
    assert model.report.total_cycles > 0
    assert repr(model) == "Model('mlp': x: float32[2, 4] → y: float32[2, 3])"
    assert model.operators == {"Add": 1, "MatMul": 1, "Relu": 1}


def test_model__saved_with_other_weights__is_loaded_with_them(tmp_path: Path) -> None:
    model = abele_onnx.load(parser.parse_model(MLP), {"N": 2})
    model.weights["w"] = np.ones((4, 3), np.float32)
    model.save(tmp_path / "m.onnx")
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    (wanted,) = ReferenceEvaluator(str(tmp_path / "m.onnx")).run(None, {"x": X})
    np.testing.assert_allclose(wanted, np.maximum(X.sum(1, keepdims=True) + np.array([0.5, -100, 1]), 0), rtol=1e-5)


def test_model__with_data_beside_it__is_saved_whole(tmp_path: Path) -> None:
    proto = parser.parse_model(MLP)
    w = np.arange(12, dtype=np.float32).reshape(4, 3)
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(w, "w"))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    model = abele_onnx.load(tmp_path / "m.onnx", {"N": 2})
    model.save(tmp_path / "alone.onnx")
    (tmp_path / "m.data").unlink()
    again = abele_onnx.load(tmp_path / "alone.onnx", {"N": 2})
    assert np.array_equal(again.weights["w"], w)


# --- shapes and values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({}, "its open dimensions have to be bound"),
        ({"M": 2}, "names 'M', which is no input and no dimension"),
        ({"x": (2, 5)}, "shapes= gives [2, 5]"),
        ({"x": (2,)}, "has 2 dimensions"),
        ({"x": (1 << 30, 4)}, "4,294,967,296 elements"),
    ],
    ids=str,
)
def test_load__with_wrong_shapes__says_what_is_wrong(shapes: dict, words: str) -> None:
    with pytest.raises(ModelShapeError) as raised:
        abele_onnx.load(parser.parse_model(MLP), shapes)
    assert words in raised.value.message


def test_load__with_one_dimension_bound_twice__is_refused() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x, float[N] z) => (float[N] y) { y = Add (x, z) }'
    with pytest.raises(ModelShapeError, match="the dimension 'N' is 2, and 3 in 'z'"):
        abele_onnx.load(parser.parse_model(text), {"x": (2,), "z": (3,)})
    assert abele_onnx.load(parser.parse_model(text), {"x": (2,)}).outputs[0].shape == (2,)


RESHAPE = (
    '<ir_version: 8, opset_import: ["" : 17]> g (float[2, 6] x, int64[2] s) => (float[a, b] y) { y = Reshape (x, s) }'
)


def test_load__with_values_of_an_input__has_no_such_input() -> None:
    model = abele_onnx.load(parser.parse_model(RESHAPE), values={"s": [3, 4]})
    assert [p.name for p in model.inputs] == ["x"]
    assert model.outputs[0].shape == (3, 4)


def test_load__with_a_shape_that_only_a_run_knows__says_how_to_give_it() -> None:
    with pytest.raises(ModelShapeError, match="needs the elements of its input 'shape'") as raised:
        abele_onnx.load(parser.parse_model(RESHAPE))
    assert raised.value.tensor == "s"
    assert "values={'s': …}" in str(raised.value)
    with pytest.raises(ModelError, match="names 't', which is no input"):
        abele_onnx.load(parser.parse_model(RESHAPE), values={"t": [3, 4]})


def test_load__with_shapes_computed_by_nodes__folds_them() -> None:
    model = same(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[B, 3, 4] x) => (float[a, b] y)
        <int64[1] zero = {0}, int64[1] minus = {-1}>
        { s = Shape (x) b = Gather <axis = 0> (s, zero) t = Concat <axis = 0> (b, minus) y = Reshape (x, t) }""",
        np.ones((5, 3, 4), np.float32),
        shapes={"B": 5},
    )
    assert model.outputs[0].shape == (5, 12)
    assert [op.kind for op in model.network.ops if op.kind != "constant"] == ["reshape"]


# --- what is in graphs ------------------------------------------------------------------------------------------------


def test_initialiser__sparse__is_dense_in_the_network() -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "s"], ["y"])], "g", [x], [y])
    values = numpy_helper.from_array(np.array([2.0, 5.0], np.float32), "s")
    graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([[0, 1], [1, 2]]), "at"), [2, 3])
    )
    model = abele_onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    (made,) = held(model, np.ones((2, 3), np.float32))
    assert made.tolist() == [[0, 2, 0], [0, 0, 5]]


def test_initialiser__that_is_an_input_too__needs_not_be_given() -> None:
    proto = parser.parse_model(MLP)
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 3]))
    assert [p.name for p in abele_onnx.load(proto, {"N": 2}).inputs] == ["x"]


def test_function__with_attributes_and_defaults__is_read_in_its_place() -> None:
    # The reference has no defaults of functions' attributes.
    text = """<ir_version: 9, opset_import: ["" : 17, "own" : 1]> g (float[2, 4] x) => (float[2, 4] y)
        { a = own.leaky <slope = 0.5> (x) b = own.leaky (a) y = own.both (b) }
        <domain: "own", opset_import: ["" : 17]> leaky <slope: float = 0.25> (a) => (b)
        { b = LeakyRelu <alpha: float = @slope> (a) }
        <domain: "own", opset_import: ["" : 17, "own" : 1]> both (a) => (b)
        { c = own.leaky <slope = 2.0> (a) b = Neg (c) }"""
    (made,) = held(abele_onnx.load(parser.parse_model(text)), X)
    np.testing.assert_allclose(made, -np.where(X < 0, X * 0.25, X), rtol=1e-6)


def test_graph_inside__that_reads_tensors_around__gets_them() -> None:
    # The reference puts rows of loops one after the other instead of stacking them.
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 4] x, bool k) => (float[2, 4] y, float[3, 2, 4] rows)
    <int64 most = {3}, bool yes = {1}>
    { z = Neg (x)
      o = If (k) <then_branch = t () => (float[2, 4] a) { a = Add (x, z) }, else_branch = e () => (float[2, 4] b)
          { b = Mul (x, z) }>
      y, rows = Loop (most, yes, o) <body = trip (int64 i, bool c, float[2, 4] v)
          => (bool d, float[2, 4] u, float[2, 4] r) { d = Identity (c) u = Sub (v, x) r = Mul (u, z) }> }"""
    model = abele_onnx.load(parser.parse_model(text))
    for condition in (True, False):
        begin = np.zeros_like(X) if condition else -X * X
        trips = [begin - n * X for n in (1, 2, 3)]
        y, rows = held(model, X, np.array(condition))
        np.testing.assert_allclose(y, trips[-1], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(rows, [u * -X for u in trips], rtol=1e-5, atol=1e-6)


def test_types__of_64_bits__come_back_as_they_were_declared() -> None:
    model = same(
        """<ir_version: 8, opset_import: ["" : 17]> g (int64[3] i, double[3] d) => (int64[3] j, double[3] e, bool[3] k)
        { j = Add (i, i) e = Mul (d, d) k = Greater (d, e) }""",
        np.array([1, -2, 3]),
        np.array([0.5, 2.0, -1.0]),
    )
    assert [str(v.dtype) for v in model.network.inputs] == ["i32", "f32"]


def test_integers__beyond_32_bits__are_refused() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (int64[1] i) => (int64[1] j)
    <int64[1] c = {5000000000}> { j = Add (i, c) }"""
    with pytest.raises(ElementRangeError, match="5000000000 does not fit"):
        abele_onnx.load(parser.parse_model(text))


def test_nodes__without_lowering__are_all_named() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[a, b] y)
    { a = NonZero (x) b = Unique (x) c = Add (a, b) y = Nope (c) }"""
    proto = parser.parse_model(text)
    with pytest.raises(UnsupportedOpError) as raised:
        abele_onnx.load(proto)
    assert "2 nodes of the model have no lowering" in raised.value.message
    assert all(name in str(raised.value) for name in ("NonZero", "Unique"))
    assert abele_onnx.unsupported_nodes(proto) == ["NonZero", "Nope", "Unique"]


def test_opset__older_than_7__is_read_with_a_warning() -> None:
    proto = parser.parse_model(MLP.replace('"" : 17', '"" : 6'))
    with pytest.warns(UserWarning, match="the model is of opset 6"):
        abele_onnx.load(proto, {"N": 1})


@pytest.mark.parametrize(
    ("feeds", "words"),
    [
        ({}, "was not given x: float32"),
        ({"x": X, "z": X}, "has no input 'z'"),
        ({"x": X[:1]}, "was loaded for x: float32"),
        ({"x": X.astype(complex)}, "takes x: float32"),
    ],
    ids=["none", "more", "another shape", "another type"],
)
def test_infer__with_wrong_arrays__says_what_it_takes(feeds: dict, words: str) -> None:
    model = abele_onnx.load(parser.parse_model(MLP), {"N": 2})
    with pytest.raises(SignatureError) as raised:
        model.infer(feeds)
    assert words in raised.value.message
