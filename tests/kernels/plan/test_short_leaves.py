"""Leaves that are not worth to be shared among threads."""

from __future__ import annotations

import pytest

from abele.kernels import BoundKernel, Buffer, HostKernel, bind, copy_kernel, plan_native
from abele.kernels.nest.ir import load, nest, store
from abele.numerics import f32
from abele.runtime.control.leaf import MEETING_CYCLES


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
