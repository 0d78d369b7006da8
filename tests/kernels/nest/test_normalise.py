"""Kernels in normal form, and what it tells of them."""

from __future__ import annotations

import pytest

from abele.kernels import BoundKernel, Buffer, HostKernel, bind
from abele.kernels.nest.ir import Nest, affine, load, nest, store
from abele.kernels.nest.normalise import normalised, overwrites
from abele.numerics import f32

SUMS = nest({"i": 6, "k": 5}, store(1, ("i",), load(0, "i", "k"), "add"))
ONTO = nest({"i": 6, "k": 5}, store(1, ("i",), load(0, "i", "k"), "add", accumulate=True))
PART = nest({"i": 5}, store(1, ("i",), load(0, "i", 0)))
DIGITS = nest({"a": 2, "b": 3}, store(1, (affine(("a", 3), "b"),), load(0, affine(("a", 3), "b"), 1)))
AGAIN = nest({"i": 6}, store(1, ("i",), load(1, "i") * 2.0))


@pytest.mark.parametrize(
    ("nests", "wanted"),
    [
        ([SUMS], True),
        ([ONTO], False),
        ([PART], False),
        ([PART, SUMS], False),
        ([DIGITS], True),
        ([AGAIN, SUMS], False),
        ([SUMS, AGAIN, ONTO], True),
    ],
)
def test_overwrites__of_an_output__is_whether_old_values_can_matter(nests: list[Nest], wanted: bool) -> None:
    kernel = HostKernel(((6, 5), (6,)), (f32,) * 2, 1, 1, tuple(nests))
    buffers = [Buffer(n, shape, f32, name=f"b{n}") for n, shape in enumerate(kernel.shapes)]
    call = normalised(BoundKernel(kernel, tuple(map(bind, buffers))))
    assert overwrites(call.kernel, 1) == wanted
