"""Loop digits that nothing keeps apart become one dim again."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from kernels_kit import form_after, run_plan

from abele.kernels import BoundKernel, Buffer, HostKernel, OperandBinding, bind, copy_kernel, plan_native
from abele.kernels.nest.ir import Cast, Index, affine, load, nest, store
from abele.kernels.plan.reference import evaluate_form
from abele.kernels.target import HostTarget
from abele.kernels.tasks.join_dims import join_dims
from abele.kernels.tasks.program import Put, Ref, Space, Task, TaskProgram
from abele.numerics import f32

WHOLE = ((64, 8),), ((8, 1),)
IN_BLOCKS = ((4, 128), (16, 1)), ((8, 16),)
"""64 samples of 8 features, stored in blocks of 16 samples with the features in between."""


def joined(buffers: list[Buffer], calls: list[BoundKernel]) -> TaskProgram:
    return form_after("join_dims", buffers, calls)


def result(buffers: list[Buffer], calls: list[BoundKernel], data: np.ndarray, out: Buffer) -> np.ndarray:
    storage = {b.id: np.zeros(b.shape, b.type.np) for b in buffers if b.pinned}
    storage[0][...] = data
    run_plan(plan_native(buffers, calls), storage)
    return storage[out.id]


def through(middle: Buffer, factors: tuple[tuple[tuple[int, int], ...], ...]) -> tuple[list[Buffer], list[BoundKernel]]:
    """x, then ``middle`` as ``factors`` see it, then y."""
    x, y = Buffer(0, (64, 8), f32, True, "x"), Buffer(1, (64, 8), f32, True, "y")
    kernel, view = copy_kernel((64, 8), f32), OperandBinding(middle.id, factors)
    return [x, y, middle], [BoundKernel(kernel, (bind(x), view), "in"), BoundKernel(kernel, (view, bind(y)), "out")]


def test_join_dims__samples_stored_in_blocks_by_the_plan_alone__stay_whole():
    buffers, calls = through(Buffer(2, (4, 8, 16), f32, False, "middle"), IN_BLOCKS)
    assert [s.shape for s in form_after("split_dims", buffers, calls).spaces] == [(4, 16, 8), (4, 8, 16), (4, 16, 8)]
    program = joined(buffers, calls)
    assert [s.shape for s in program.spaces] == [(64, 8), (64, 8), (64, 8)]
    assert [t.parallel for t in program.tasks] == [(("d0.1", 64), ("d1", 8))] * 2
    data = np.arange(512, dtype=np.float32).reshape(64, 8)
    np.testing.assert_array_equal(result(buffers, calls, data, buffers[1]), data)


def test_join_dims__samples_that_the_caller_keeps_in_blocks__stay_split():
    buffers, calls = through(Buffer(2, (4, 8, 16), f32, True, "middle"), IN_BLOCKS)
    assert [s.shape for s in joined(buffers, calls).spaces] == [(4, 16, 8), (4, 8, 16), (4, 16, 8)]
    data = np.arange(512, dtype=np.float32).reshape(64, 8)
    np.testing.assert_array_equal(result(buffers, calls, data, buffers[1]), data)


def test_join_dims__two_loops_that_run_side_by_side__stay_two():
    buffers, calls = through(Buffer(2, (8, 64), f32, False, "middle"), (((64, 1),), ((8, 64),)))
    assert [s.shape for s in joined(buffers, calls).spaces] == [(64, 8), (8, 64), (64, 8)]


def test_join_dims__positions_bounds_and_reductions__count_through_both_digits():
    x, y = Buffer(0, (64, 8), f32, True, "x"), Buffer(1, (64,), f32, True, "y")
    middle, total = Buffer(2, (4, 8, 16), f32, False, "middle"), Buffer(3, (1,), f32, True, "total")
    # y[i] = sum_j middle[i, j] + i; total = sum over i and j of middle[i, j], doubled below row 40
    rows = store(1, ("i",), load(0, "i", "j"), "add")
    count = store(1, ("i",), load(0, "i") + Cast(f32, Index(affine("i"))))
    doubled = store(1, (affine(const=0),), load(0, "i", "j"), "add")
    below = store(1, (affine(const=0),), load(0, "i", "j", fill=0.0), "add", accumulate=True)
    view, extents = OperandBinding(2, IN_BLOCKS), {"i": 64, "j": 8}
    head = HostKernel(((40, 8), (1,)), (f32, f32), 1, 1, (nest(extents, below),))
    calls = [
        BoundKernel(copy_kernel((64, 8), f32), (bind(x), view), "in"),
        BoundKernel(HostKernel(((64, 8), (64,)), (f32, f32), 1, 1, (nest(extents, rows),)), (view, bind(y)), "rows"),
        BoundKernel(
            HostKernel(((64,), (64,)), (f32, f32), 1, 1, (nest({"i": 64}, count),)), (bind(y), bind(y)), "count"
        ),
        BoundKernel(
            HostKernel(((64, 8), (1,)), (f32, f32), 1, 1, (nest(extents, doubled),)), (view, bind(total)), "all"
        ),
        BoundKernel(head, (OperandBinding(0, (((40, 8),), ((8, 1),))), bind(total)), "head"),
    ]
    buffers = [x, y, middle, total]
    data = np.arange(512, dtype=np.float32).reshape(64, 8) % 7
    np.testing.assert_array_equal(result(buffers, calls, data, y), data.sum(1) + np.arange(64))
    np.testing.assert_array_equal(result(buffers, calls, data, total), [data.sum() + data[:40].sum()])


def in_groups(rows: int, columns: int, group: int) -> tuple[tuple[int, ...], tuple[tuple[tuple[int, int], ...], ...]]:
    """Shape of a buffer of rows in groups, the columns in between, and its factors as rows by columns."""
    groups = rows // group
    return (groups, columns, group), (((groups, columns * group), (group, 1)), ((columns, group),))


def scores(x: Buffer, view: OperandBinding, out: Buffer) -> BoundKernel:
    """out[i, j] = sum_k x[i, k] * x[j, k]."""
    (rows, _), columns = out.shape, x.shape[1]
    product = store(2, ("i", "j"), load(0, "i", "k") * load(1, "j", "k"), "add")
    shapes = ((rows, columns), (rows, columns), (rows, rows))
    kernel = HostKernel(shapes, (f32,) * 3, 2, 1, (nest({"i": rows, "j": rows, "k": columns}, product),))
    return BoundKernel(kernel, (view, view, bind(out)), "scores")


def test_join_dims__rows_that_a_result_has_twice__stay_whole():
    x, out = Buffer(0, (12, 6), f32, True, "x"), Buffer(1, (12, 12), f32, True, "out")
    shape, factors = in_groups(12, 6, 4)
    middle, view = Buffer(2, shape, f32, False, "middle"), OperandBinding(2, factors)
    calls = [BoundKernel(copy_kernel((12, 6), f32), (bind(x), view), "in"), scores(middle, view, out)]
    assert (3, 4, 3, 4) in [s.shape for s in form_after("split_dims", [x, out, middle], calls).spaces]
    assert [s.shape for s in joined([x, out, middle], calls).spaces] == [(12, 6), (12, 6), (12, 12)]
    data = np.arange(72, dtype=np.float32).reshape(12, 6) % 5
    np.testing.assert_array_equal(result([x, out, middle], calls, data, out), data @ data.T)


def regrouped(sequences: int, tokens: int, group: int) -> TaskProgram:
    """Rows of sequences, copied by address into rows of groups; both split where the two numbers of rows agree."""
    rows, step = sequences * tokens, math.gcd(tokens, group)
    shapes = (sequences, tokens // step, step), (rows // step, step), (rows // group, group // step, step)
    spaces = [Space(n, shape, f32, n, f"x{n}") for n, shape in enumerate(shapes)]
    spaces[1] = replace(spaces[1], buffer=None)
    tasks = []
    for outer, (source, target) in zip((0, 2), ((0, 1), (1, 2)), strict=True):
        names = ("d0", "d1.1", "d1.0")
        whole = tuple(map(affine, names))
        by_address = affine("d0") * shapes[outer][1] + affine("d1.1"), affine("d1.0")
        read, written = (whole, by_address) if source == outer else (by_address, whole)
        dims = tuple(zip(names, shapes[outer], strict=True))
        put = Put(target, written, Ref(source, read))
        tasks.append(Task(f"to {target}", dims, (), (), (put,), digits=(names[1:],)))
    return TaskProgram(tuple(spaces), tuple(tasks), HostTarget(lanes=8))


@given(st.integers(1, 6), st.integers(1, 24), st.integers(1, 24))
def test_join_dims__groups_of_rows_across_sequences__leave_tokens_and_groups_whole(number, tokens, group):
    sequences = number * group // math.gcd(tokens, group)
    before = regrouped(sequences, tokens, group)
    after = join_dims(before)
    rows = sequences * tokens
    if math.gcd(tokens, group) < min(tokens, group):
        assert [s.shape for s in after.spaces] == [(sequences, tokens), (rows,), (rows // group, group)]
    data = np.arange(rows, dtype=np.float32)
    for program in (before, after):
        start = {n: np.zeros(rows, np.float32) for n in (0, 2)} | {0: data}
        np.testing.assert_array_equal(evaluate_form(program, start)[2].reshape(-1), data)


def test_join_dims__a_part_of_a_dim_beside_a_whole_one__leaves_both():
    # Queries, keys and values are slices of one array: its heads are a dim of their own in each.
    x, y = Buffer(0, (3, 4, 8), f32, True, "x"), Buffer(1, (4, 8), f32, True, "y")
    all_of_it = Buffer(2, (12, 8), f32, False, "all")
    keys = OperandBinding(2, (((4, 8),), ((8, 1),)), 32)
    calls = [
        BoundKernel(copy_kernel((12, 8), f32), (OperandBinding(0, (((12, 8),), ((8, 1),))), bind(all_of_it)), "in"),
        BoundKernel(copy_kernel((4, 8), f32), (keys, bind(y)), "keys"),
    ]
    program = joined([x, y, all_of_it], calls)
    assert [s.shape for s in program.spaces] == [(3, 4, 8), (3, 4, 8), (4, 8)]
    data = np.arange(96, dtype=np.float32).reshape(3, 4, 8)
    np.testing.assert_array_equal(result([x, y, all_of_it], calls, data, y), data[1])
