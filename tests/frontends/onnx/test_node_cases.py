"""ONNX's own cases of nodes: a sample of them interpreted and compiled; ``SWEEP=all`` takes each."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from abele import onnx as abele_onnx
from frontends.onnx.node_cases import cases, differs, excluded, interpreted, run
from support import sweeps

KNOWN = 2
"""Cases that differ, of over 1,600; ``python tests/frontends/onnx/node_cases.py`` lists them."""

UNARY = ("Abs", "Ceil", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Neg")
UNARY_MORE = ("Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Tanh")
PLAIN: dict[str, Callable[[], onnx.NodeProto]] = {
    **{name: (lambda name=name: helper.make_node(name, ["x"], ["y"])) for name in (*UNARY, *UNARY_MORE)},
    "Softmax": lambda: helper.make_node("Softmax", ["x"], ["y"], axis=1),
    "LogSoftmax": lambda: helper.make_node("LogSoftmax", ["x"], ["y"], axis=-1),
    "ReduceL2": lambda: helper.make_node("ReduceL2", ["x"], ["y"], axes=[1], keepdims=0),
    "ReduceMax": lambda: helper.make_node("ReduceMax", ["x"], ["y"], axes=[0, 2]),
    "ArgMax": lambda: helper.make_node("ArgMax", ["x"], ["y"], axis=2),
    "Transpose": lambda: helper.make_node("Transpose", ["x"], ["y"], perm=[2, 0, 1]),
    "GlobalAveragePool": lambda: helper.make_node("GlobalAveragePool", ["x"], ["y"]),
    "MaxPool": lambda: helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2], strides=[2]),
    "Flatten": lambda: helper.make_node("Flatten", ["x"], ["y"], axis=2),
    "Einsum": lambda: helper.make_node("Einsum", ["x", "x"], ["y"], equation="abc,adc->abd"),
    "MatMul": lambda: helper.make_node("MatMul", ["x", "x"], ["y"]),
}


@pytest.mark.parametrize("name", PLAIN)
def test_node__of_one_input__is_the_reference(name: str) -> None:
    shape = (2, 4, 4)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    graph = helper.make_graph([PLAIN[name]()], "node", [x], [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    array = np.random.default_rng(1).uniform(0.1, 3, shape).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (wanted,) = ReferenceEvaluator(model).run(None, {"x": array})
    (made,) = interpreted(abele_onnx.load(model), {"x": array}).values()
    assert made.shape == np.shape(wanted)
    np.testing.assert_allclose(made, wanted, rtol=2e-5, atol=2e-6)


def _wrong(names: list[str], *, native: bool) -> dict[str, str]:
    wrong = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            try:
                why = differs(cases()[name], run(cases()[name], native=native))
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
            if why is not None:
                wrong[name] = why
    return wrong


@pytest.mark.slow
def test_cases__of_onnx_interpreted__give_its_results() -> None:
    names = [name for name in cases() if not excluded(name)]
    assert len(names) > 1500
    wrong = _wrong(sweeps.sampled(names, 500), native=False)
    assert len(wrong) <= KNOWN, wrong


@pytest.mark.slow
def test_cases__of_onnx_compiled__give_its_results() -> None:
    names = [name for name in cases() if not excluded(name)]
    wrong = _wrong(sweeps.sampled(names, 60), native=True)
    assert len(wrong) <= KNOWN, wrong
