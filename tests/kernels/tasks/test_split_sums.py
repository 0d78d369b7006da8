"""Long sums with few results are split into parts for threads, as many for any number of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels_kit import form_after, run_kernel
from products_kit import expected, linear, values

from abele.kernels import BoundKernel, Buffer, HostKernel, bind
from abele.kernels.nest.ir import load, nest, store
from abele.kernels.target import HostTarget
from abele.kernels.tasks.split_sums import LONGEST, MIN_PART, THREADS
from abele.numerics import f32
from support.examples import examples

CPU = HostTarget(lanes=16, registers=32)


def tasks_of(kernel: HostKernel, name: str = "split_sums"):
    buffers = [Buffer(n, s, t, True, f"b{n}") for n, (s, t) in enumerate(zip(kernel.shapes, kernel.types, strict=True))]
    program = form_after(name, buffers, [BoundKernel(kernel, tuple(map(bind, buffers)), "p")], CPU)
    return [task for leaf in program.leaves for task in leaf.tasks]


def test_sum__of_few_results__has_parts_for_sixteen_threads() -> None:
    first, combine = tasks_of(linear(12, 16, 16 * 2048, left="ki", right="kj"))
    assert first.parallel[0] == ("p.part", THREADS)
    assert dict(first.reduced) == {"k": 2048}
    assert combine.reduced == (("p.part", THREADS),)


@pytest.mark.parametrize("shape", [(512, 512, 4096), (12, 16, MIN_PART), (4, 4, 2 * MIN_PART)])
def test_sum__of_enough_results_or_little_work__stays_whole(shape: tuple[int, int, int]) -> None:
    assert [dict(t.parallel).get("p.part") for t in tasks_of(linear(*shape))] == [None]


def test_sum__that_is_longer_than_parts_in_a_row__is_cut_for_them() -> None:
    kernel = linear(100, 100, 2 * LONGEST + 2)
    parts = [t for t in tasks_of(kernel) if "p.part" in dict(t.parallel)]
    assert all(math.prod(n for _, n in t.reduced) <= LONGEST for t in parts)
    assert len(tasks_of(kernel, "split_reductions")) > len(parts) + 1


def test_sum__over_fields__is_cut_along_the_outermost_dim_that_is_long_enough() -> None:
    # Gradients of weights of 1 × 1: a part is next to each other in memory, not every so manyth column.
    extents = {"n": 16, "y": 56, "x": 56, "i": 64, "o": 256}
    product = load(0, "n", "y", "x", "i") * load(1, "n", "y", "x", "o")
    shapes = ((16, 56, 56, 64), (16, 56, 56, 256), (64, 256))
    kernel = HostKernel(shapes, (f32,) * 3, 2, 1, (nest(extents, store(2, ("i", "o"), product, "add")),))
    parts = [t for t in tasks_of(kernel, "split_reductions") if "p.part" in dict(t.parallel)]
    assert parts
    assert all(dict(t.reduced)["x"] == 56 for t in parts)
    arrays = values(kernel)
    wanted = np.tensordot(*(a.astype(np.float64) for a in arrays), axes=((0, 1, 2), (0, 1, 2)))
    np.testing.assert_allclose(run_kernel(kernel, arrays, 3)[0], wanted, rtol=0, atol=2e-3)


@examples(4)
@given(
    shape=st.tuples(st.integers(1, 40), st.integers(2, 40), st.integers(3000, 40000)),
    left=st.sampled_from(["ik", "ki"]),
    right=st.sampled_from(["kj", "jk"]),
)
def test_sum__of_any_length__agrees_with_64_bits_and_has_the_same_bits_on_all_threads(shape, left, right) -> None:
    kernel = linear(*shape, left=left, right=right)
    arrays = values(kernel)
    first, *others = (run_kernel(kernel, arrays, threads)[0] for threads in (1, 2, 5))
    assert all(np.array_equal(first, other) for other in others)
    np.testing.assert_allclose(first, expected(kernel, arrays, left, right), rtol=0, atol=1e-5 * np.sqrt(shape[2]) * 3)
