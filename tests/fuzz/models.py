"""ONNX models that the fuzzer changes, and changes of them: fields of the protobuf, its structure, and its bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from onnx import TensorProto, helper, numpy_helper, parser

from fuzz.recipes import FLOATS, INTEGERS, TEXTS, Recipe

PLACES = ("../secret", "/etc/passwd", "sub/../../secret", "link", ".", "", "data\x00", "a" * 300, "missing", "data")
OPERATORS = (
    *("Add", "MatMul", "Conv", "Reshape", "Expand", "Tile", "Pad", "Range", "ConstantOfShape", "Slice", "Gather", "If"),
    *("Loop", "Scan", "Resize", "OneHot", "TopK", "Softmax", "Concat", "Split", "Einsum", "LSTM", "MaxPool", "CumSum"),
    *("ScatterND", "Transpose", "Cast", "Identity", "NonZero", "Trilu", "Attention", "DepthToSpace", "Nope"),
)

TEXT_OF = {
    "mlp": """<ir_version: 8, opset_import: ["" : 17]> mlp (float[N, 4] x) => (float[N, 3] y)
        <float[4, 5] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20}, float[5] b = {1,2,3,4,5},
         float[5, 3] v = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}>
        { a = Gemm (x, w, b) c = Relu (a) d = MatMul (c, v) y = Softmax <axis = -1> (d) }""",
    "shapes": """<ir_version: 8, opset_import: ["" : 17]> shapes (float[2, 3, 4] x) => (float[2, 12] y, int64[] n)
        <int64[1] zero = {0}, int64[1] minus = {-1}, int64[3] twice = {1, 1, 2}>
        { s = Shape (x) b = Gather <axis = 0> (s, zero) to = Concat <axis = 0> (b, minus) r = Reshape (x, to)
          t = Tile (x, twice) n = Size (t) p = Slice (r, zero, b) e = Expand (r, s2) y = Add (e, p)
        }""".replace("e = Expand (r, s2)", "e = Identity (r)"),
    "picture": """<ir_version: 8, opset_import: ["" : 17]> picture (float[1, 2, 6, 6] x) => (float[1, 3, 4, 4] y)
        <float[3, 2, 3, 3] w, float[3] scale = {1, 2, 3}, float[3] shift = {0, 1, 0}, float[3] mean = {0, 0, 1},
         float[3] spread = {1, 1, 2}, int64[8] pads = {0, 0, 1, 1, 0, 0, 1, 1}>
        { q = Pad <mode = "reflect"> (x, pads) c = Conv <kernel_shape = [3, 3], strides = [1, 1]> (q, w)
          n = BatchNormalization <epsilon = 0.01> (c, scale, shift, mean, spread)
          m = MaxPool <kernel_shape = [3, 3], strides = [1, 1]> (n) y = Sigmoid (m) }""",
    "loop": """<ir_version: 8, opset_import: ["" : 17]> loop (float[3] x, bool k)
        => (float[3] y, float[4, 3] rows, float[3] z)
        <int64 most = {4}, bool yes = {1}>
        { y, rows = Loop (most, yes, x) <body = trip (int64 i, bool c, float[3] v) => (bool d, float[3] u, float[3] r)
            { d = Identity (c) u = Add (v, x) r = Mul (u, v) }>
          z = If (k) <then_branch = t () => (float[3] a) { a = Relu (x) }, else_branch = e () => (float[3] a2)
            { a2 = Neg (y) }> }""",
    "functions": """<ir_version: 8, opset_import: ["" : 17, "own" : 1]> functions (float[2, 3] x) => (float[2, 3] y)
        { a = own.scaled <by = 2.0> (x) y = own.twice (a) }
        <domain: "own", opset_import: ["" : 17]> scaled <by> (a) => (b)
        { k = Constant <value_float: float = @by> () b = Mul (a, k) }
        <domain: "own", opset_import: ["" : 17, "own" : 1]> twice (a) => (b)
        { t = own.scaled <by = 3.0> (a) b = own.scaled <by = 0.5> (t) }""",
}
"""Models in ONNX's own text."""


def lay_out(folder: Path) -> None:
    """Make a folder that models are opened in, with data, and links to what lies above."""
    beside = folder / "beside"
    beside.mkdir(parents=True, exist_ok=True)
    (folder / "secret").write_bytes(b"\x00" * 64)
    (beside / "data").write_bytes(np.arange(6, dtype="<f4").tobytes())
    for name, target in (("link", "../secret"), ("sub", "..")):
        if not (beside / name).is_symlink():
            (beside / name).symlink_to(target)


def save_models(folder: Path) -> dict[str, Path]:
    """The models as files."""
    made = {}
    for name, text in TEXT_OF.items():
        model = parser.parse_model(text)
        for held in model.graph.value_info:
            dims = [d.dim_value for d in held.type.tensor_type.shape.dim]
            array = np.linspace(-1, 1, int(np.prod(dims))).astype(np.float32).reshape(dims)
            model.graph.initializer.append(numpy_helper.from_array(array, held.name))
        made[f"{name}-model"] = model
    made["outside-model"] = outside()
    return {name: _saved(folder, name, model) for name, model in made.items()}


