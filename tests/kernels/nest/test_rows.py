"""Rows that values name: gathers and scatters against NumPy, in every form and natively."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels_kit import run_kernel, run_plan

from abele.errors import TensorError, TypeMismatchError
from abele.kernels import BoundKernel, Buffer, HostKernel, OperandBinding, bind, evaluate, plan_native
from abele.kernels.nest.binding import bound_calls
from abele.kernels.nest.ir import Const, load, nest, store
from abele.kernels.plan.passes import run_passes
from abele.kernels.plan.reference import evaluate_form
from abele.kernels.target import HostTarget
from abele.numerics import ElementType, f16, f32, i32, u32
from support.examples import examples

COMBINES = {"add": np.add, "max": np.maximum, "min": np.minimum, "mul": np.multiply}


def gather_kernel(rows: int, count: int, width: int, type_: ElementType = f32, index: ElementType = i32) -> HostKernel:
    """out[i, j] = table[index[i], j]."""
    body = nest({"i": count, "j": width}, store(2, ("i", "j"), load(0, load(1, "i"), "j")))
    return HostKernel(((rows, width), (count,), (count, width)), (type_, index, type_), 2, 1, (body,))


def scatter_kernel(rows: int, count: int, width: int, combine: str, type_: ElementType = f32) -> HostKernel:
    """table[index[i], j] combined with part[i, j], onto what is there."""
    value = store(2, (load(1, "i"), "j"), load(0, "i", "j"), combine, accumulate=combine != "set")
    body = nest({"i": count, "j": width}, value)
    return HostKernel(((count, width), (count,), (rows, width)), (type_, i32, type_), 2, 1, (body,))


def taken(table: np.ndarray, index: np.ndarray) -> np.ndarray:
    inside = (index >= 0) & (index < len(table))
    return np.where(inside[:, None], table[np.where(inside, index, 0)], 0).astype(table.dtype)


def combined(table: np.ndarray, index: np.ndarray, part: np.ndarray, combine: str) -> np.ndarray:
    table = table.copy()
    for row, values in zip(index, part, strict=True):
        if 0 <= row < len(table):
            table[row] = values if combine == "set" else COMBINES[combine](table[row], values)
    return table


SIZES = st.integers(1, 40)


@examples(4)
@given(rows=SIZES, count=SIZES, width=st.sampled_from([1, 3, 16, 21, 64]), seed=st.integers(0, 9), data=st.data())
def test_gather__of_rows__is_numpys_with_zeros_outside(rows, count, width, seed, data) -> None:
    type_, index_type = data.draw(st.sampled_from([(f32, i32), (f16, u32), (i32, i32)]))
    rng = np.random.default_rng(seed)
    table = rng.integers(-99, 99, (rows, width)).astype(type_.np)
    index = rng.integers(-2 if index_type is i32 else 0, rows + 3, count).astype(index_type.np)
    kernel = gather_kernel(rows, count, width, type_, index_type)
    wanted = taken(table, index.astype(np.int64))
    np.testing.assert_array_equal(evaluate(kernel, [table, index])[0], wanted)
    for threads in (1, 3):
        np.testing.assert_array_equal(run_kernel(kernel, [table, index], threads)[0], wanted)


@examples(5)
@given(
    rows=st.integers(1, 9),
    count=SIZES,
    width=st.sampled_from([1, 3, 16, 21, 64, 150]),
    combine=st.sampled_from(["set", *COMBINES]),
    type_=st.sampled_from([f32, f16, i32]),
    seed=st.integers(0, 9),
)
def test_scatter__by_any_threads__combines_rows_in_order(rows, count, width, combine, type_, seed) -> None:
    rng = np.random.default_rng(seed)
    table, part = (rng.normal(size=(n, width)).astype(type_.np) for n in (rows, count))
    index = rng.integers(-2, rows + 3, count).astype(np.int32)
    kernel = scatter_kernel(rows, count, width, combine, type_)
    wanted = combined(table, index, part, combine)
    np.testing.assert_array_equal(evaluate(kernel, [part, index, table])[0], wanted)
    for threads in (1, 2, 5):
        np.testing.assert_array_equal(run_kernel(kernel, [part, index, table], threads)[0], wanted)


@pytest.mark.parametrize(("pieces", "units"), [(64, 8), (70, 9), (37, 37)])
def test_scatter__to_a_table_in_pieces_of_columns__passes_over_rows_for_a_line_of_them(pieces: int, units: int) -> None:
    rows, count = 300, 50
    value = store(2, ("p", load(1, "i"), "j"), load(0, "i", "p", "j"), "add", accumulate=True)
    body = nest({"i": count, "p": pieces, "j": 2}, value)
    kernel = HostKernel(((count, pieces, 2), (count,), (pieces, rows, 2)), (f32, i32, f32), 2, 1, (body,))
    rng = np.random.default_rng(4)
    part, table = (rng.normal(size=n).astype(np.float32) for n in ((count, pieces, 2), (pieces, rows, 2)))
    index = rng.integers(-1, rows + 1, count).astype(np.int32)
    wanted = np.moveaxis(combined(np.moveaxis(table, 1, 0), index, part, "add"), 0, 1)
    for threads in (1, 3):
        np.testing.assert_array_equal(run_kernel(kernel, [part, index, table], threads)[0], wanted)
    shapes = enumerate(((count, pieces, 2), (count,), (pieces, rows, 2)))
    buffers = [Buffer(n, shape, type_) for (n, shape), type_ in zip(shapes, (f32, i32, f32), strict=True)]
    call = BoundKernel(kernel, tuple(map(bind, buffers)), "scatter")
    # Eight pieces of two columns are a line of the part; 37 pieces would leave too few units for threads.
    assert [leaf.units for leaf in plan_native(buffers, [call]).leaves] == [units]


def test_scatter__without_accumulating__starts_from_the_neutral_value() -> None:
    value = store(2, (load(1, "i"), "j"), load(0, "i", "j"), "max")
    kernel = HostKernel(((5, 4), (5,), (3, 4)), (f32, i32, f32), 2, 1, (nest({"i": 5, "j": 4}, value),))
    part, index = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32), np.array([0, 0, 2, 0, 2], np.int32)
    wanted = combined(np.full((3, 4), -np.inf, np.float32), index, part, "max")
    for found in (evaluate(kernel, [part, index])[0], run_kernel(kernel, [part, index])[0]):
        np.testing.assert_array_equal(found, wanted)


def test_gather_along_a_dim__with_an_index_for_every_element__is_numpys() -> None:
    body = nest({"i": 7, "j": 37}, store(2, ("i", "j"), load(0, load(1, "i", "j"), "j") * 2.0))
    kernel = HostKernel(((50, 37), (7, 37), (7, 37)), (f32, i32, f32), 2, 1, (body,))
    rng = np.random.default_rng(1)
    table, index = rng.normal(size=(50, 37)).astype(np.float32), rng.integers(0, 50, (7, 37)).astype(np.int32)
    wanted = 2 * np.take_along_axis(table, index, 0)
    np.testing.assert_array_equal(run_kernel(kernel, [table, index], 2)[0], wanted)


def test_scatter_along_a_dim__with_an_index_for_every_element__is_numpys() -> None:
    value = store(2, (load(1, "i", "j"), "j"), load(0, "i", "j"), "add", accumulate=True)
    kernel = HostKernel(((30, 37), (30, 37), (9, 37)), (f32, i32, f32), 2, 1, (nest({"i": 30, "j": 37}, value),))
    rng = np.random.default_rng(2)
    part, index = rng.normal(size=(30, 37)).astype(np.float32), rng.integers(-1, 10, (30, 37)).astype(np.int32)
    table = rng.normal(size=(9, 37)).astype(np.float32)
    wanted = table.copy()
    for i in range(30):
        for j in range(37):
            if 0 <= index[i, j] < 9:
                wanted[index[i, j], j] += part[i, j]
    for threads in (1, 3):
        np.testing.assert_array_equal(run_kernel(kernel, [part, index, table], threads)[0], wanted)


def test_bag__of_rows_that_are_summed__is_numpys() -> None:
    body = nest({"b": 6, "f": 5, "j": 24}, store(2, ("b", "j"), load(0, load(1, "b", "f"), "j"), "add"))
    kernel = HostKernel(((11, 24), (6, 5), (6, 24)), (f32, i32, f32), 2, 1, (body,))
    rng = np.random.default_rng(3)
    table, index = rng.integers(-9, 9, (11, 24)).astype(np.float32), rng.integers(-1, 12, (6, 5)).astype(np.int32)
    wanted = taken(table, index.reshape(-1)).reshape(6, 5, 24).sum(1)
    np.testing.assert_array_equal(run_kernel(kernel, [table, index])[0], wanted)


def program(rows: int, count: int, width: int) -> tuple[list[Buffer], list[BoundKernel]]:
    """A table scaled and gathered from, work on the rows, and what they become added to another table."""
    shapes = [(rows, width), (count,), (rows, width), (count, width), (count, width), (rows, width)]
    types = [f32, i32, f32, f32, f32, f32]
    pinned = [True, True, False, False, False, True]
    names = ["table", "index", "scaled", "rows", "worked", "sums"]
    buffers = [Buffer(n, *item) for n, item in enumerate(zip(shapes, types, pinned, names, strict=True))]
    table, index, scaled, part, worked, sums = buffers

    def elementwise(a: Buffer, b: Buffer, factor: float) -> BoundKernel:
        extents = dict(zip("ij", a.shape, strict=True))
        body = nest(extents, store(1, "ij", load(0, "i", "j") * factor))
        return BoundKernel(HostKernel((a.shape, b.shape), (f32, f32), 1, 1, (body,)), (bind(a), bind(b)), b.name)

    calls = [
        elementwise(table, scaled, 3.0),
        BoundKernel(gather_kernel(rows, count, width), (bind(scaled), bind(index), bind(part)), "gather"),
        elementwise(part, worked, 0.5),
        BoundKernel(scatter_kernel(rows, count, width, "add"), (bind(worked), bind(index), bind(sums)), "scatter"),
        elementwise(sums, sums, 2.0),
    ]
    return buffers, calls


@pytest.mark.parametrize(("rows", "count", "width"), [(12, 64, 8), (5, 33, 20), (40, 7, 64)])
def test_program__with_gather_and_scatter__means_the_same_in_every_form(rows: int, count: int, width: int) -> None:
    buffers, calls = program(rows, count, width)
    rng = np.random.default_rng(4)
    table, sums = (rng.integers(-9, 9, (rows, width)).astype(np.float32) for _ in range(2))
    index = rng.integers(-1, rows + 1, count).astype(np.int32)
    wanted = 2 * combined(sums, index, 1.5 * taken(table, index), "add")
    given_ = {0: table, 1: index, 5: sums}

    def check(_: object, form: object) -> None:
        np.testing.assert_array_equal(evaluate_form(form, given_)[5].reshape(rows, width), wanted)

    run_passes(bound_calls(buffers, calls, HostTarget(16)), after="choose_schedules", check=True, watch=check)
    for threads in (1, 3):
        storage = {n: np.ascontiguousarray(a) for n, a in given_.items()} | {5: sums.copy()}
        run_plan(plan_native(buffers, calls), storage, threads)
        np.testing.assert_array_equal(storage[5], wanted)


def test_work_after_a_gather__is_fused_into_it_and_work_before_is_not() -> None:
    buffers, calls = program(12, 64, 8)
    form = run_passes(bound_calls(buffers, calls), after="fuse_tasks", check=True)
    assert [task.name for task in form.tasks] == ["scaled", "gather+worked", "scatter", "sums"]


def test_gather__of_a_table_in_several_strides__is_numpys() -> None:
    kernel = gather_kernel(12, 9, 8)
    # Rows are 3 by 4, columns 2 by 4: a table as [4, 2, 3, 4] in memory.
    held = np.random.default_rng(5).normal(size=(4, 2, 3, 4)).astype(np.float32)
    table = held.transpose(2, 0, 1, 3).reshape(12, 8)
    buffers = [Buffer(0, (96,), f32, True, "t"), Buffer(1, (9,), i32, True, "i"), Buffer(2, (9, 8), f32, True, "o")]
    view = OperandBinding(0, (((3, 4), (4, 24)), ((2, 12), (4, 1))))
    index = np.array([0, 11, 5, -1, 12, 3, 7, 7, 1], np.int32)
    storage = {0: held.reshape(-1).copy(), 1: index, 2: np.zeros((9, 8), np.float32)}
    run_plan(plan_native(buffers, [BoundKernel(kernel, (view, bind(buffers[1]), bind(buffers[2])), "g")]), storage)
    np.testing.assert_array_equal(storage[2], taken(table, index))


def test_row__that_is_no_integer__is_refused() -> None:
    body = nest({"i": 3, "j": 2}, store(2, ("i", "j"), load(0, load(1, "i"), "j")))
    with pytest.raises(TypeMismatchError, match="the place along dim 0 of %0 is f32, no integer"):
        HostKernel(((4, 2), (3,), (3, 2)), (f32, f32, f32), 2, 1, (body,))


def test_index__with_two_values__is_refused() -> None:
    with pytest.raises(TensorError, match="2 places of an index are values"):
        load(0, load(1, "i"), load(2, "i"))


def test_row__that_is_a_number__is_that_row() -> None:
    body = nest({"j": 2}, store(1, ("j",), load(0, Const(2, i32), "j")))
    kernel = HostKernel(((4, 2), (2,)), (f32, f32), 1, 1, (body,))
    table = np.arange(8, dtype=np.float32).reshape(4, 2)
    np.testing.assert_array_equal(run_kernel(kernel, [table])[0], table[2])


@pytest.mark.parametrize(("count", "copies"), [(9, True), (3, False)])
def test_table__held_column_by_column__is_copied_where_enough_is_looked_up(count: int, copies: bool) -> None:
    rows, width = 12, 8
    buffers, calls = [], []
    for number, (shape, type_) in enumerate([((width, rows), f32), ((count,), i32), ((count, width), f32)]):
        buffers.append(Buffer(number, shape, type_, True, "tio"[number]))
    _, index, out = buffers
    by_column = OperandBinding(0, (((rows, 1),), ((width, rows),)))
    calls.append(BoundKernel(gather_kernel(rows, count, width), (by_column, bind(index), bind(out)), "gather"))
    part_of = (bind(out), bind(index), by_column)
    calls.append(BoundKernel(scatter_kernel(rows, count, width, "add"), part_of, "scatter"))
    form = run_passes(bound_calls(buffers, calls), after="split_dims", check=True)
    assert any(task.name.endswith(".copy") for task in form.tasks) == copies
    rng = np.random.default_rng(6)
    held = rng.integers(-9, 9, (width, rows)).astype(np.float32)
    numbers = rng.integers(-1, rows + 1, count).astype(np.int32)
    part = taken(held.T, numbers)
    storage = {0: held.copy(), 1: numbers, 2: np.zeros((count, width), np.float32)}
    run_plan(plan_native(buffers, calls), storage, 2)
    np.testing.assert_array_equal(storage[2], part)
    np.testing.assert_array_equal(storage[0], combined(held.T, numbers, part, "add").T)
