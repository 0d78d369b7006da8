"""ONNX's backend interface."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, parser

from abele.errors import SignatureError
from abele.onnx import backend

TEXT = '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x, float[N] z) => (float[N] y) { y = Mul (x, z) }'


def test_prepare__of_open_shapes__runs_arrays_of_each_shape() -> None:
    prepared = backend.prepare(parser.parse_model(TEXT))
    for size in (3, 5, 3):
        array = np.arange(size, dtype=np.float32)
        made = prepared.run([array, array])
        assert made.y.tolist() == (array * array).tolist()
        assert np.array_equal(made[0], prepared.run({"z": array, "x": array}).y)


def test_run_node__on_arrays__gives_its_results() -> None:
    node = helper.make_node("Split", ["x"], ["a", "b"], axis=1, num_outputs=2)
    first, second = backend.run_node(node, [np.arange(8, dtype=np.float32).reshape(2, 4)])
    assert first.tolist() == [[0, 1], [4, 5]]
    assert second.tolist() == [[2, 3], [6, 7]]


def test_prepare__of_a_shape_among_the_inputs__takes_its_elements_as_known() -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[6] x, int64[2] s) => (float[a, b] y) { y = Reshape (x, s) }'
    )
    prepared = backend.prepare(parser.parse_model(text))
    x = np.arange(6, dtype=np.float32)
    assert prepared.run([x, np.array([2, 3])]).y.shape == (2, 3)
    assert prepared.run([x, np.array([3, 2])]).y.shape == (3, 2)


def test_backend__of_a_model_without_a_lowering__is_not_compatible() -> None:
    assert backend.is_compatible(parser.parse_model(TEXT))
    assert not backend.is_compatible(parser.parse_model(TEXT.replace("Mul (x, z)", "NonZero (x)")))
    assert backend.supports_device("CPU")


def test_prepare__with_a_wrong_number_of_inputs__is_refused() -> None:
    with pytest.raises(SignatureError, match="was not given z"):
        backend.prepare(parser.parse_model(TEXT)).run([np.ones(3, np.float32)])
