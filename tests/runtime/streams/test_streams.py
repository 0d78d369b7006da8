"""Host streams: memory used round and round, iterables, callables, and what goes wrong."""

from __future__ import annotations

import numpy as np
import pytest

from abele.errors import EngineError, StreamConnectionError
from abele.graph import Copy, Graph, Repeat, Sequence
from abele.runtime import Engine


def _echo(rounds: int = 3, dtype: str = "f32") -> Engine:
    """An engine that copies four elements from stream ``in``, reversed, to stream ``out``."""
    graph = Graph("bow-2000")
    x = graph.variable(dtype, (2, 2), "x").map(0)
    source, sink = graph.host_stream_in("in", dtype, 4), graph.host_stream_out("out", dtype, 4)
    body = Sequence(Copy(source, x.flatten()), Copy(x.flatten().reverse(), sink))
    return Engine(graph, Repeat(rounds, body), mode="tiles", threads=2)


def _reversed_rows(values: np.ndarray) -> np.ndarray:
    return values.reshape(-1, 4)[:, ::-1]


def test_stream__array_of_two_copies_read_three_times__wraps_around():
    with _echo() as engine:
        source, sink = np.arange(8, dtype=np.float32), np.zeros(12, np.float32)
        engine.connect("in", source)
        engine.connect("out", sink)
        engine.run()
        np.testing.assert_array_equal(sink.reshape(-1, 4), _reversed_rows(np.r_[source, source[:4]]))


def test_stream__position__goes_on_in_the_next_run():
    with _echo(rounds=1) as engine:
        source, sink = np.arange(12, dtype=np.float32), np.zeros(12, np.float32)
        engine.connect("in", source)
        engine.connect("out", sink)
        for _ in range(2):
            engine.run()
        np.testing.assert_array_equal(sink.reshape(3, 4), [[3, 2, 1, 0], [7, 6, 5, 4], [0, 0, 0, 0]])
        engine.connect("in", source)
        engine.run()
        np.testing.assert_array_equal(sink[8:], [3, 2, 1, 0])


def test_stream__array_that_is_no_multiple_of_a_copy__wraps_inside_a_copy():
    with _echo() as engine:
        source, sink = np.arange(6, dtype=np.float32), np.zeros(10, np.float32)
        engine.connect("in", source)
        engine.connect("out", sink)
        engine.run()
        written = _reversed_rows(np.r_[source, source]).reshape(-1)
        np.testing.assert_array_equal(sink, np.r_[written[10:], written[2:10]])


def test_stream__connected_array__is_used_in_place():
    with _echo(rounds=1) as engine:
        source, sink = np.zeros(4, np.float32), np.zeros(4, np.float32)
        engine.connect("in", source)
        engine.connect("out", sink)
        source[:] = [1, 2, 3, 4]
        engine.run()
        np.testing.assert_array_equal(sink, [4, 3, 2, 1])


def test_stream__iterable_and_callables__are_asked_once_a_copy():
    received = []
    with _echo() as engine:
        engine.connect("in", (np.full((2, 2), i) for i in range(3)))
        engine.connect("out", received.append)
        engine.run()
        engine.connect("in", lambda: [9, 8, 7, 6])
        engine.run()
    assert [list(r) for r in received] == [[0] * 4, [1] * 4, [2] * 4, *[[6, 7, 8, 9]] * 3]


def test_stream__iterable_that_ends_early__raises_and_leaves_the_engine_usable():
    with _echo() as engine:
        engine.connect("in", [np.zeros(4)] * 2)
        engine.connect("out", np.zeros(4, np.float32))
        with pytest.raises(StreamConnectionError, match="ran out after 2 items"):
            engine.run()
        engine.connect("in", np.ones(4, np.float32))
        assert engine.run()
        np.testing.assert_array_equal(engine["x"], 1)


def test_stream__callback_that_raises__error_reaches_the_caller():
    def broken() -> None:
        raise ValueError("no data today")

    with _echo() as engine:
        engine.connect("in", broken)
        engine.connect("out", np.zeros(4, np.float32))
        with pytest.raises(ValueError, match="no data today"):
            engine.run()


def test_stream__nothing_connected__says_which_and_how():
    with _echo() as engine:
        engine.connect("out", np.zeros(4, np.float32))
        with pytest.raises(StreamConnectionError) as caught:
            engine.run()
    assert "'in'" in str(caught.value)
    assert "is not connected" in str(caught.value)
    assert "engine.connect('in', array)" in str(caught.value)
    assert "test_streams.py" in str(caught.value)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (np.zeros(4), "its elements are float64, not float32"),
        (np.zeros((4, 2), np.float32)[:, 0], "do not lie one after the other"),
        (np.zeros(3, np.float32), "it has 3 elements, one copy moves 4"),
        (7, "cannot be connected to int"),
    ],
)
def test_connect__data_that_does_not_fit__is_refused(data, text):
    with _echo() as engine, pytest.raises(StreamConnectionError, match=text):
        engine.connect("in", data)


def test_connect__read_only_array_for_output__is_refused():
    sink = np.zeros(4, np.float32)
    sink.flags.writeable = False
    with _echo() as engine, pytest.raises(StreamConnectionError, match="read-only"):
        engine.connect("out", sink)


def test_connect__iterable_for_output__is_refused():
    with _echo() as engine, pytest.raises(StreamConnectionError, match="an array or a callable"):
        engine.connect("out", [np.zeros(4)])


def test_connect__unknown_stream__names_the_nearest():
    with _echo() as engine, pytest.raises(EngineError, match="did you mean 'out'"):
        engine.connect("outt", np.zeros(4, np.float32))


@pytest.mark.parametrize(("values", "text"), [([1.0] * 3, "was given 3 elements"), ([1.5] * 4, "which are no i32")])
def test_stream__callback_that_gives_wrong_data__is_refused(values, text):
    with _echo(dtype="i32") as engine:
        engine.connect("in", lambda: values)
        engine.connect("out", np.zeros(4, np.int32))
        with pytest.raises(StreamConnectionError, match=text):
            engine.run()
