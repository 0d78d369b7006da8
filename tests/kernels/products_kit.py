"""Kernels that are matrix products, with values for them and what they give in 64 bits."""

import numpy as np

from abele.kernels import BoundKernel, Buffer, HostKernel, bind, plan_native
from abele.kernels.nest.ir import load, nest, store
from abele.numerics import f32

RNG = np.random.default_rng(20)


def linear(m, n, k, *, left="ik", right="kj", out="ij", types=(f32, f32, f32)):
    """A product whose operands have their dims in the given order."""
    extents = {"i": m, "j": n, "k": k}
    shapes = tuple(tuple(extents[d] for d in dims) for dims in (left, right, out))
    value = load(0, *left) * load(1, *right)
    return HostKernel(shapes, types, 2, 1, (nest(extents, store(2, tuple(out), value, "add")),))


def values(kernel, scale=1.0):
    return [
        (RNG.standard_normal(kernel.shapes[n]) * scale).astype(kernel.types[n].np) for n in range(kernel.num_inputs)
    ]


def expected(kernel, arrays, left="ik", right="kj", out="ij"):
    wide = [a.astype(np.float64) for a in arrays]
    return np.einsum(f"{left},{right}->{out}", *wide)


def listing(kernel):
    buffers = [Buffer(n, s, t, True, f"b{n}") for n, (s, t) in enumerate(zip(kernel.shapes, kernel.types, strict=True))]
    return plan_native(buffers, [BoundKernel(kernel, tuple(map(bind, buffers)), "product")]).listing
