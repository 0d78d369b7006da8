"""Gathers and scatters against XLA's definitions, written out in NumPy, and against PyTorch."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from poplibs_kit import Array, Bench, exact_values, ran

from abele.errors import ApplicationRuntimeError, InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Graph, Sequence, Tensor
from abele.poplibs.popops import add, slicing
from support.examples import examples

RNG = np.random.default_rng(11)
values = partial(exact_values, RNG)


def vectors_of(indices: Array, vector_dim: int) -> tuple[Array, tuple[int, ...]]:
    """Index vectors [n, length], and the shape of the n."""
    whole = indices[..., None] if vector_dim == indices.ndim else indices
    moved = np.moveaxis(whole, vector_dim, -1).astype(np.int64)
    return moved.reshape(-1, moved.shape[-1]), moved.shape[:-1]


def xla_gather(
    operand: Array, indices: Array, vector_dim: int, offset_dims: Any, sizes: Any, collapsed: Any, index_map: Any
) -> Array:
    """XLA's Gather, element by element."""
    vectors, batch_shape = vectors_of(indices, vector_dim)
    window = [d for d in range(operand.ndim) if d not in collapsed]
    rank = len(batch_shape) + len(window)
    batch_dims = [d for d in range(rank) if d not in offset_dims]
    shape = [0] * rank
    for d, n in zip((*batch_dims, *offset_dims), (*batch_shape, *(sizes[d] for d in window)), strict=True):
        shape[d] = n
    out = np.empty(shape, operand.dtype)
    for at in itertools.product(*map(range, shape)):
        number = int(np.ravel_multi_index([at[d] for d in batch_dims], batch_shape)) if batch_shape else 0
        start = [0] * operand.ndim
        for k, d in enumerate(index_map):
            start[d] = int(np.clip(vectors[number][k], 0, operand.shape[d] - sizes[d]))
        for d, o in zip(window, offset_dims, strict=True):
            start[d] += at[o]
        out[at] = operand[tuple(start)]
    return out


def xla_scatter(
    operand: Array,
    indices: Array,
    updates: Array,
    vector_dim: int,
    window_dims: Any,
    inserted: Any,
    index_map: Any,
    join: Any,
) -> Array:
    """XLA's Scatter, window by window."""
    out = operand.copy()
    vectors = vectors_of(indices, vector_dim)[0]
    batch = [d for d in range(updates.ndim) if d not in window_dims]
    sizes = iter(updates.shape[d] for d in window_dims)
    size = [1 if d in inserted else next(sizes) for d in range(operand.ndim)]
    rows = updates.transpose((*batch, *window_dims)).reshape((len(vectors), *size))
    for vector, row in zip(vectors, rows, strict=True):
        start = [0] * operand.ndim
        for k, d in enumerate(index_map):
            start[d] = int(vector[k])
        if all(0 <= s <= n - w for s, n, w in zip(start, operand.shape, size, strict=True)):
            at = tuple(slice(s, s + w) for s, w in zip(start, size, strict=True))
            out[at] = join(out[at], row)
    return out


@pytest.mark.parametrize("tiles", [4, 64])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather__along_an_axis__is_numpys_take(tiles: int, axis: int) -> None:
    bench, data = Bench(tiles), values((6, 5, 8))
    indices = RNG.integers(0, data.shape[axis], (3, 4)).astype(np.int32)
    out = slicing.gather(bench.graph, bench.tensor(data), bench.tensor(indices), axis, bench.prog)
    assert out.shape == (*data.shape[:axis], 3, 4, *data.shape[axis + 1 :])
    np.testing.assert_array_equal(ran(bench, out)[0], np.take(data, indices, axis))
    chosen = torch.index_select(torch.tensor(data), axis, torch.tensor(indices.reshape(-1)))
    np.testing.assert_array_equal(bench.run(out)[0].reshape(chosen.shape), chosen.numpy())


@pytest.mark.parametrize("dtype", ["f32", "f16", "i32", "u8", "i8", "bool", "i16"])
def test_gather__any_type__copies_bits(dtype: str) -> None:
    bench, data = Bench(8), values((9, 6), dtype)
    indices = np.array([8, 0, 3], np.uint32)
    tensor = slicing.create_gather_input(bench.graph, dtype, data.shape, 0)
    bench.data[tensor] = data
    out = slicing.gather(bench.graph, tensor, bench.tensor(indices), 0, bench.prog)
    np.testing.assert_array_equal(ran(bench, out)[0], data[indices])


GATHERS: list[tuple[Any, ...]] = [
    ((8, 6), (5, 1), 1, (1,), (1, 6), (0,), (0,)),
    ((8, 6), (5,), 1, (1,), (1, 6), (0,), (0,)),
    ((8, 6), (5, 2), 1, (), (1, 1), (0, 1), (0, 1)),
    ((8, 6), (2, 5), 0, (), (1, 1), (0, 1), (1, 0)),
    ((8, 6), (5, 2), 1, (1, 2), (3, 2), (), (0, 1)),
    ((8, 6, 4), (2, 3, 2), 2, (0, 3), (1, 4, 4), (0,), (1, 0)),
    ((8, 6, 4), (3, 1), 1, (0, 2), (1, 6, 2), (0,), (0,)),
    ((7,), (4, 1), 1, (1,), (3,), (), (0,)),
    ((7, 3), (4, 2), 1, (1, 2), (7, 3), (), (0, 1)),
]


