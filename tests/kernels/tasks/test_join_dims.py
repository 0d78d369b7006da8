"""Loop digits that nothing keeps apart become one dim again."""

from __future__ import annotations

import numpy as np
from kernels_kit import form_after, run_plan

from abele.kernels import BoundKernel, Buffer, HostKernel, OperandBinding, bind, copy_kernel, plan_native
from abele.kernels.nest.ir import Cast, Index, affine, load, nest, store
from abele.kernels.tasks.program import TaskProgram
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
