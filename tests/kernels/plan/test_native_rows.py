"""Functions along rows: what passes between their tasks lies in small blocks of rows, and never outside operands."""

from __future__ import annotations

import numpy as np
import pytest
from guarded_memory import check
from kernels_kit import run_kernel

from abele.kernels import BoundKernel, Buffer, HostKernel, bind, plan_native
from abele.kernels.nest.ir import affine, apply, load, nest, store
from abele.kernels.nest.reference import evaluate
from abele.numerics import ElementType, f16, f32

TYPES = {"f32": f32, "f16": f16}
SHAPES = [(3, 5), (33, 17), (50, 100), (37, 1024), (6, 5000)]


def softmax(rows: int, columns: int, type_: ElementType) -> HostKernel:
    """Softmax with the powers in a temporary of their own."""
    space, at = {"r": rows, "c": columns}, ("r", "c")
    shape = (rows, columns)
    return HostKernel(
        (shape, shape, (rows,), (rows,), shape),
        (type_, type_, f32, f32, f32),
        1,
        1,
        (
            nest(space, store(2, ("r",), load(0, *at), "max")),
            nest(space, store(4, at, apply("exp", load(0, *at) - load(2, "r")))),
            nest(space, store(3, ("r",), load(4, *at), "add")),
            nest(space, store(1, at, load(4, *at) * apply("inv", load(3, "r")))),
        ),
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("at_end", [False, True])
def test_rows__any_number_and_length__touch_only_operands(shape: tuple[int, int], kind: str, at_end: bool) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(TYPES[kind].np)
    check(softmax(*shape, TYPES[kind]), [x], at_end=at_end)


@pytest.mark.parametrize("shape", SHAPES)
def test_rows__several_threads__same_bits_as_one(shape: tuple[int, int]) -> None:
    kernel = softmax(*shape, f32)
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    one, three = (run_kernel(kernel, [x], threads) for threads in (1, 3))
    np.testing.assert_array_equal(one[0], three[0])


def test_rows__longer_than_a_block__float64_agrees() -> None:
    x = np.random.default_rng(2).normal(size=(9, 20000)).astype(np.float32)
    (got,) = run_kernel(softmax(9, 20000, f32), [x])
    powers = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(got, powers / powers.sum(axis=1, keepdims=True), rtol=2e-6)


def test_rows__long_ones__powers_need_room_for_few_rows_only() -> None:
    kernel = softmax(512, 1024, f32)
    buffers = [Buffer(n, kernel.shapes[n], f32, True, f"b{n}") for n in range(2)]
    plan = plan_native(buffers, [BoundKernel(kernel, tuple(map(bind, buffers)), "softmax")])
    assert plan.scratch_bytes < 16 << 10
    assert plan.arena_bytes < 1 << 16


@pytest.mark.parametrize("batch", [4, 16, 33])
def test_rows__large_samples_read_through_windows__agrees_with_the_definition(batch: int) -> None:
    size = 40
    field, out = (batch, size, size, 8), (batch, size, size, 8)
    i, j = affine("y", "a", const=-1), affine("x", "b", const=-1)
    body = nest(
        {"n": batch, "y": size, "x": size, "c": 8, "a": 3, "b": 3},
        store(2, ("n", "y", "x", "c"), load(0, "n", i, j, "c", fill=0.0) * load(1, "a", "b", "c"), "add"),
    )
    kernel = HostKernel((field, (3, 3, 8), out), (f32,) * 3, 2, 1, (body,))
    rng = np.random.default_rng(5)
    inputs = [rng.integers(-3, 4, shape).astype(np.float32) for shape in kernel.shapes[:2]]
    np.testing.assert_array_equal(run_kernel(kernel, inputs)[0], evaluate(kernel, inputs)[0])
