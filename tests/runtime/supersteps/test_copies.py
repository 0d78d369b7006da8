"""Copies against NumPy: any view onto any view of as many elements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.graph import Copy, Graph, Sequence, Tensor, concat
from abele.runtime import Engine
from abele.runtime.native.fusion import split_runs

OPERATIONS = ("transpose", "reverse", "halves", "strided", "flat")


def _viewed(tensor: Tensor, array: np.ndarray, operations: list[str]) -> tuple[Tensor, np.ndarray]:
    for operation in operations:
        if operation == "transpose":
            tensor, array = tensor.T, array.T
        elif operation == "reverse":
            tensor, array = tensor.reverse(0), array[::-1]
        elif operation == "halves" and tensor.shape[0] % 2 == 0:
            half = tensor.shape[0] // 2
            tensor = concat([tensor[half:], tensor[:half]])
            array = np.concatenate([array[half:], array[:half]])
        elif operation == "strided":
            tensor = concat([tensor[::2], tensor[1::2]])
            array = np.concatenate([array[::2], array[1::2]])
        elif operation == "flat":
            tensor, array = tensor.flatten(), array.reshape(-1)
    return tensor, array


views = st.lists(st.sampled_from(OPERATIONS), max_size=4)


@given(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3)),
    dtype=st.sampled_from(["f32", "f16", "i8", "i64"]),
    source_view=views,
    destination_view=views,
    threads=st.integers(1, 3),
)
def test_copy__any_views__moves_elements_in_flattened_order(shape, dtype, source_view, destination_view, threads):
    graph = Graph("bow-2000")
    source = graph.variable(dtype, shape, "source").map(0)
    destination = graph.variable(dtype, shape, "destination").map(1)
    values = np.arange(np.prod(shape)).reshape(shape).astype(source.dtype.np)
    positions = np.arange(np.prod(shape)).reshape(shape)
    read, read_values = _viewed(source, values, source_view)
    write, write_positions = _viewed(destination, positions, destination_view)
    expected = np.empty(values.size, values.dtype)
    expected[write_positions.reshape(-1)] = read_values.reshape(-1)
    with Engine(graph, Copy(read.flatten(), write.flatten()), mode="tiles", threads=threads) as engine:
        engine["source"] = values
        engine.run()
        np.testing.assert_array_equal(engine["destination"].reshape(-1), expected)


@given(shape=st.tuples(st.integers(1, 7), st.integers(1, 7)), source_view=views)
def test_copy__onto_itself_permuted__reads_all_before_it_writes(shape, source_view):
    graph = Graph("bow-2000")
    x = graph.variable("f32", shape, "x").map(0)
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    read, expected = _viewed(x, values, source_view)
    with Engine(graph, Copy(read.flatten(), x.flatten()), mode="tiles", threads=2) as engine:
        engine["x"] = values
        engine.run()
        np.testing.assert_array_equal(engine["x"].reshape(-1), expected.reshape(-1))


def test_copy__broadcast_source__repeats_elements():
    graph = Graph("bow-2000")
    x = graph.variable("f32", (3,), "x", initial=[1, 2, 3]).map(0)
    y = graph.variable("f32", (2, 3, 4), "y").map(1)
    copy = Copy(x.expand_dims(0).expand_dims(2).broadcast_to((2, 3, 4)), y)
    with Engine(graph, copy, mode="tiles") as engine:
        engine.run()
        np.testing.assert_array_equal(engine["y"], np.broadcast_to([[[1], [2], [3]]], (2, 3, 4)))


def test_copy__of_a_megabyte__is_the_same_on_any_number_of_threads():
    values = np.random.default_rng(0).standard_normal(1 << 18).astype(np.float32)
    results = []
    for threads in (1, 2, 5):
        graph = Graph("bow-2000")
        x = graph.variable("f32", (1 << 18,), "x").map_linear()
        y = graph.variable("f32", (1 << 18,), "y").map_linear()
        with Engine(graph, Sequence(Copy(x, y), Copy(y.reverse(), x)), mode="tiles", threads=threads) as engine:
            engine["x"] = values
            engine.run()
            results.append((engine["x"], engine["y"]))
    for x_after, y_after in results:
        np.testing.assert_array_equal(x_after, values[::-1])
        np.testing.assert_array_equal(y_after, values)


@pytest.mark.parametrize("dtype", ["bf16", "bool", "u64", "f16"])
def test_copy__of_each_width__keeps_bits(dtype):
    graph = Graph("bow-2000")
    x = graph.variable(dtype, (2, 5), "x").map(0)
    y = graph.variable(dtype, (5, 2), "y").map(0)
    values = np.array([[0, 1, 1, 0, 1], [1, 0, 0, 1, 1]])
    with Engine(graph, Copy(x.T, y), mode="tiles") as engine:
        engine["x"] = values.astype(bool) if dtype == "bool" else values
        engine.run()
        np.testing.assert_array_equal(engine["y"].astype(int), values.T)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f8_143", "f8_152", "i8", "u16", "i32", "i64", "u64", "bool"])
@pytest.mark.parametrize("mode", ["native", "tiles"])
def test_copy__many_elements_rearranged__arrive_as_they_were(dtype, mode):
    graph = Graph("bow-2000")
    source = graph.variable(dtype, (257, 16, 24), "source").map(0)
    destination = graph.variable(dtype, (24, 257, 16), "destination").map(1)
    rng = np.random.default_rng(5)
    values = rng.integers(0, 256, (257, 16, 24 * source.dtype.np.itemsize), np.uint8).view(source.dtype.np)
    if dtype == "bool":
        values = rng.integers(0, 2, (257, 16, 24)).astype(bool)
    with Engine(
        graph, Sequence(Copy(source.transpose((2, 0, 1)), destination)), mode=mode, allow_out_of_memory=True
    ) as engine:
        engine[source] = values
        engine.run()
        held, moved = (np.asarray(engine[t]) for t in (source, destination))
    assert np.unique(held).size > 1
    expected = np.ascontiguousarray(held.transpose((2, 0, 1)))
    # A NaN of bf16 may come out as another one.
    assert moved.tobytes() == expected.tobytes() or (
        dtype == "bf16" and np.array_equal(moved, expected, equal_nan=True)
    )


def test_split_runs__copies__are_runs_where_many_elements_are_moved_one_by_one():
    graph = Graph("bow-2000")
    x, y = (graph.variable("f32", (512, 256), n).map(0) for n in ("x", "y"))
    turned = graph.variable("f32", (256, 512), "turned").map(0)
    alone = Copy(x.T, turned)
    few = Copy(x[:8].T, turned[:, :8])
    straight = Copy(x, y)
    assert list(split_runs([alone])) == [(alone,)]
    assert list(split_runs([few])) == [few]
    assert list(split_runs([straight])) == [straight]
