"""Permuted dims: squares of elements are transposed in registers, what is left over lane by lane."""

from __future__ import annotations

import numpy as np
import pytest
from guarded_memory import check
from kernels_kit import form_after, run_kernel

from abele.kernels import BoundKernel, Buffer, HostKernel, bind
from abele.kernels.nest.ir import load, nest, store
from abele.kernels.target import HostTarget
from abele.numerics import ElementType, bf16, f16, f32, i32, u8

CASES = [
    ((32, 48), "ba"), ((33, 50), "ba"), ((17, 16), "ba"), ((5, 7), "ba"),
    ((3, 35, 64), "acb"), ((20, 3, 33), "cba"), ((2, 21, 3, 40), "adcb"), ((2, 3, 19, 37), "dcab"),
]  # fmt: skip


def permuted(shape: tuple[int, ...], order: str, type_: ElementType, shift: float = 0) -> HostKernel:
    """``shape`` with its dims a, b, c, … in ``order``, and a term that leaves more to do than to move."""
    names = "abcd"[: len(shape)]
    extents = dict(zip(names, shape, strict=True))
    value = load(0, *names) + shift if shift else load(0, *names)
    body = nest(extents, store(1, tuple(order), value))
    return HostKernel((shape, tuple(extents[d] for d in order)), (type_, type_), 1, 1, (body,))


def data(shape: tuple[int, ...], type_: ElementType) -> np.ndarray:
    return (np.arange(np.prod(shape)).reshape(shape) % 251).astype(type_.np)


@pytest.mark.parametrize(("shape", "order"), CASES)
@pytest.mark.parametrize("type_", [f32, f16, bf16, i32, u8], ids=str)
def test_permuted__any_order_and_type__numpy_agrees(shape: tuple[int, ...], order: str, type_: ElementType) -> None:
    x = data(shape, type_)
    (got,) = run_kernel(permuted(shape, order, type_), [x], threads=2)
    np.testing.assert_array_equal(got, np.transpose(x, ["abcd".index(d) for d in order]))


@pytest.mark.parametrize(("shape", "order"), CASES)
@pytest.mark.parametrize("at_end", [False, True])
def test_permuted__at_the_edge_of_memory__touches_only_operands(
    shape: tuple[int, ...], order: str, at_end: bool
) -> None:
    check(permuted(shape, order, f32, 1.0), [data(shape, f32)], at_end=at_end)


def test_permuted__large__runs_in_squares_of_lanes() -> None:
    kernel = permuted((64, 96), "ba", f32)
    buffers = [Buffer(n, shape, f32, True, f"b{n}") for n, shape in enumerate(kernel.shapes)]
    call = BoundKernel(kernel, tuple(map(bind, buffers)), "turn")
    program = form_after("choose_schedules", buffers, [call], HostTarget(lanes=16, registers=32))
    schedule = program.leaves[0].functions[0].schedule
    assert (schedule.lane, schedule.lanes, schedule.tile) == ("a", 16, (("b", 16),))
