"""Slices by many indices against NumPy's indexing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from poplibs_kit import Array, Bench, ran

from abele.errors import (
    ApplicationRuntimeError,
    InvalidOptionError,
    TensorError,
    TypeMismatchError,
    UnsupportedOpError,
)
from abele.graph import Tensor
from abele.numerics import as_element_type
from abele.poplibs.popops import slicing
from abele.poplibs.popops.slicing import SlicePlan, embedding
from support.examples import examples

RNG = np.random.default_rng(7)
SPLITS: list[dict[str, Any]] = [
    {},
    {"planConstraints": '{"slicedDimSplit": 2}'},
    {"plan_constraints": {"lookupSplit": 2}},
    {"planConstraints": {"slicedDimSplit": 2, "lookupSplit": 2}},
    {"planMinimisationTarget": "cycles"},
]


def values(shape: tuple[int, ...], dtype: str) -> Array:
    """Random numbers that ``dtype`` holds exactly."""
    element = as_element_type(dtype)
    if element.name == "bool":
        return RNG.integers(0, 2, shape).astype(bool)
    low, high = (0, 200) if element.kind == "uint" else (-100, 100)
    return RNG.integers(low, high, shape).astype(element.np)


def table_of(bench: Bench, plan: SlicePlan | None, array: Array, dtype: str, dims: tuple[int, ...] = (0,)) -> Tensor:
    """A sliceable tensor with data."""
    table = slicing.create_sliceable_tensor(bench.graph, dtype, array.shape, dims, (1,) * len(dims), plan)
    bench.data[table] = array
    return table


@pytest.mark.parametrize("tiles", [4, 64])
@pytest.mark.parametrize("options", SPLITS)
def test_multi_slice__any_split__gives_the_rows(tiles: int, options: dict[str, Any]) -> None:
    bench, data = Bench(tiles), values((50, 12), "f32")
    plan = embedding.plan(bench.graph, "f32", 50, 12, 33, options=options)
    table = table_of(bench, plan, data, "f32")
    indices = RNG.integers(0, 50, (33, 1)).astype(np.uint32)
    out = slicing.multi_slice(bench.graph, table, bench.tensor(indices), (0,), (1,), bench.prog, plan)
    assert out.shape == (33, 1, 12)
    np.testing.assert_array_equal(ran(bench, out)[0], data[indices])


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i32", "u32", "i16", "u8", "i8", "bool", "i64"])
def test_multi_slice__any_type__copies_bits(dtype: str) -> None:
    bench, data = Bench(8), values((9, 6), dtype)
    plan = embedding.plan(bench.graph, dtype, 9, 6, 5, options={"planConstraints": {"slicedDimSplit": 3}})
    table = table_of(bench, plan, data, dtype)
    indices = np.array([8, 0, 3, 3, 7], np.int32)
    out = slicing.multi_slice(bench.graph, table, bench.tensor(indices), (0,), (1,), bench.prog, plan)
    np.testing.assert_array_equal(ran(bench, out)[0][:, 0], data[indices])


def test_multi_slice__on_1472_tiles__is_pytorchs_embedding() -> None:
    bench = Bench(1472)
    data = RNG.standard_normal((1000, 40)).astype(np.float32)
    indices = RNG.integers(0, 1000, 300).astype(np.uint32)
    plan = embedding.plan(bench.graph, "f32", 1000, 40, 300)
    table = table_of(bench, plan, data, "f32")
    out = slicing.multi_slice(bench.graph, table, bench.tensor(indices), (0,), (1,), bench.prog, plan)
    expected = torch.nn.functional.embedding(torch.tensor(indices.astype(np.int64)), torch.tensor(data))
    np.testing.assert_array_equal(bench.run(out, mode="native")[0][:, 0], expected.numpy())


@examples(5)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 30), st.sampled_from([3, 16]), st.data())
def test_multi_slice__without_plan__gives_the_rows(
    entries: int, columns: int, num: int, tiles: int, data: st.DataObject
) -> None:
    indices = np.array(data.draw(st.lists(st.integers(0, entries - 1), min_size=num, max_size=num)), np.uint32)
    bench, array = Bench(tiles), values((entries, columns), "f16")
    table, offsets = bench.tensor(array, "f16"), bench.tensor(indices)
    out = slicing.multi_slice(bench.graph, table, offsets, (0,), (1,), bench.prog)
    assert out.shape == (num, 1, columns)
    if num:
        np.testing.assert_array_equal(bench.run(out)[0][:, 0], array[indices])


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_multi_slice__along_any_dimension__is_take(dim: int) -> None:
    bench, data = Bench(16), values((5, 4, 6), "f32")
    table = table_of(bench, None, data, "f32", (dim,))
    indices = RNG.integers(0, data.shape[dim], 7).astype(np.uint32)
    out = slicing.multi_slice(bench.graph, table, bench.tensor(indices), (dim,), (1,), bench.prog)
    expected = np.stack([np.take(data, [i], axis=dim) for i in indices])
    np.testing.assert_array_equal(ran(bench, out)[0], expected)


@pytest.mark.parametrize("options", [{}, {"planConstraints": {"slicedDimSplit": 3}}])
@pytest.mark.parametrize("dtype", [np.uint32, np.int32])
def test_multi_slice__index_out_of_range__gives_zeros(options: dict[str, Any], dtype: Any) -> None:
    bench, data = Bench(16), values((10, 4), "f32")
    plan = embedding.plan(bench.graph, "f32", 10, 4, 4, options=options)
    table = table_of(bench, plan, data, "f32")
    indices = np.array([9, 10, 2**31 - 1, 0], dtype)
    if dtype is np.int32:
        indices[2] = -1
    out = slicing.multi_slice(bench.graph, table, bench.tensor(indices), (0,), (1,), bench.prog, plan)
    got = ran(bench, out)[0][:, 0]
    np.testing.assert_array_equal(got, np.stack([data[9], np.zeros(4), np.zeros(4), data[0]]))


@pytest.mark.parametrize(("padding", "expected"), [(False, [4, 0, 0, 0]), (True, [4, None, 0, 0])])
def test_multi_slice__remapped__takes_entry_0(padding: bool, expected: list[int | None]) -> None:
    bench, data = Bench(4), values((5, 4), "f32")
    table, offsets = bench.tensor(data, "f32"), bench.tensor(np.array([4, 5, 6, -2], np.int32))
    options = {"remapOutOfBoundIndices": True, "paddingIndexUsed": padding}
    out = slicing.multi_slice(bench.graph, table, offsets, (0,), (1,), bench.prog, options=options)
    wanted = np.stack([np.zeros(4) if e is None else data[e] for e in expected])
    np.testing.assert_array_equal(ran(bench, out)[0][:, 0], wanted)


def test_multi_slice__static_offsets__copies_rows() -> None:
    bench, data = Bench(8), values((6, 5), "f32")
    table = table_of(bench, None, data, "f32")
    out = slicing.multi_slice(bench.graph, table, [5, 0, 0], (0,), (1,), bench.prog)
    np.testing.assert_array_equal(ran(bench, out)[0][:, 0], data[[5, 0, 0]])


@pytest.mark.parametrize("tiles", [2, 64])
def test_grouped_multi_slice__groups__are_sliced_each_by_its_own(tiles: int) -> None:
    bench, data = Bench(tiles), values((3, 20, 8), "f32")
    plan = embedding.plan(bench.graph, "f32", 20, 8, 11, group_size=3)
    table = slicing.create_grouped_sliceable_tensor(bench.graph, "f32", 3, (20, 8), (0,), (1,), plan)
    bench.data[table] = data
    offsets = slicing.create_grouped_indices_tensor(bench.graph, 3, (0,), 11, plan)
    indices = RNG.integers(0, 20, (3, 11, 1)).astype(np.uint32)
    bench.data[offsets] = indices
    out = slicing.grouped_multi_slice(bench.graph, table, offsets, (0,), (1,), bench.prog, plan)
    expected = np.take_along_axis(data, np.broadcast_to(indices, (3, 11, 8)).astype(np.int64), axis=1)
    np.testing.assert_array_equal(ran(bench, out)[0][:, :, 0], expected)


@pytest.mark.parametrize("mode", ["tiles", "native"])
@pytest.mark.parametrize("where", ["plan", "call"])
def test_validate_indices__one_out_of_range__stops_the_run(mode: str, where: str) -> None:
    bench, data, checks = Bench(16), values((10, 4), "f32"), {"validateIndices": True}
    plan = embedding.plan(bench.graph, "f32", 10, 4, 40, options=checks if where == "plan" else {})
    table = table_of(bench, plan, data, "f32")
    indices = np.full((40, 1), 9, np.uint32)
    offsets = bench.tensor(indices)
    out = slicing.multi_slice(
        bench.graph, table, offsets, (0,), (1,), bench.prog, plan, options=checks if where == "call" else {}
    )
    np.testing.assert_array_equal(bench.run(out, mode=mode)[0], data[indices])
    bench.data[offsets][33] = 10
    with pytest.raises(ApplicationRuntimeError, match=r"multi_slice: index out of range: .*of a table of 10 entries"):
        bench.run(out, mode=mode)


def test_validate_indices__negative_index__stops_the_run() -> None:
    bench = Bench(4)
    table, offsets = bench.tensor(values((10, 4), "f32"), "f32"), bench.tensor(np.array([0, -1], np.int32))
    out = slicing.multi_slice(bench.graph, table, offsets, (0,), (1,), bench.prog, options={"validateIndices": "true"})
    with pytest.raises(ApplicationRuntimeError, match="index out of range"):
        bench.run(out, mode="native")


def call(bench: Bench, table: Tensor, offsets: Any, **given: Any) -> None:
    """A slice with some argument that is wrong."""
    dims, sizes = given.pop("dims", (0,)), given.pop("sizes", (1,))
    slicing.multi_slice(bench.graph, table, offsets, dims, sizes, bench.prog, **given)


def test_multi_slice__wrong_offsets__are_refused() -> None:
    bench = Bench(4)
    table = bench.tensor(values((10, 4), "f32"), "f32")
    with pytest.raises(TypeMismatchError, match=r"multi_slice: the offsets .* are f32, they must be u32 or i32"):
        call(bench, table, bench.tensor(np.zeros(3, np.float32)))
    with pytest.raises(TensorError, match=r"have shape \[3, 2\], not \[n, 1\]"):
        call(bench, table, bench.tensor(np.zeros((3, 2), np.uint32)))
    with pytest.raises(TensorError, match="offset 10 is out of range: the table has 10 entries"):
        call(bench, table, [3, 10])


def test_multi_slice__wrong_dimensions__are_refused() -> None:
    bench = Bench(4)
    table, offsets = bench.tensor(values((10, 4), "f32"), "f32"), bench.tensor(np.zeros(3, np.uint32))
    with pytest.raises(TensorError, match=r"no dimension 2 in shape \[10, 4\]"):
        call(bench, table, offsets, dims=(2,))
    with pytest.raises(TensorError, match=r"dims \[0\] and sizes \[1, 1\] do not go together"):
        call(bench, table, offsets, sizes=(1, 1))
    with pytest.raises(TensorError, match=r"slices of 11 along dimension 0 of shape \[10, 4\]"):
        call(bench, table, offsets, sizes=(11,))
    with pytest.raises(UnsupportedOpError, match="many slices at once are of one entry along one dimension"):
        call(bench, table, offsets, sizes=(2,))


def test_multi_slice__plan_for_another_table__is_refused() -> None:
    bench = Bench(4)
    table, offsets = bench.tensor(values((10, 4), "f32"), "f32"), bench.tensor(np.zeros(3, np.uint32))
    with pytest.raises(TensorError, match="the plan is for 1 x 11 x 4 elements, not for 1 x 10 x 4"):
        call(bench, table, offsets, plan=embedding.plan(bench.graph, "f32", 11, 4, 3))
    with pytest.raises(InvalidOptionError, match="multi_slice has no option 'validateIndex'; did you mean"):
        call(bench, table, offsets, options={"validateIndex": True})
    with pytest.raises(TensorError, match="without groups"):
        slicing.grouped_multi_slice(bench.graph, offsets, offsets, (0,), (1,), bench.prog)


def test_multi_slice__camel_case_names__are_the_same_functions() -> None:
    names = vars(slicing)
    assert names["multiSlice"] is slicing.multi_slice
    assert names["createSliceableTensor"] is slicing.create_sliceable_tensor
