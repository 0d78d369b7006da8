"""Updates by many indices against NumPy's unbuffered operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from poplibs_kit import Array, Bench, assert_close

from abele.errors import (
    ApplicationRuntimeError,
    InvalidOptionError,
    TensorError,
    TypeMismatchError,
)
from abele.graph import Repeat, Sequence, Tensor
from abele.numerics import as_element_type
from abele.poplibs.popops import slicing
from abele.poplibs.popops.slicing import SlicePlan, embedding
from abele.runtime import Engine
from support.examples import examples

RNG = np.random.default_rng(11)
SPLITS: list[dict[str, Any]] = [{}, {"slicedDimSplit": 2}, {"lookupSplit": 2}, {"slicedDimSplit": 2, "lookupSplit": 2}]
JOINED: dict[str, Callable[..., None]] = {
    "add": np.add.at,
    "max": np.maximum.at,
    "mul": np.multiply.at,
}


def small(shape: tuple[int, ...], dtype: str) -> Array:
    """Small whole numbers, whose sums and products are exact."""
    low = 0 if as_element_type(dtype).kind == "uint" else -2
    return RNG.integers(low, 3, shape).astype(as_element_type(dtype).np)


def made(
    bench: Bench, options: dict[str, Any], shape: tuple[int, int], num: int, dtype: str
) -> tuple[SlicePlan, Tensor, Array]:
    """A planned table with data."""
    plan = embedding.plan(bench.graph, dtype, *shape, num, options=options)
    table = slicing.create_sliceable_tensor(bench.graph, dtype, shape, (0,), (1,), plan)
    bench.data[table] = small(shape, dtype)
    return plan, table, bench.data[table]


def update(bench: Bench, operation: str, table: Tensor, slices: Tensor, offsets: Any, **given: Any) -> None:
    """The update called ``operation``."""
    scale = (given.pop("scale", 1.0),) if operation == "add" else ()
    name = "multi_update" if operation == "none" else f"multi_update_{operation}"
    getattr(slicing, name)(bench.graph, table, slices, offsets, *scale, (0,), (1,), bench.prog, **given)


def ran(bench: Bench, table: Tensor) -> Array:
    """The table after both ways of running, which must agree to the last bit."""
    placed, native = bench.run(table)[0], bench.run(table, mode="native")[0]
    np.testing.assert_array_equal(placed, native)
    return placed


@pytest.mark.parametrize("tiles", [4, 64])
@pytest.mark.parametrize("splits", SPLITS)
@pytest.mark.parametrize("operation", ["add", "max", "mul"])
def test_multi_update__any_split__joins_every_duplicate(tiles: int, splits: dict[str, Any], operation: str) -> None:
    bench, num = Bench(tiles), 33
    plan, table, data = made(bench, {"planConstraints": splits}, (20, 12), num, "f32")
    indices = RNG.integers(0, 20, (num, 1)).astype(np.uint32)
    slices = small((num, 1, 12), "f32")
    update(bench, operation, table, bench.tensor(slices), bench.tensor(indices), plan=plan)
    expected = data.copy()
    JOINED[operation](expected, indices[:, 0], slices[:, 0])
    np.testing.assert_array_equal(ran(bench, table), expected)


@pytest.mark.parametrize("tiles", [4, 64])
@pytest.mark.parametrize("splits", SPLITS)
def test_multi_update__equal_offsets__last_one_counts(tiles: int, splits: dict[str, Any]) -> None:
    bench, num = Bench(tiles), 33
    options = {"planConstraints": splits, "operationForUpdate": "none"}
    plan, table, data = made(bench, options, (20, 12), num, "f16")
    indices = RNG.integers(0, 15, num).astype(np.uint32)
    slices = RNG.standard_normal((num, 1, 12)).astype(np.float16)
    update(bench, "none", table, bench.tensor(slices), bench.tensor(indices), plan=plan)
    expected = data.copy()
    for i, row in zip(indices, slices[:, 0], strict=True):
        expected[i] = row
    np.testing.assert_array_equal(ran(bench, table), expected)


@pytest.mark.parametrize("dtype", ["f32", "f16", "i32", "u32"])
@pytest.mark.parametrize("operation", ["add", "max", "mul"])
@pytest.mark.parametrize("split", [1, 3])
def test_multi_update__any_type__is_exact_on_small_numbers(dtype: str, operation: str, split: int) -> None:
    bench, num = Bench(12), 9
    plan, table, data = made(bench, {"planConstraints": {"lookupSplit": split}}, (6, 4), num, dtype)
    indices, slices = RNG.integers(0, 6, num).astype(np.int32), small((num, 1, 4), dtype)
    update(bench, operation, table, bench.tensor(slices), bench.tensor(indices), plan=plan)
    expected = data.copy()
    JOINED[operation](expected, indices, slices[:, 0])
    np.testing.assert_array_equal(ran(bench, table), expected)


@pytest.mark.parametrize("partial", ["half", "float"])
@pytest.mark.parametrize("scale", [0.25, "f32", "f16"])
@pytest.mark.parametrize("split", [1, 2])
def test_multi_update_add__scale__multiplies_slices(partial: str, scale: Any, split: int) -> None:
    bench, num = Bench(8), 30
    options = {"planConstraints": {"lookupSplit": split}, "partialType": partial}
    plan, table, data = made(bench, options, (20, 12), num, "f16")
    indices = RNG.integers(0, 20, num).astype(np.uint32)
    slices = RNG.standard_normal((num, 1, 12)).astype(np.float16)
    factor = scale if isinstance(scale, float) else bench.tensor(np.full(1, 0.25), scale, layout=0)
    update(bench, "add", table, bench.tensor(slices), bench.tensor(indices), plan=plan, scale=factor)
    expected = data.astype(np.float64)
    np.add.at(expected, indices, 0.25 * slices[:, 0].astype(np.float64))
    for mode in ("tiles", "native"):
        assert_close(bench.run(table, mode=mode)[0], expected, table.dtype)


def test_multi_update_add__on_1472_tiles__is_pytorchs_index_add() -> None:
    bench, num = Bench(1472), 500
    plan, table, data = made(bench, {}, (300, 40), num, "f32")
    indices = RNG.integers(0, 300, num).astype(np.uint32)
    slices = RNG.standard_normal((num, 1, 40)).astype(np.float32)
    update(bench, "add", table, bench.tensor(slices), bench.tensor(indices), plan=plan, scale=-0.5)
    wanted = torch.tensor(data).index_add(
        0, torch.tensor(indices.astype(np.int64)), torch.tensor(slices[:, 0]), alpha=-0.5
    )
    assert_close(bench.run(table, mode="native")[0], wanted.numpy(), table.dtype)


@examples(4)
@given(st.integers(1, 30), st.integers(1, 7), st.integers(0, 20), st.sampled_from([3, 16]), st.data())
def test_multi_update_add__without_plan__adds_up(
    entries: int, columns: int, num: int, tiles: int, data: st.DataObject
) -> None:
    indices = np.array(data.draw(st.lists(st.integers(0, entries), min_size=num, max_size=num)), np.uint32)
    bench, array, slices = Bench(tiles), small((entries, columns), "f32"), small((num, 1, columns), "f32")
    table = bench.tensor(array, "f32")
    update(bench, "add", table, bench.tensor(slices, "f32"), bench.tensor(indices))
    expected, inside = array.copy(), indices < entries
    np.add.at(expected, indices[inside], slices[inside, 0])
    if num:
        np.testing.assert_array_equal(bench.run(table)[0], expected)


@pytest.mark.parametrize("dim", [1, 2])
def test_multi_update_add__along_a_later_dimension__adds_there(dim: int) -> None:
    bench, data = Bench(8), small((3, 4, 5), "f32")
    table, num = bench.tensor(data), 6
    indices = RNG.integers(0, data.shape[dim], num).astype(np.uint32)
    shape = [num, 3, 4, 5]
    shape[1 + dim] = 1
    slices = small(tuple(shape), "f32")
    given = bench.tensor(slices), bench.tensor(indices)
    slicing.multi_update_add(bench.graph, table, *given, 1.0, (dim,), (1,), bench.prog)
    expected = np.moveaxis(data.copy(), dim, 0)
    np.add.at(expected, indices, np.moveaxis(slices, 1 + dim, 1)[:, 0])
    np.testing.assert_array_equal(ran(bench, table), np.moveaxis(expected, 0, dim))


def test_multi_update__static_offsets__are_the_same_as_data() -> None:
    bench, data, slices = Bench(8), small((6, 4), "f32"), small((3, 1, 4), "f32")
    table = bench.tensor(data)
    update(bench, "add", table, bench.tensor(slices), [5, 0, 5])
    update(bench, "none", table, bench.tensor(slices), (1, 2, 3))
    expected = data.copy()
    np.add.at(expected, [5, 0, 5], slices[:, 0])
    expected[1:4] = slices[:, 0]
    np.testing.assert_array_equal(ran(bench, table), expected)


@pytest.mark.parametrize("operation", ["none", "add"])
def test_multi_update__debug_mode__touches_only_its_fields(operation: str) -> None:
    bench = Bench(4)
    plan, table, data = made(bench, {"planConstraints": {"slicedDimSplit": 2, "lookupSplit": 2}}, (6, 4), 5, "f32")
    slices, indices = small((5, 1, 4), "f32"), np.array([0, 5, 2, 9, 3], np.uint32)
    offsets = bench.tensor(indices)
    out = slicing.multi_slice(bench.graph, table, offsets, (0,), (1,), bench.prog, plan)
    update(bench, operation, table, bench.tensor(slices), offsets, plan=plan)
    rows, after = bench.run(out, table, debug=True)
    inside = indices < 6
    np.testing.assert_array_equal(rows[inside, 0], data[indices[inside]])
    np.testing.assert_array_equal(rows[~inside], 0)
    expected = data.copy()
    expected[indices[inside]] = slices[inside, 0] + (data[indices[inside]] if operation == "add" else 0)
    np.testing.assert_array_equal(after, expected)


@pytest.mark.parametrize("tiles", [2, 64])
@pytest.mark.parametrize("operation", ["none", "add", "max", "mul"])
def test_grouped_multi_update__groups__are_updated_each_by_its_own(tiles: int, operation: Any) -> None:
    bench, data = Bench(tiles), small((3, 10, 8), "f32")
    plan = embedding.plan(bench.graph, "f32", 10, 8, 7, group_size=3)
    table = slicing.create_grouped_sliceable_tensor(bench.graph, "f32", 3, (10, 8), (0,), (1,), plan)
    slices = slicing.create_grouped_slice_tensor(bench.graph, table, (0,), (1,), 7, plan)
    bench.data |= {table: data, slices: small((3, 7, 1, 8), "f32")}
    indices = RNG.integers(0, 10, (3, 7)).astype(np.uint32)
    offsets = bench.tensor(indices)
    if operation == "add":
        slicing.grouped_multi_update_add(bench.graph, table, slices, offsets, 2.0, (0,), (1,), bench.prog, plan)
    else:
        slicing.grouped_multi_update(
            bench.graph, table, slices, offsets, (0,), (1,), bench.prog, plan, operation=operation
        )
    expected, rows = data.copy(), bench.data[slices][:, :, 0] * (2.0 if operation == "add" else 1.0)
    for g in range(3):
        for i, row in zip(indices[g], rows[g], strict=True):
            at = expected[g, i]
            joined = {"none": row, "add": at + row, "max": np.maximum(at, row), "mul": at * row}
            expected[g, i] = joined[operation]
    np.testing.assert_array_equal(ran(bench, table), expected)


@pytest.mark.parametrize("mode", ["tiles", "native"])
def test_multi_update_add__validated_index_out_of_range__leaves_the_table(mode: str) -> None:
    bench = Bench(4)
    plan, table, _ = made(bench, {"validateIndices": True}, (6, 4), 2, "f32")
    given = bench.tensor(np.ones((2, 1, 4), np.float32)), bench.tensor(np.array([0, 6], np.uint32))
    update(bench, "add", table, *given, plan=plan)
    with pytest.raises(ApplicationRuntimeError, match=r"multi_update_add: index out of range: .* of 6 entries"):
        bench.run(table, mode=mode)


def test_multi_update__wrong_slices__are_refused() -> None:
    bench = Bench(4)
    table, offsets = bench.tensor(small((6, 4), "f32")), bench.tensor(np.zeros(3, np.uint32))
    with pytest.raises(TensorError, match=r"multi_update_add: the slices .* have shape \[3, 4\], not \[3, 1, 4\]"):
        update(bench, "add", table, bench.tensor(small((3, 4), "f32")), offsets)
    halves = bench.tensor(small((3, 1, 4), "f16"))
    with pytest.raises(TypeMismatchError, match=r"multi_update: .* is f16, the table .* is f32"):
        update(bench, "none", table, halves, offsets)
    with pytest.raises(TypeMismatchError, match=r"of i32 cannot be joined with .* of f32"):
        update(bench, "max", table, bench.tensor(small((3, 1, 4), "i32")), offsets)


def test_multi_update__wrong_scale_or_operation__is_refused() -> None:
    bench = Bench(4)
    table, offsets = bench.tensor(small((6, 4), "i32")), bench.tensor(np.zeros(3, np.uint32))
    slices, pair = bench.tensor(small((3, 1, 4), "i32")), bench.tensor(np.ones(2, np.float32))
    with pytest.raises(TypeMismatchError, match=r"is i32, so the scale 0.5 must be a whole number"):
        update(bench, "add", table, slices, offsets, scale=0.5)
    for scale in (math.inf, math.nan):
        with pytest.raises(TypeMismatchError, match=rf"is i32, so the scale {scale} must be a whole number"):
            update(bench, "add", table, slices, offsets, scale=scale)
    with pytest.raises(TensorError, match=r"the scale .* has 2 elements, it must be one"):
        update(bench, "add", table, slices, offsets, scale=pair)
    with pytest.raises(TypeMismatchError, match=r"the scale .* is f32, .* is i32"):
        update(bench, "add", table, slices, offsets, scale=pair[:1])
    rest: tuple[Any, ...] = (bench.graph, table, slices, offsets, (0,), (1,), bench.prog)
    with pytest.raises(InvalidOptionError, match="no operation 'sub'"):
        slicing.grouped_multi_update(*rest, operation="sub")  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match="operation 'max' takes no scale"):
        slicing.grouped_multi_update(*rest, operation="max", scale=2.0)
    with pytest.raises(TensorError, match="without groups"):
        slicing.grouped_multi_update(bench.graph, offsets, *rest[2:])


def test_multi_update__native__runs_few_vertices_in_place_of_the_body() -> None:
    bench = Bench(64)
    plan, table, data = made(bench, {"planConstraints": {"slicedDimSplit": 4, "lookupSplit": 3}}, (20, 2), 9, "f32")
    indices, slices = RNG.integers(0, 20, 9).astype(np.uint32), small((9, 1, 2), "f32")
    offsets = bench.tensor(indices)
    out = slicing.multi_slice(bench.graph, table, offsets, (0,), (1,), bench.prog, plan)
    update(bench, "add", table, bench.tensor(slices), offsets, plan=plan)
    body = Sequence(*bench.prog.steps)
    bench.prog = Sequence(Repeat(3, body))
    with Engine(bench.executable, mode="native", keep=[*bench.data, out]) as engine:
        assert "Select" not in engine.listing()
        assert "Reduce" not in engine.listing()
    rows, after = bench.run(out, table, mode="native", threads=2)
    expected = data.copy()
    for _ in range(3):
        looked_up = expected[indices]
        np.add.at(expected, indices, slices[:, 0])
    np.testing.assert_array_equal(rows[:, 0], looked_up)
    np.testing.assert_array_equal(after, expected)