@pytest.mark.parametrize("tiles", [4, 64])
@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
@pytest.mark.parametrize("case", GATHERS)
def test_gather__windows__are_those_of_xla(tiles: int, dtype: Any, case: Any) -> None:
    shape, index_shape, *dims = case
    bench, data = Bench(tiles), values(shape)
    low = -3 if dtype == np.int32 else 0
    indices = RNG.integers(low, 10, index_shape).astype(dtype)
    tensor = slicing.create_gather_input(bench.graph, "f32", shape, dims[2], dims[4])
    bench.data[tensor] = data
    out = slicing.gather(bench.graph, tensor, bench.tensor(indices), *dims, bench.prog)
    wanted = xla_gather(data, indices, *dims)
    assert out.shape == wanted.shape
    np.testing.assert_array_equal(ran(bench, out)[0], wanted)


SCATTERS: list[tuple[Any, ...]] = [
    ((8, 6), (5, 1), (5, 6), 1, (1,), (0,), (0,)),
    ((8, 6), (5, 2), (5,), 1, (), (0, 1), (0, 1)),
    ((8, 6), (2, 5), (5,), 0, (), (0, 1), (1, 0)),
    ((8, 6), (3, 2), (3, 2, 3), 1, (1, 2), (), (0, 1)),
    ((8, 6, 4), (2, 3, 2), (3, 2, 3, 4), 2, (0, 3), (0,), (1, 0)),
    ((8, 6), (4, 1), (4, 2), 1, (1,), (0,), (0,)),
    ((7, 3), (4, 2), (4, 7, 3), 1, (1, 2), (), (0, 1)),
]


@pytest.mark.parametrize("tiles", [4, 64])
@pytest.mark.parametrize("how", [None, "add", "mul", "max", "function"])
@pytest.mark.parametrize("case", SCATTERS)
def test_scatter__windows__are_those_of_xla(tiles: int, how: str | None, case: Any) -> None:
    shape, index_shape, update_shape, *dims = case
    if how == "function" and tiles != 4:
        pytest.skip("loops are the same on more tiles")
    bench, data, new = Bench(tiles), values(shape, "i32"), values(update_shape, "i32")
    indices = RNG.integers(-1, 8, index_shape).astype(np.int32)
    tensor = bench.tensor(data)

    def joined(graph: Graph, old: Tensor, update: Tensor, prog: Sequence) -> Tensor:
        return add(graph, old, update, prog)

    computation: Any = joined if how == "function" else how
    given, at = bench.tensor(new), bench.tensor(indices)
    slicing.scatter(bench.graph, tensor, at, given, *dims, bench.prog, update_computation=computation)
    join = {None: lambda a, b: b, "mul": np.multiply, "max": np.maximum}.get(how, np.add)
    np.testing.assert_array_equal(ran(bench, tensor)[0], xla_scatter(data, indices, new, *dims, join))


