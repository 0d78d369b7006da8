"""Models from elsewhere that are wrong on purpose: each is refused in words, quickly, without memory, and reads no file
outside of its folder."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from abele import onnx as abele_onnx
from abele.errors import AbeleError, UnsupportedOpError
from abele.onnx import ModelError, ModelFileError, ModelShapeError

N = helper.make_node
ANY = onnx.ValueInfoProto(name="y")


def port(name: str, shape: list[int], code: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, code, shape)


def ints(name: str, *numbers: int) -> TensorProto:
    return numpy_helper.from_array(np.array(numbers, np.int64), name)


def model(*nodes, inputs=None, held=(), opset=17, functions=(), outputs=(ANY,)):
    given = [port("x", [2, 3])] if inputs is None else inputs
    graph = helper.make_graph(list(nodes), "hostile", given, list(outputs), list(held))
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=sets, functions=list(functions))


def function(name: str, *nodes: onnx.NodeProto) -> onnx.FunctionProto:
    return helper.make_function(
        "own", name, ["a"], ["b"], list(nodes), [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    )


def trip(*nodes: onnx.NodeProto, going: str = "c") -> onnx.GraphProto:
    entering = [port("i", [], TensorProto.INT64), port("c", [], TensorProto.BOOL), port("v", [2, 3])]
    return helper.make_graph(list(nodes), "trip", entering, [port(going, [], TensorProto.BOOL), port("u", [2, 3])])


def chain(count: int, calls: int) -> list[onnx.FunctionProto]:
    """Functions that call the one before so often."""
    made = [function("f0", N("Relu", ["a"], ["b"]))]
    for number in range(1, count):
        names = ["a", *(f"t{n}" for n in range(calls - 1)), "b"]
        nodes = [N(f"f{number - 1}", [names[n]], [names[n + 1]], domain="own") for n in range(calls)]
        made.append(function(f"f{number}", *nodes))
    return made


def nested(depth: int) -> onnx.ModelProto:
    """Conditions inside of conditions, which are read again and again."""
    inner = helper.make_graph([N("Relu", ["x"], ["z"])], "branch", [], [port("z", [2, 3])])
    other = helper.make_graph([N("Abs", ["x"], ["z"])], "other", [], [port("z", [2, 3])])
    for _ in range(depth):
        node = N("If", ["k"], ["z"], then_branch=inner, else_branch=other)
        inner = helper.make_graph([node], "branch", [], [port("z", [2, 3])])
    node = N("If", ["k"], ["y"], then_branch=inner, else_branch=other)
    return model(node, inputs=[port("x", [2, 3]), port("k", [], TensorProto.BOOL)])


def sparse(shape: list[int], *places: int) -> onnx.ModelProto:
    made = model(N("Add", ["x", "s"], ["y"]))
    values = numpy_helper.from_array(np.ones(len(places), np.float32), "s")
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, ints("at", *places), shape))
    return made


IMPOSSIBLE: dict[str, tuple[Callable[[], onnx.ModelProto], type[AbeleError], str]] = {
    "a cycle": (
        lambda: model(N("Add", ["x", "b"], ["a"]), N("Relu", ["a"], ["b"]), N("Relu", ["b"], ["y"])),
        ModelError,
        "reads 'b', which no node before makes",
    ),
    "a node that reads itself": (lambda: model(N("Add", ["x", "y"], ["y"])), ModelError, "reads 'y'"),
    "names that clash": (
        lambda: model(N("Relu", ["x"], ["y"]), N("Abs", ["x"], ["y"])),
        ModelError,
        "two nodes of the model make 'y'",
    ),
    "a node with an input's name": (lambda: model(N("Relu", ["x"], ["x"])), ModelError, "two nodes of the model make"),
    "an output that nothing makes": (lambda: model(N("Relu", ["x"], ["z"])), ModelError, "reads 'y'"),
    "a function that calls itself": (
        lambda: model(
            N("f", ["x"], ["y"], domain="own"), functions=[function("f", N("f", ["a"], ["b"], domain="own"))]
        ),
        ModelError,
        "calls itself",
    ),
    "functions one inside of the next": (
        lambda: model(N("f99", ["x"], ["y"], domain="own"), functions=chain(100, 1)),
        ModelError,
        "call each other",
    ),
    "a future opset": (lambda: model(N("Relu", ["x"], ["y"]), opset=9999), ModelError, "opset 9999"),
    "an unknown domain": (
        lambda: model(N("Relu", ["x"], ["y"], domain="no.such")),
        UnsupportedOpError,
        "'no.such', of which the model names no version",
    ),
    "an unknown operator": (lambda: model(N("Nope", ["x"], ["y"])), UnsupportedOpError, "Nope '' has no lowering"),
    "an unknown type": (
        lambda: model(N("Relu", ["x"], ["y"]), inputs=[port("x", [2], 77)]),
        ModelError,
        "number 77, which ONNX does not have",
    ),
    "an attribute of another type": (
        lambda: model(N("Softmax", ["x"], ["y"], axis="two")),
        ModelError,
        "Softmax is no such node as ONNX has",
    ),
    "no inputs": (lambda: model(N("Relu", [], ["y"])), ModelError, "does not have what it needs"),
    "blocks of nothing": (
        lambda: model(N("DepthToSpace", ["x"], ["y"], blocksize=0), inputs=[port("x", [1, 4, 2, 2])]),
        ModelError,
        "DepthToSpace is no such node",
    ),
    "a body without results": (
        lambda: model(N("Loop", ["m", "", "x"], ["y"], body=onnx.GraphProto(name="b")), held=[ints("m", 5)]),
        ModelError,
        "Loop is no such node",
    ),
    "a condition that is its own source": (
        lambda: model(
            N(
                "Loop",
                ["m", "", "x"],
                ["y"],
                body=trip(N("Identity", ["e"], ["d"]), N("Identity", ["d"], ["e"]), N("Relu", ["v"], ["u"]), going="d"),
            ),
            held=[ints("m", 5)],
        ),
        ModelError,
        "reads 'e'",
    ),
    "extents below nothing": (
        lambda: model(N("Tile", ["x", "s"], ["y"]), held=[ints("s", -1, 1)]),
        ModelError,
        "would have the shape [-2, 3]",
    ),
    "a tensor of 200 dimensions": (
        lambda: model(N("Relu", ["x"], ["y"]), inputs=[port("x", [1] * 200)]),
        ModelError,
        "200 dimensions",
    ),
    "sparse elements outside": (lambda: sparse([2, 3], 0, 6), ModelError, "elements outside of its shape"),
}

ENORMOUS: dict[str, Callable[[], onnx.ModelProto]] = {
    "an input": lambda: model(N("Relu", ["x"], ["y"]), inputs=[port("x", [1 << 20, 1 << 20])]),
    "a sum of two": lambda: model(
        N("Add", ["x", "z"], ["y"]), inputs=[port("x", [1 << 20, 1]), port("z", [1, 1 << 20])]
    ),
    "an expanded tensor": lambda: model(N("Expand", ["x", "s"], ["y"]), held=[ints("s", 1 << 38, 2, 3)]),
    "a shape of constants": lambda: model(N("ConstantOfShape", ["s"], ["y"]), inputs=[], held=[ints("s", 1 << 40)]),
    "a range": lambda: model(
        N("Range", ["a", "b", "c"], ["y"]), inputs=[], held=[ints("a", 0), ints("b", 1 << 40), ints("c", 1)]
    ),
    "reflected edges": lambda: model(N("Pad", ["x", "p"], ["y"], mode="reflect"), held=[ints("p", 1 << 40, 0, 0, 0)]),
    "classes": lambda: model(
        N("OneHot", ["x", "d", "v"], ["y"]),
        inputs=[port("x", [4], TensorProto.INT64)],
        held=[ints("d", 1 << 40), ints("v", 0, 1)],
    ),
    "another size": lambda: model(
        N("Resize", ["x", "", "", "s"], ["y"]), inputs=[port("x", [1, 1, 2, 3])], held=[ints("s", 1, 1, 2, 1 << 40)]
    ),
    "ones on a diagonal": lambda: model(N("EyeLike", ["x"], ["y"]), inputs=[port("x", [1 << 15, 1 << 15])]),
    "random numbers": lambda: model(N("RandomNormal", [], ["y"], shape=[1 << 20, 1 << 20]), inputs=[]),
    "a sparse tensor": lambda: sparse([1 << 40], 0),
    "a tensor that doubles": lambda: model(
        *(N("Concat", [f"c{n}", f"c{n}"], [f"c{n + 1}"], axis=0) for n in range(45)),
        N("Identity", ["c45"], ["y"]),
        inputs=[],
        held=[ints("c0", 1, 2)],
    ),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_model__with_what_cannot_be__is_refused_in_words(what: str) -> None:
    made, kind, words = IMPOSSIBLE[what]
    with pytest.raises(kind) as raised:
        abele_onnx.load(made().SerializeToString())
    assert words in raised.value.message


@pytest.mark.parametrize("what", ENORMOUS)
def test_model__with_more_elements_than_there_are_positions__is_refused_before_memory_is_taken(what: str) -> None:
    proto = ENORMOUS[what]()
    tracemalloc.start()
    try:
        with pytest.raises(ModelShapeError, match="elements, a tensor may have"):
            abele_onnx.load(proto)
        assert tracemalloc.get_traced_memory()[1] < 2**30
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    "made", [lambda: nested(30), lambda: model(N("f29", ["x"], ["y"], domain="own"), functions=chain(30, 2))]
)
def test_model__that_is_read_a_billion_times__is_given_up(made: Callable[[], onnx.ModelProto]) -> None:
    with pytest.raises(ModelError, match="nodes where functions and graphs inside are read in place"):
        abele_onnx.load(made())


def test_loop__of_2_to_the_40_trips__is_refused() -> None:
    body = trip(N("Add", ["v", "v"], ["u"]))
    with pytest.raises(ModelError, match="more than 2³¹ trips"):
        abele_onnx.load(model(N("Loop", ["m", "", "x"], ["y"], body=body), held=[ints("m", 1 << 40)]))


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("contents", [b"", b"hello", b"\x00" * 100, b"\x0a\xff\xff\xff\xff\x0f", os.urandom(999)])
def test_bytes__that_are_no_model__are_refused(contents: bytes) -> None:
    with pytest.raises(ModelFileError, match="holds no ONNX model"):
        abele_onnx.load(contents)


def test_bytes__of_graphs_a_thousand_deep__are_refused() -> None:
    def field(number: int, contents: bytes) -> bytes:
        size, length = b"", len(contents)
        while length >= 128:
            size, length = size + bytes([length % 128 | 128]), length // 128
        return bytes([number << 3 | 2]) + size + bytes([length]) + contents

    graph = b""
    for _ in range(1000):
        graph = field(1, field(5, field(6, graph)))
    with pytest.raises(ModelFileError, match="holds no ONNX model"):
        abele_onnx.load(field(7, graph))


def test_path__of_no_file__is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="cannot be read"):
        abele_onnx.load(tmp_path / "none.onnx")


def outside(location: str, **places: int) -> onnx.ModelProto:
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **places}.items():
        weights.external_data.add(key=key, value=str(value))
    return model(N("Add", ["x", "w"], ["y"]), held=[weights])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder with 24 bytes of data, links to the folder above, and a secret there."""
    inside = tmp_path / "model"
    inside.mkdir()
    (tmp_path / "secret").write_bytes(np.full(6, 7, "<f4").tobytes())
    (inside / "data").write_bytes(np.arange(6, dtype="<f4").tobytes())
    (inside / "link").symlink_to("../secret")
    (inside / "above").symlink_to("..")
    (inside / "fine").symlink_to("data")
    return inside


