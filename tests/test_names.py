"""Names of classes, and arguments by name: what a reader of one room may assume about all of them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import abele

_ROOT = Path(abele.__file__).parent
_MOST_POSITIONAL = 6

_FRONT_ENDS = ("poplar/", "pva/", "pvti.py", "frontends/popart/", "frontends/popxl/", "frontends/popxl_addons/")
"""Rooms whose classes bear the names of another product, over a class of ours with the same name."""

_SAME_NAME = {
    "Compiled": (
        {"frontends/jax/jit.py", "session/compiled.py"},
        "JAX's name of a lowered function's program",
    ),
    "Loss": ({"frontends/onnx/training.py", "launch/watch.py"}, "what a model is trained for, and a rank that is lost"),
    "Model": ({"fitting/space.py", "frontends/onnx/model.py"}, "ONNX's name of what a file holds, and a model to fit"),
    "Lowered": ({"frontends/jax/jit.py", "compiler/lower.py"}, "JAX's name of a function that was traced"),
    "Adam": (
        {"frontends/popart/optimisers.py", "frontends/poptorch/training/optim.py", "network/optimisers/moments.py"},
        "PyTorch's and PopART's name, over our optimiser",
    ),
    "AssumeEqualAcrossReplicas": (
        {"frontends/keras/addons/keras/layers.py", "graph/control.py"},
        "the name of the IPU package's layer, and Poplar's of a program",
    ),
    "Block": (
        {"frontends/poptorch/program/blocks.py", "graph/control.py", "pva/execution.py"},
        "PopTorch's part of a model, and libpva's span of a run; ours is Poplar's",
    ),
    "Cast": ({"poplibs/popops/expr.py", "expr/nodes.py"}, "PopLibs' name, over a node of the expression language"),
    "Channel": ({"frontends/poptorch/program/profiling.py", "trace/channel.py"}, "PopTorch's channel, over ours"),
    "CommGroupType": (
        {"frontends/popart/devices.py", "frontends/poptorch/enums.py", "poplibs/gcl/groups.py"},
        "PopART's, PopTorch's and GCL's own enumeration",
    ),
    "Const": ({"poplibs/popops/expr.py", "expr/nodes.py"}, "PopLibs' name, over a node of the expression language"),
    "Dropout": (
        {"frontends/keras/addons/keras/layers.py", "network/ops/dropout.py"},
        "Keras' name of a layer, over our op",
    ),
    "Expr": ({"poplibs/popops/expr.py", "expr/nodes.py"}, "PopLibs' name, over a node of the expression language"),
    "Layout": (
        {"compiler/layout.py", "layout/layout.py"},
        "the field's word for shape and strides, over the compiler's places of elements in the memory of tiles",
    ),
    "Liveness": (
        {"frontends/poptorch/enums.py", "compiler/liveness.py"},
        "PopTorch's enumeration of where tensors stay",
    ),
    "NameScope": ({"frontends/poptorch/functions/annotations.py", "codelet/scope.py"}, "PopTorch's context of names"),
    "Operation": (
        {"poplibs/popops/expressions/names.py", "expr/operation.py", "pva/programs.py"},
        "PopLibs' enumeration of reductions, and libpva's row of a report; ours is what users define operations with",
    ),
    "OutputMode": ({"frontends/poptorch/enums.py", "network/schedule.py"}, "PopTorch's enumeration of our modes"),
    "PipelineSchedule": (
        {"frontends/keras/ipu/enums.py", "network/schedule.py"},
        "TensorFlow's enumeration of our schedules",
    ),
    "Plan": ({"poplibs/popnn/ctc/plan.py", "poplibs/popnn/ctc_infer/plan.py"}, "PopLibs' name of both plans of CTC"),
    "Stage": (
        {"frontends/poptorch/options/strategies.py", "network/ir/value.py"},
        "PopTorch's stage of a pipeline",
    ),
    "Tensor": (
        {"frontends/keras/tensorflow/tensors.py", "graph/tensor.py", "poplar/tensor.py", "frontends/popxl/tensors.py"},
        "TensorFlow's class, of which JAX's arrays are instances",
    ),
    "TensorSpec": (
        {
            "frontends/keras/tensorflow/shapes.py",
            "frontends/poptorch/values/signature.py",
            "frontends/popxl/tensors.py",
        },
        "TensorFlow's shape and type of a tensor; the front end of PyTorch has one of its own",
    ),
    "Variable": (
        {
            "frontends/keras/tensorflow/variables.py",
            "graph/variable.py",
            "pva/variables.py",
            "frontends/popxl/tensors.py",
        },
        "TensorFlow's variable, which is one of Keras",
    ),
}
"""Names with two classes: where they are, and why the name stays."""

_ANY_NUMBER = {
    "CFUNCTYPE": "a result and any number of arguments",
    "_call": "a function and any number of arguments",
    "aten": "any number of operators",
    "type_of": "any number of element types",
    "zip": "any number of iterables",
}
"""Callables of like things in any number, which have no names."""


_Nodes = dict[str, list[ast.ClassDef | ast.Call]]
"""Classes, without what is in them, and calls of more arguments than :data:`_MOST_POSITIONAL`, of each file."""


def _nodes(sources: dict[str, str]) -> _Nodes:
    return {path: list(_found(ast.parse(source))) for path, source in sources.items()}


def _found(tree: ast.AST) -> Iterator[ast.ClassDef | ast.Call]:
    """Those of a file. Trees of all files are large: ``ast.walk`` takes twice as long, and none of them is kept."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        for value in vars(node).values():
            if isinstance(value, ast.AST):
                todo.append(value)
            elif isinstance(value, list):
                todo += [each for each in value if isinstance(each, ast.AST)]
        if isinstance(node, ast.ClassDef):
            node.body = []
            yield node
        elif isinstance(node, ast.Call) and len(node.args) > _MOST_POSITIONAL:
            yield node