def _saved(folder: Path, name: str, model: onnx.ModelProto) -> Path:
    path = folder / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def outside() -> onnx.ModelProto:
    """A model whose weights are 24 bytes in the file ``data``, and one with most of its elements left out."""
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "data"), ("offset", "0"), ("length", "24")):
        weights.external_data.add(key=key, value=value)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "xy")
    nodes = [helper.make_node("Mul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "s"], ["y"])]
    graph = helper.make_graph(nodes, "outside", [x], [y], [weights])
    values = numpy_helper.from_array(np.array([1.0, 2.0], np.float32), "s")
    places = numpy_helper.from_array(np.array([0, 4]), "places")
    graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [2, 3]))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


# --- applying ---------------------------------------------------------------------------------------------------------


def changed_model(recipe: Recipe, content: bytes) -> bytes:
    """A model with a recipe's changes; those that do not fit it are left out."""
    model = onnx.ModelProto()
    model.ParseFromString(content)
    for kind, *parts in recipe.edits:
        if kind == "field":
            try:
                _edit(model, *parts)
            except Exception:
                continue
    result = model.SerializeToString()
    for kind, *parts in recipe.edits:
        if kind == "cut":
            result = result[: parts[0] % len(result)]
        elif kind == "flip" and result:
            at = parts[0] % len(result)
            result = result[:at] + bytes([result[at] ^ parts[1]]) + result[at + 1 :]
    return result


def _edit(model: Message, path: list[Any], how: str, value: Any = None) -> None:
    *around, last = path
    place: Any = model
    for key in around:
        place = place[key] if isinstance(key, int) else getattr(place, key)
    if how == "set":
        value = bytes.fromhex(value[4:]) if isinstance(value, str) and value.startswith("hex:") else value
        if isinstance(last, int):
            place[last] = value
        else:
            setattr(place, last, value)
    elif how == "delete":
        if isinstance(last, int):
            del place[last]
        else:
            place.ClearField(last)
    elif how == "repeat":
        for _ in range(value):
            place.append(place[last])
    elif how == "swap":
        held = type(place[last])()
        held.CopyFrom(place[last])
        place[last].CopyFrom(place[value])
        place[value].CopyFrom(held)
    elif how == "nest":
        own = type(place[last])()
        own.CopyFrom(place[last])
        for _ in range(value):
            wide = type(own)()
            wide.CopyFrom(own)
            attribute = wide.attribute.add(name="body", type=onnx.AttributeProto.GRAPH)
            attribute.g.node.append(place[last])
            place[last].CopyFrom(wide)


# --- drawing ----------------------------------------------------------------------------------------------------------


def drawn_model(rng: random.Random, bases: dict[str, bytes]) -> Recipe:
    """A recipe at random; one change mostly, sometimes up to four."""
    base = rng.choice(sorted(bases))
    model = onnx.ModelProto()
    model.ParseFromString(bases[base])
    fields = list(_fields(model, []))
    names = sorted({v for _, v in fields if isinstance(v, str)})
    count = rng.choice((1, 1, 1, 1, 2, 2, 3, 4))
    return Recipe(base, tuple(_drawn(rng, fields, names) for _ in range(count)))


def _fields(message: Message, path: list[Any]) -> Iterator[tuple[list[Any], Any]]:
    """Places of all that a message holds, and what is there: numbers, texts, bytes, and messages too."""
    for field, value in message.ListFields():
        here = [*path, field.name]
        several = list(value) if isinstance(value, (list, tuple)) or hasattr(value, "append") else None
        for place, each in [(here, value)] if several is None else [([*here, n], v) for n, v in enumerate(several)]:
            yield place, each
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                yield from _fields(each, place)


def _drawn(rng: random.Random, fields: list[tuple[list[Any], Any]], names: list[str]) -> tuple[Any, ...]:
    kind = rng.random()
    if kind < 0.04:
        return ("cut", rng.randrange(1 << 30))
    if kind < 0.16:
        return ("flip", rng.randrange(1 << 30), rng.randrange(1, 256))
    path, value = rng.choice(fields)
    if isinstance(value, Message) or kind < 0.22:
        if isinstance(path[-1], int) and kind < 0.6:
            if isinstance(value, Message) and rng.random() < 0.4:
                return ("field", path, "swap", rng.randrange(4))
            return ("field", path, "repeat", rng.choice((1, 1, 2, 40)))
        if isinstance(value, onnx.NodeProto) and rng.random() < 0.3:
            return ("field", path, "nest", rng.choice((1, 2, 40, 90)))
        return ("field", path, "delete")
    return ("field", path, "set", _value(rng, path, value, names))


def _value(rng: random.Random, path: list[Any], old: Any, names: list[str]) -> Any:
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        small = (old + 1, old - 1, -old, 2 * old, rng.randrange(32))
        return rng.choice((*small, *small, *small, *INTEGERS))
    if isinstance(old, float):
        return rng.choice((old + 1, -old, *FLOATS))
    if isinstance(old, bytes):
        changed = rng.choice((old[:-1], old + b"\x00", b"", old * 2, bytes(len(old)), b"\xff" * len(old)))
        return f"hex:{changed.hex()}"
    if "op_type" in path:
        return rng.choice(OPERATORS)
    if "external_data" in path:
        return rng.choice((*PLACES, *map(str, INTEGERS)))
    return rng.choice((*names, *names, *TEXTS))
