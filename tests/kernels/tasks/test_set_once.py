"""Elements that one task alone adds to a start value are set."""

from __future__ import annotations

import numpy as np
import pytest
from kernels_kit import form_after, run_kernel

from abele.kernels import BoundKernel, Buffer, HostKernel, bind
from abele.kernels.nest.ir import Apply, Nest, Store, affine, as_expr, load, nest
from abele.kernels.tasks.program import Ref, Task, TaskProgram
from abele.numerics import f32


def sums(place: int, extent: int, step: int, *, accumulate: bool) -> Nest:
    """The nest that adds up the columns of an [extent, 3] matrix in every ``step``-th element from ``place`` on."""
    index = (affine(("i", step), const=place),)
    return nest({"i": extent, "k": 3}, Store(1, index, load(0, "i", "k"), "add", accumulate))


def in_classes(size: int, places: tuple[tuple[int, int, int], ...]) -> HostKernel:
    """Sums of rows in classes (place, extent, step) of a vector of ``size`` elements."""
    nests = [sums(*place, accumulate=number > 0) for number, place in enumerate(places)]
    return HostKernel(((8, 3), (size,)), (f32, f32), 1, 1, tuple(nests))


def tasks_of(kernel: HostKernel) -> tuple[Task, ...]:
    buffers = [Buffer(n, s, t, True, f"b{n}") for n, (s, t) in enumerate(zip(kernel.shapes, kernel.types, strict=True))]
    program = form_after("set_once", buffers, [BoundKernel(kernel, tuple(map(bind, buffers)), "p")])
    assert isinstance(program, TaskProgram)
    return program.tasks


def adds(task: Task) -> bool:
    value = task.puts[0].value
    return isinstance(value, Apply) and any(isinstance(a, Ref) and a.space == task.puts[0].space for a in value.args)


def wanted(x: np.ndarray, size: int, places: tuple[tuple[int, int, int], ...]) -> np.ndarray:
    out = np.zeros(size, np.float32)
    for place, extent, step in places:
        out[place : place + step * (extent - 1) + 1 : step] += x[:extent].sum(axis=1)
    return out


@pytest.mark.parametrize(
    ("size", "places", "starts", "added"),
    [
        (16, ((0, 8, 2), (1, 8, 2)), False, 0),  # two classes that reach everything
        (15, ((0, 8, 2), (1, 7, 2)), False, 0),  # of unequal extents
        (16, ((0, 8, 2),), True, 0),  # half is left
        (19, ((0, 6, 3), (2, 5, 3)), True, 0),  # one of three classes is left
        (16, ((0, 8, 1), (8, 8, 1)), False, 0),  # halves one after the other
        (16, ((0, 8, 2), (2, 7, 2)), True, 2),  # they meet
        (20, ((0, 6, 3), (1, 7, 2)), True, 2),  # steps without a common divisor
    ],
)
def test_classes__that_never_meet__are_set(
    size: int, places: tuple[tuple[int, int, int], ...], starts: bool, added: int
) -> None:
    kernel = in_classes(size, places)
    tasks = tasks_of(kernel)
    assert (len(tasks) == len(places) + 1) == starts
    assert sum(map(adds, tasks)) == added
    x = np.random.default_rng(0).integers(-9, 9, (8, 3)).astype(np.float32)
    np.testing.assert_array_equal(run_kernel(kernel, [x], 1)[0], wanted(x, size, places))


def test_classes__after_a_start_value_that_changes_sums__still_add() -> None:
    first = nest({"i": 16}, Store(1, (affine("i"),), as_expr(1.0)))
    both = [sums(place, 8, 2, accumulate=True) for place in (0, 1)]
    kernel = HostKernel(((8, 3), (16,)), (f32, f32), 1, 1, (first, *both))
    assert sum(map(adds, tasks_of(kernel))) == 2
    x = np.ones((8, 3), np.float32)
    np.testing.assert_array_equal(run_kernel(kernel, [x], 1)[0], np.full(16, 4.0))


def test_classes__read_before_the_last__leave_it_adding() -> None:
    read = nest({"i": 16}, Store(2, (affine("i"),), load(1, "i")))
    nests = (sums(0, 8, 2, accumulate=False), read, sums(1, 8, 2, accumulate=True))
    kernel = HostKernel(((8, 3), (16,), (16,)), (f32,) * 3, 1, 2, nests)
    x = np.random.default_rng(0).integers(-9, 9, (8, 3)).astype(np.float32)
    after, before = run_kernel(kernel, [x], 1)
    np.testing.assert_array_equal(before, wanted(x, 16, ((0, 8, 2),)))
    np.testing.assert_array_equal(after, wanted(x, 16, ((0, 8, 2), (1, 8, 2))))
