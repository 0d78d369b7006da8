"""Random bits as numbers, and what generating them costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence as Steps
from abele.machine import Ipu
from abele.numerics import ElementType, f32, u32
from abele.poplibs.popops.elementwise.map import apply_fused
from abele.poplibs.popops.elementwise.placement import CycleFormula
from abele.poplibs.popops.expr import Cast, Expr, Op
from abele.poplibs.popops.expressions.fused import fuse

Int64 = npt.NDArray[np.int64]

UNIT = 2.0**-24
"""Distance of the values that 24 random bits make in [0, 1): each is an f32 without rounding."""


def unit_interval(bits: Expr) -> Expr:
    """The high 24 of 32 random bits as an f32 in [0, 1)."""
    return Cast(Op("shift_right", bits, 8), f32) * UNIT


def check_seed(seed: Tensor, name: str) -> None:
    """Raise unless ``seed`` is a u32[2].

    Raises:
        TensorError: Another shape.
        TypeMismatchError: Another element type.
    """
    if seed.shape != (2,):
        raise TensorError(f"{name}: the seed {seed!r} has shape {list(seed.shape)}, it must be [2]")
    if seed.dtype != u32:
        raise TypeMismatchError(f"{name}: the seed {seed!r} is {seed.dtype}, it must be u32")


def generate(
    graph: Graph,
    expression: Expr,
    inputs: Sequence[Tensor],
    out: Tensor,
    prog: Steps,
    name: str,
    cycles: CycleFormula,
) -> None:
    """Append the library call that writes a random expression to ``out``."""
    fused = fuse([expression], tuple(t.dtype for t in inputs), [out.dtype])
    apply_fused(graph, fused, inputs, [out], prog, name, library=f"poprand.{name}", cycles=cycles)


def generator_cycles(start: int, prologue: int, slots_per_vector: float, out: Tensor) -> CycleFormula:
    """Tile cycles of a generator: ``start`` + 6·``prologue`` + so many a vector of ``out``."""
    return draw_cycles(start, prologue, slots_per_vector, out.dtype)


def draw_cycles(start: int, prologue: int, slots_per_vector: float, dtype: ElementType) -> CycleFormula:
    """As :func:`generator_cycles`, of elements of ``dtype``."""

    def cycles(size: Int64, ipu: Ipu) -> Int64:
        vectors = -(-size // ipu.vector_width(dtype))
        total = start + ipu.num_workers * prologue + np.ceil(vectors * slots_per_vector)
        return np.asarray(total, np.int64)

    return cycles
