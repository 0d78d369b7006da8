"""Leaves that are not worth to be shared among threads."""

from __future__ import annotations

import numpy as np
import pytest
from kernels_kit import run_plan

from abele.kernels import BoundKernel, Buffer, HostKernel, bind, copy_kernel, plan_native
from abele.kernels.nest.ir import load, nest, store
from abele.kernels.plan.native_plan import MEETING_CYCLES
from abele.numerics import f32, i32


def is_short(kernel: HostKernel) -> bool:
    buffers = [Buffer(n, shape, f32, True, f"b{n}") for n, shape in enumerate(kernel.shapes)]
    (leaf,) = plan_native(buffers, [BoundKernel(kernel, tuple(map(bind, buffers)), "call")]).leaves
    return leaf.cycles <= MEETING_CYCLES


def product(rows: int) -> HostKernel:
    body = nest({"i": rows, "j": 10, "k": 64}, store(2, ("i", "j"), load(0, "i", "k") * load(1, "k", "j"), "add"))
    return HostKernel(((rows, 64), (64, 10), (rows, 10)), (f32,) * 3, 2, 1, (body,))


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (product(4), True),
        (product(4000), False),
        (copy_kernel((100,), f32), True),
        (copy_kernel((1 << 20,), f32), False),
    ],
)
def test_leaf__of_little_work__is_short(kernel: HostKernel, expected: bool) -> None:
    assert is_short(kernel) == expected


def test_short_leaves__one_after_the_other__are_one_for_whoever_has_its_unit() -> None:
    # Rows of rows: whole rows of the first result have to be there before the second takes them.
    body = nest({"i": 6, "j": 3}, store(2, ("i", "j"), load(0, load(1, "i"), "j")))
    taken = HostKernel(((6, 3), (6,), (6, 3)), (f32, i32, f32), 2, 1, (body,))
    a, b, c = (Buffer(n, (6, 3), f32, True, f"b{n}") for n in range(3))
    rows = Buffer(3, (6,), i32, True, "rows")
    calls = [BoundKernel(taken, (bind(x), bind(rows), bind(y)), "take") for x, y in ((a, b), (b, c), (c, a))]
    plan = plan_native([a, b, c, rows], calls)
    (leaf,) = plan.leaves
    assert leaf.units == 1
    assert "one after the other" in plan.listing
    table, order = np.arange(18, dtype=np.float32).reshape(6, 3), np.array([1, 2, 3, 4, 5, 0], np.int32)
    storage = {0: table.copy(), 1: np.zeros_like(table), 2: np.zeros_like(table), 3: order}
    run_plan(plan, storage, threads=2)
    np.testing.assert_array_equal(storage[0], table[order][order][order])
