"""Reading and writing tensors from the host."""

from __future__ import annotations

import numpy as np
import pytest

from abele import Engine, Graph
from abele.errors import ConstantWriteError, EngineError, TensorError, TypeMismatchError
from abele.graph import Sequence, concat


@pytest.fixture
def graph() -> Graph:
    graph = Graph("bow-2000")
    graph.variable("f32", (2, 3), "weights").map(0)
    graph.variable("i8", (4,), "bytes").map(0)
    graph.variable("bf16", (2,), "brain").map(0)
    graph.constant("f32", (2,), [1, 2], "fixed")
    return graph


def _engine(graph: Graph) -> Engine:
    return Engine(graph, Sequence(), mode="tiles", threads=1)


def test_engine__write_then_read__gives_the_same_values(graph):
    engine = _engine(graph)
    engine["weights"] = [[1, 2, 3], [4, 5, 6.5]]
    np.testing.assert_array_equal(engine["weights"], np.array([[1, 2, 3], [4, 5, 6.5]], np.float32))
    assert engine.readTensor("weights").dtype == np.float32


def test_engine__read__gives_a_copy(graph):
    engine = _engine(graph)
    engine["weights"] = 1.0
    engine["weights"][...] = 2
    assert (engine["weights"] == 1).all()


def test_engine__view_over_two_variables__is_read_and_written_through(graph):
    engine = _engine(graph)
    other = graph.variable("f32", (2,), "other").map(0)
    engine = _engine(graph)
    weights = graph.whole(graph.find("weights")[0])
    view = concat([other, weights[:, ::-1].flatten()])
    engine[view] = np.arange(8)
    np.testing.assert_array_equal(engine["other"], [0, 1])
    np.testing.assert_array_equal(engine["weights"], [[4, 3, 2], [7, 6, 5]])
    np.testing.assert_array_equal(engine[view], np.arange(8))


def test_engine__bf16__is_read_as_f32(graph):
    engine = _engine(graph)
    engine["brain"] = [1.5, -2.0]
    assert engine["brain"].dtype == np.float32
    np.testing.assert_array_equal(engine["brain"], [1.5, -2.0])


def test_engine__initial_values_and_constants__are_there_before_the_first_run(graph):
    np.testing.assert_array_equal(_engine(graph)["fixed"], [1, 2])


def test_engine__unknown_name__names_the_nearest(graph):
    with pytest.raises(EngineError, match=r"no variable is called 'weight'\n.*did you mean 'weights'"):
        _engine(graph)["weight"]


def test_engine__two_variables_of_one_name__are_not_guessed(graph):
    graph.variable("f32", (2,), "weights").map(0)
    with pytest.raises(EngineError, match="2 variables are called 'weights'"):
        _engine(graph)["weights"]


def test_engine__tensor_of_another_graph__is_refused(graph):
    with pytest.raises(EngineError, match="another graph"):
        _engine(graph)[Graph("bow-2000").variable("f32", 2, "x")]


@pytest.mark.parametrize(
    ("name", "values", "error", "text"),
    [
        ("weights", np.zeros((3, 2)), TensorError, r"has shape \[2, 3\], it was given \[3, 2\]"),
        ("bytes", [0.5] * 4, TypeMismatchError, "holds i8, it was given float64"),
        ("bytes", [0, 1, 2, 200], TypeMismatchError, "from -128 to 127; it was given 200"),
        ("fixed", [3, 4], ConstantWriteError, "which is constant"),
    ],
)
def test_engine__write_of_values_that_do_not_fit__is_refused(graph, name, values, error, text):
    with pytest.raises(error, match=text):
        _engine(graph)[name] = values


def test_engine__write_to_a_broadcast_view__is_refused(graph):
    weights = graph.whole(graph.find("weights")[0])
    with pytest.raises(ConstantWriteError, match="more than once"):
        _engine(graph)[weights.broadcast(2, 0)] = np.zeros((4, 3))
