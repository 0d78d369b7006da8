"""Permuted dims: squares of elements are transposed in registers, what is left over lane by lane."""

from __future__ import annotations

import numpy as np
import pytest
from guarded_memory import check
from kernels_kit import form_after, run_kernel

from abele.kernels import BoundKernel, Buffer, HostKernel, bind
from abele.kernels.nest.ir import affine, load, nest, store
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


def pool(pixels: int, channels: int, type_: ElementType, combine: str = "max", accumulate: bool = False) -> HostKernel:
    """Two neighbours each out of pixels of channels combined, with results in channels of pixels."""
    window = load(0, affine(("p", 2), "k"), "c")
    body = nest({"c": channels, "p": pixels, "k": 2}, store(1, ("c", "p"), window, combine, accumulate=accumulate))
    return HostKernel(((2 * pixels, channels), (channels, pixels)), (type_, type_), 1, 1, (body,))


POOLS = [(64, 32), (64, 19), (21, 32), (37, 21), (16, 16), (7, 5), (128, 3)]


@pytest.mark.parametrize(("pixels", "channels"), POOLS)
@pytest.mark.parametrize("type_", [f32, f16, bf16, i32, u8], ids=str)
def test_pool__results_across_the_lanes__numpy_agrees(pixels: int, channels: int, type_: ElementType) -> None:
    x = data((2 * pixels, channels), type_)
    (got,) = run_kernel(pool(pixels, channels, type_), [x], threads=2)
    np.testing.assert_array_equal(got, x.reshape(pixels, 2, channels).max(1).T)


@pytest.mark.parametrize(("pixels", "channels"), POOLS)
def test_pool__results_across_the_lanes_added_to_what_is_there__numpy_agrees(pixels: int, channels: int) -> None:
    x, before = data((2 * pixels, channels), f32), data((channels, pixels), f32)
    (got,) = run_kernel(pool(pixels, channels, f32, "add", accumulate=True), [x, before], threads=2)
    np.testing.assert_array_equal(got, before + x.reshape(pixels, 2, channels).sum(1).T)


@pytest.mark.parametrize(("pixels", "channels"), POOLS)
@pytest.mark.parametrize("at_end", [False, True])
def test_pool__at_the_edge_of_memory__touches_only_operands(pixels: int, channels: int, at_end: bool) -> None:
    check(pool(pixels, channels, f32), [data((2 * pixels, channels), f32)], at_end=at_end)


@pytest.mark.parametrize(("lanes", "registers"), [(8, 16), (16, 32)])
def test_pool__with_channels_side_by_side__stores_squares(lanes: int, registers: int) -> None:
    kernel = pool(2048, 64, f32)
    buffers = [Buffer(n, shape, f32, True, f"b{n}") for n, shape in enumerate(kernel.shapes)]
    call = BoundKernel(kernel, tuple(map(bind, buffers)), "pool")
    program = form_after("choose_schedules", buffers, [call], HostTarget(lanes=lanes, registers=registers))
    schedule = program.leaves[0].functions[0].schedule
    assert (schedule.lane, schedule.tile) == ("c", (("p", lanes),))
