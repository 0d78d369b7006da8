"""Kernels of copies, which the planner and its callers make themselves."""

from __future__ import annotations

from abele.kernels.nest.ir import HostKernel, load, nest, store
from abele.numerics import ElementType


def copy_kernel(shape: tuple[int, ...], type_: ElementType) -> HostKernel:
    """A kernel that copies an operand of ``shape`` and ``type_``."""
    names = [f"d{n}" for n in range(len(shape))]
    body = nest(dict(zip(names, shape, strict=True)), store(1, names, load(0, *names)))
    return HostKernel((shape, shape), (type_, type_), 1, 1, (body,))