@pytest.mark.parametrize(
    "location",
    [
        "../secret",
        "{above}/secret",
        "above/secret",
        "link",
        "sub/../../secret",
        "",
        ".",
        "missing",
        "data\x00",
        "a" * 300,
    ],
)
def test_data__outside_of_the_folder__is_not_read(folder: Path, location: str) -> None:
    made = outside(location.format(above=folder.parent))
    (folder / "m.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(ModelFileError, match="'w'"):
        abele_onnx.load(folder / "m.onnx")


@pytest.mark.parametrize("location", ["data", "fine", "./data"])
def test_data__inside_of_the_folder__is_read(folder: Path, location: str) -> None:
    (folder / "m.onnx").write_bytes(outside(location).SerializeToString())
    held = abele_onnx.load(folder / "m.onnx").weights["w"]
    assert np.array_equal(held, np.arange(6).reshape(2, 3))


@pytest.mark.parametrize(
    "places",
    [{"offset": 1}, {"length": 20}, {"offset": -4}, {"length": -1}, {"offset": 1 << 62}, {"length": 1 << 62}],
    ids=str,
)
def test_data__beyond_the_end_of_its_file__is_refused(folder: Path, places: dict[str, int]) -> None:
    (folder / "m.onnx").write_bytes(outside("data", **places).SerializeToString())
    with pytest.raises(ModelFileError, match="bytes"):
        abele_onnx.load(folder / "m.onnx")


def test_data__of_a_model_that_came_as_bytes__is_not_looked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(ModelFileError, match="the model came without a folder"):
        abele_onnx.load(outside("data").SerializeToString())


@pytest.mark.parametrize("size", [0, 20, 23, 25, 48])
def test_data__of_another_length_than_its_shape__is_refused(size: int) -> None:
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 3], raw_data=bytes(size))
    with pytest.raises(ModelFileError, match=f"{size} bytes of data"):
        abele_onnx.load(model(N("Add", ["x", "w"], ["y"]), held=[weights]))


def test_data__that_is_not_there_at_all__is_refused() -> None:
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 40])
    with pytest.raises(ModelFileError, match="has 0 elements of data, its shape has 1,099,511,627,776"):
        abele_onnx.load(model(N("Add", ["x", "w"], ["y"]), held=[weights]))


def test_name__that_is_no_text__is_refused() -> None:
    contents = model(N("Relu", ["x"], ["y"], name="QQQQ"), N("Softmax", ["y"], ["z"], axis=1)).SerializeToString()
    broken = contents.replace(b"axis", b"\xff\xfe\xfd\xfc").replace(b"Relu", b"\xff\xfe\xfd\xfc")
    with pytest.raises(AbeleError):
        abele_onnx.load(broken)