@cache
def _everywhere() -> _Nodes:
    files = sorted(_ROOT.rglob("*.py"))
    return _nodes({f.relative_to(_ROOT).as_posix(): f.read_text(encoding="utf-8") for f in files})


def _places(nodes: _Nodes) -> dict[str, list[str]]:
    places: dict[str, list[str]] = defaultdict(list)
    for path, found in nodes.items():
        for node in found:
            if isinstance(node, ast.ClassDef) and not _is_codelet(node):
                places[node.name].append(path)
    return places


def _is_codelet(node: ast.ClassDef) -> bool:
    """A codelet, inside the function that makes it: called as the libraries call the vertex, in each of its forms."""
    return any(ast.unparse(decorator).split("(")[0] == "codelet" for decorator in node.decorator_list)


def _ambiguous(nodes: _Nodes) -> dict[str, list[str]]:
    """Names of two or more classes, without those of front ends and those above."""
    found = {}
    for name, places in _places(nodes).items():
        ours = [path for path in places if not path.startswith(_FRONT_ENDS)]
        allowed = _SAME_NAME.get(name, (set(), ""))[0]
        if len(ours) > 1 and not set(ours) <= allowed:
            found[name] = places
    return found


def _long_calls(nodes: _Nodes) -> Iterator[str]:
    """Calls with more positional arguments than a reader can tell apart."""
    for path, found in nodes.items():
        for node in found:
            if not isinstance(node, ast.Call):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
            if called not in _ANY_NUMBER:
                yield f"{path}:{node.lineno}: {called} with {len(node.args)}"


def test_class_names__everywhere__stand_for_one_thing() -> None:
    assert _ambiguous(_everywhere()) == {}


def test_class_names__two_of_one_name__are_found() -> None:
    ours = {"graph/a.py": "class Block: ...", "kernels/b.py": "def f():\n    class Block: ..."}
    assert _ambiguous(_nodes(ours)) == {"Block": ["graph/a.py", "kernels/b.py"]}
    vertices = {"graph/a.py": "@codelet\nclass Reduce: ...", "b.py": "@codelet('Reduce')\nclass Reduce: ..."}
    assert _ambiguous(_nodes(vertices)) == {}
    front = {"graph/a.py": "class Tensor: ...", "poplar/a.py": "class Tensor: ..."}
    assert _ambiguous(_nodes(front)) == {}


def test_class_names__exceptions__are_needed_still() -> None:
    places = _places(_everywhere())
    assert {n: where for n, (where, _) in _SAME_NAME.items()} == {n: set(places[n]) for n in _SAME_NAME}


def test_calls__everywhere__name_their_arguments_beyond_six() -> None:
    assert list(_long_calls(_everywhere())) == []


def test_calls__seven_arguments_without_names__are_found() -> None:
    source = "x = Record(a, b, c,\n d, e, f, g)\ny = Record(a, b, c, d, e, f, g=g)\nzip(1, 2, 3, 4, 5, 6, 7)"
    assert list(_long_calls(_nodes({"a.py": source}))) == ["a.py:1: Record with 7"]