@examples(4)
@given(st.data())
def test_gather__drawn_windows__are_the_same_on_any_number_of_tiles(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    rank = len(shape)
    sizes = tuple(data.draw(st.integers(1, n)) for n in shape)
    index_map = tuple(data.draw(st.permutations(range(rank)))[: data.draw(st.integers(1, rank))])
    collapsed = tuple(d for d in range(rank) if sizes[d] == 1 and data.draw(st.booleans()))
    window = rank - len(collapsed)
    offset_dims = tuple(sorted(data.draw(st.permutations(range(window + 1)))[:window]))
    array, indices = values(shape), RNG.integers(-2, 6, (4, len(index_map))).astype(np.int32)
    arguments = (1, offset_dims, sizes, collapsed, index_map)
    for tiles in (1, 5, 64):
        bench = Bench(tiles)
        out = slicing.gather(bench.graph, bench.tensor(array), bench.tensor(indices), *arguments, bench.prog)
        np.testing.assert_array_equal(bench.run(out)[0], xla_gather(array, indices, *arguments))


def test_scatter__ones_added_on_a_big_chip__count_like_torch() -> None:
    bench, data = Bench(1472), np.zeros(3000, np.float32)
    indices = RNG.integers(0, 3000, 2000).astype(np.int32)
    tensor, ones = bench.tensor(data), bench.tensor(np.ones(2000, np.float32))
    slicing.scatter(
        bench.graph, tensor, bench.tensor(indices), ones, 1, (), (0,), (0,), bench.prog, update_computation="add"
    )
    wanted = torch.zeros(3000).scatter_add(0, torch.tensor(indices.astype(np.int64)), torch.ones(2000))
    np.testing.assert_array_equal(bench.run(tensor)[0], wanted.numpy())


def test_gather__validated_index_out_of_range__stops_the_program() -> None:
    bench = Bench(4)
    table, indices = bench.tensor(values((8, 6))), bench.tensor(np.array([0, 8], np.uint32))
    out = slicing.gather(bench.graph, table, indices, 0, bench.prog, options={"validateIndices": True})
    with pytest.raises(ApplicationRuntimeError, match="index out of range"):
        bench.run(out)


def test_gather__wrong_arguments__are_refused() -> None:
    bench = Bench(4)
    graph, prog, table = bench.graph, bench.prog, bench.tensor(values((8, 6)))
    at = bench.tensor(np.zeros((3, 1), np.int32))
    with pytest.raises(TensorError, match=r"axis 2 of .*v0.*, which has 2 dimensions"):
        slicing.gather(graph, table, at, 2, prog)
    with pytest.raises(TypeMismatchError, match=r"the indices .* are f32"):
        slicing.gather(graph, table, table, 1, (1,), (1, 6), (0,), (0,), prog)
    with pytest.raises(TensorError, match="index_vector_dim 3 of the indices"):
        slicing.gather(graph, table, at, 3, (1,), (1, 6), (0,), (0,), prog)
    with pytest.raises(TensorError, match="have vectors of 1 entry, which are to move a window along 2 dimensions"):
        slicing.gather(graph, table, at, 1, (), (1, 1), (0, 1), (0, 1), prog)
    with pytest.raises(TensorError, match=r"slice_sizes \[1, 7\] do not fit the shape \[8, 6\]"):
        slicing.gather(graph, table, at, 1, (1,), (1, 7), (0,), (0,), prog)
    with pytest.raises(TensorError, match=r"collapsed_slice_dims \[0\] of slice_sizes \[2, 6\] must have size 1"):
        slicing.gather(graph, table, at, 1, (1,), (2, 6), (0,), (0,), prog)
    with pytest.raises(TensorError, match="2 offset_dims for windows of 1 dimension"):
        slicing.gather(graph, table, at, 1, (0, 1), (1, 6), (0,), (0,), prog)
    with pytest.raises(TensorError, match=r"start_index_map \[2\] must be different dimensions below 2"):
        slicing.gather(graph, table, at, 1, (1,), (1, 6), (0,), (2,), prog)
    with pytest.raises(TensorError, match="gather takes axis, prog or index_vector_dim"):
        slicing.gather(graph, table, at, 1, (1,), prog)  # type: ignore[call-overload]
    with pytest.raises(TensorError, match=r"nothing is gathered by the indices"):
        slicing.gather(graph, table, at[:0], 1, (1,), (1, 6), (0,), (0,), prog)
    with pytest.raises(InvalidOptionError, match="has no option 'sorted'"):
        slicing.gather(graph, table, at, 1, prog, options={"sorted": True})


def test_scatter__wrong_arguments__are_refused() -> None:
    bench = Bench(4)
    graph, prog, table = bench.graph, bench.prog, bench.tensor(values((8, 6)))
    at, rows, half = bench.tensor(np.zeros((3, 1), np.int32)), bench.tensor(values((3, 6))), values((3, 6))
    with pytest.raises(TensorError, match=r"they must be \[3\] windows of 2 dimensions"):
        slicing.scatter(graph, table, at, rows, 1, (1,), (), (0,), prog)
    with pytest.raises(TypeMismatchError, match=r"the updates .* are f16, .* is f32"):
        slicing.scatter(graph, table, at, bench.tensor(half, "f16"), 1, (1,), (0,), (0,), prog)
    with pytest.raises(TensorError, match=r"windows \[1, 6\] of .* do not fit"):
        slicing.scatter(graph, table[:, :5], at, rows, 1, (1,), (0,), (0,), prog)
    with pytest.raises(InvalidOptionError, match="no computation 'sub'"):
        slicing.scatter(graph, table, at, rows, 1, (1,), (0,), (0,), prog, update_computation="sub")


def test_gather__virtual_graph__stays_on_its_tiles() -> None:
    bench, data = Bench(8), values((6, 30))
    graph = bench.graph.virtual(tiles=[6, 1, 2])
    table = slicing.create_gather_input(graph, "f32", data.shape, (2, 30), (0,))
    starts = graph.map(graph.variable("i32", (3, 1), name="starts"), 1)
    bench.data |= {table: data, starts: np.array([[4], [-1], [2]], np.int32)}
    out = slicing.gather(graph, table, starts, 1, (1, 2), (2, 30), (), (0,), bench.prog)
    slicing.scatter(graph, table, starts, out[:, 0], 1, (1,), (0,), (0,), bench.prog)
    assert set(bench.graph.mapping_of(out).tile.tolist()) <= {6, 1, 2}
    np.testing.assert_array_equal(ran(bench, out)[0], np.stack([data[4:6], data[0:2], data[2:4]]))
