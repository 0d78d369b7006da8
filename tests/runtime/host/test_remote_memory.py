"""Remote buffers: rows out and in, at fixed rows and by row numbers that the program computes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import RemoteBufferError, TensorError, TypeMismatchError
from abele.graph import Copy, Graph, Repeat, Sequence, concat
from abele.runtime import Engine

WAYS = [{"mode": mode, "threads": threads} for mode in ("native", "tiles") for threads in (1, 2)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("dtype", "width"), [("f32", 5), ("f16", 20_000), ("i8", 3)])
def test_remote_copy__of_rows_by_number__gathers_and_scatters(way, dtype, width):
    rng = np.random.default_rng(1)
    graph = Graph("bow-2000")
    buffer = graph.remote_buffer("buffer", dtype, width, 7)
    rows = graph.variable("i32", 3, "rows", initial=[4, 0, 4]).map(0)
    # A view of columns lies scattered in memory; a copy goes in its flattened order all the same.
    x = graph.variable(dtype, (width, 3), "x").map_linear()
    gather, scatter = Copy(buffer, x.T, offset=rows), Copy(x.T, buffer, offset=rows)
    contents = rng.integers(0, 100, (7, width)).astype(x.dtype.np)
    with Engine(graph, [gather, scatter], **way) as engine:
        engine.write_remote("buffer", None, contents)
        engine.run(0)
        np.testing.assert_array_equal(engine["x"].T, contents[[4, 0, 4]])
        values = rng.integers(0, 100, (3, width)).astype(x.dtype.np)
        engine["x"] = values.T
        engine["rows"] = [2, 6, 2]
        engine.run(1)
        contents[2], contents[6] = values[2], values[1]
        np.testing.assert_array_equal(engine.read_remote("buffer"), contents)
        np.testing.assert_array_equal(engine.read_remote(buffer, 6), contents[6])


@given(rows=st.lists(st.integers(0, 5), min_size=1, max_size=8), threads=st.integers(1, 2))
def test_remote_copy__to_rows_that_repeat__leaves_the_last(rows, threads):
    graph = Graph("bow-2000")
    buffer = graph.remote_buffer("buffer", "i32", 3, 6)
    offset = graph.variable("u32", len(rows), "rows", initial=rows).map(0)
    values = np.arange(3 * len(rows), dtype=np.int32).reshape(-1, 3)
    x = graph.variable("i32", (len(rows), 3), "x", initial=values).map(0)
    expected = np.zeros((6, 3), np.int32)
    for row, value in zip(rows, values, strict=True):
        expected[row] = value
    with Engine(graph, Copy(x, buffer, offset=offset), threads=threads) as engine:
        engine.run()
        np.testing.assert_array_equal(engine.read_remote("buffer"), expected)


def test_remote_copy__onto_its_own_row_numbers__reads_them_first():
    graph = Graph("bow-2000")
    buffer = graph.remote_buffer("buffer", "u32", 2, 4)
    rows = graph.variable("u32", 4, "rows", initial=[3, 1, 9, 9]).map(0)
    with Engine(graph, Copy(buffer, rows, offset=rows[:2])) as engine:
        engine.write_remote("buffer", None, np.arange(8).reshape(4, 2))
        engine.run()
        assert engine["rows"].tolist() == [6, 7, 2, 3]


@pytest.mark.parametrize("way", WAYS)
def test_remote_copy__with_rows_that_the_program_turns__reads_them_at_that_moment(way):
    graph = Graph("bow-2000")
    buffer = graph.remote_buffer("buffer", "i32", 1, 4)
    rows = graph.variable("u32", 4, "rows", initial=[0, 1, 2, 3]).map(0)
    x = graph.variable("i32", 4, "x", initial=[10, 11, 12, 13]).map(0)
    body = Sequence(
        Copy(concat([rows[1:], rows[:1]]), rows),
        Copy(x[:1], buffer, offset=rows[0]),
        Copy(concat([x[1:], x[:1]]), x),
    )
    with Engine(graph, Repeat(3, body), **way) as engine:
        engine.run()
        assert engine.read_remote("buffer").reshape(-1).tolist() == [0, 10, 11, 12]


@pytest.mark.parametrize("way", [*WAYS, {"debug": True}])
@pytest.mark.parametrize(("dtype", "row"), [("u32", 4), ("i32", -1), ("i32", 4)])
def test_remote_copy__outside_the_buffer__ends_the_run_before_anything_moves(way, dtype, row):
    graph = Graph("bow-2000")
    buffer = graph.remote_buffer("buffer", "i32", 2, 4)
    rows = graph.variable(dtype, 2, "rows", initial=[1, row]).map(0)
    x = graph.variable("i32", (2, 2), "x", initial=1).map(0)
    for copy in (Copy(x, buffer, offset=rows), Copy(buffer, x, offset=rows)):
        with Engine(graph, copy, **way) as engine:
            with pytest.raises(RemoteBufferError, match=rf"row {row} of remote buffer 'buffer', which has 4 rows") as e:
                engine.run()
            assert "test_remote_memory.py" in e.value.at
            assert "element 1 of the offset" in e.value.because
            assert engine["x"].tolist() == [[1, 1], [1, 1]]
            assert not engine.read_remote("buffer").any()
            engine["rows"] = [1, 2]
            engine.run()


def test_remote_buffer__of_replicas__is_each_ones_own():
    graph = Graph("bow-2000", replicas=2)
    buffer = graph.remote_buffer("buffer", "i32", 2, 3)
    rows = graph.variable("u32", 1, "rows").map(0)
    x = graph.variable("i32", 2, "x").map(0)
    with Engine(graph, Copy(x, buffer, offset=rows)) as engine:
        engine["rows"] = [[0], [2]]
        engine["x"] = [[1, 2], [3, 4]]
        engine.run()
        assert engine.read_remote("buffer", replica=0).tolist() == [[1, 2], [0, 0], [0, 0]]
        assert engine.read_remote("buffer", replica=1).tolist() == [[0, 0], [0, 0], [3, 4]]
        engine["rows"] = [[0], [3]]
        with pytest.raises(RemoteBufferError) as caught:
            engine.run()
        assert "in replica 1" in caught.value.because


def test_remote_buffer__stays_when_the_program_is_loaded_again():
    graph = Graph("bow-2000")
    graph.remote_buffer("buffer", "f32", 2)
    with Engine(graph, Sequence()) as engine:
        engine.write_remote("buffer", 0, [1.5, 2.5])
        engine.load()
        assert engine.read_remote("buffer", 0).tolist() == [1.5, 2.5]


@pytest.mark.parametrize(
    ("use", "error", "text"),
    [
        (lambda e: e.read_remote("bufer"), RemoteBufferError, "no remote buffer 'bufer'\n.*did you mean 'buffer'"),
        (lambda e: e.read_remote("buffer", 3), RemoteBufferError, r"row 3 of remote buffer 'buffer', which has 3 rows"),
        (lambda e: e.write_remote("buffer", -1, 0), RemoteBufferError, "row -1 of remote buffer"),
        (lambda e: e.read_remote("buffer", 0, 1), RemoteBufferError, "of replica 1: there are 1 replicas"),
        (lambda e: e.write_remote("buffer", 0, [1, 2, 3]), TensorError, "have 2 elements, 3 were given"),
        (lambda e: e.write_remote("buffer", 0, [1.5, 2]), TypeMismatchError, "holds i32, it was given float64"),
    ],
)
def test_remote_buffer__used_wrongly_by_the_host__is_refused(use, error, text):
    graph = Graph("bow-2000")
    graph.remote_buffer("buffer", "i32", 2, 3)
    with Engine(graph, Sequence()) as engine, pytest.raises(error, match=text):
        use(engine)
