"""Long contractions run in parts, one after the other, that lie together in memory."""

from __future__ import annotations

import math

import numpy as np
import pytest
from kernels_kit import form_after, run_kernel
from products_kit import values

from abele.kernels import BoundKernel, Buffer, HostKernel, bind
from abele.kernels.nest.ir import load, nest, store
from abele.kernels.target import HostTarget
from abele.numerics import f32


def blocked(groups: int) -> HostKernel:
    """A linear layer of 32 rows whose weights lie in blocks of 8 x 8, with ``groups`` blocks of inputs."""
    extents = {"b": 32, "p": 25, "q": 8, "c": groups, "d": 8}
    product = load(0, "b", "c", "d") * load(1, "p", "c", "q", "d")
    shapes = ((32, groups, 8), (25, groups, 8, 8), (32, 25, 8))
    return HostKernel(shapes, (f32,) * 3, 2, 1, (nest(extents, store(2, ("b", "p", "q"), product, "add")),))


@pytest.mark.parametrize("groups", [125, 251])
def test_parts__of_sums_over_blocks__never_cut_within_blocks(groups: int) -> None:
    kernel = blocked(groups)
    buffers = [Buffer(n, s, t, True, f"b{n}") for n, (s, t) in enumerate(zip(kernel.shapes, kernel.types, strict=True))]
    calls = [BoundKernel(kernel, tuple(map(bind, buffers)), "p")]
    program = form_after("split_reductions", buffers, calls, HostTarget(lanes=16, registers=32))
    reduced = [dict(task.reduced) for leaf in program.leaves for task in leaf.tasks]
    # Neither number of blocks has a divisor of a part's size; a thousand elements are too few for uneven parts.
    assert all(r["d"] == 8 for r in reduced)
    assert (len(reduced) > 1) == (8 * groups >= 1024)
    assert sum(math.prod(r.values()) for r in reduced) == 8 * groups
    x, weights = values(kernel)
    wanted = np.einsum("bcd,pcqd->bpq", x.astype(np.float64), weights.astype(np.float64))
    np.testing.assert_allclose(run_kernel(kernel, [x, weights], 2)[0], wanted, rtol=0, atol=1e-3)
