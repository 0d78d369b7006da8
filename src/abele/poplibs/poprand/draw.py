"""Random bits as numbers, and the cost of generating them.

Random bits are a hash of seed, modifier and element number, so they are drawn in any order, by any number of tiles,
workers or host threads, and a gradient draws again what its forward pass drew. The hardware's generators are sequences
with a state per worker: what an element gets from them depends on the tile that it lies on and on all draws before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64
from abele.errors import TensorError, TypeMismatchError
from abele.graph import Graph, Tensor
from abele.graph.program import Steps
from abele.machine import Ipu
from abele.numerics import ElementType, f32, u32
from abele.poplibs.popops.elementwise.map import apply_fused
from abele.poplibs.popops.elementwise.placement import CycleFormula
from abele.poplibs.popops.expr import Cast, Expr, Op
from abele.poplibs.popops.expressions.fused import fuse

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
    if not out.ndim:  # Seeds have a dimension, and nothing has fewer than them.
        inputs, out = [t.reshape((1,)) if not t.ndim else t for t in inputs], out.reshape((1,))
    fused = fuse([expression], tuple(t.dtype for t in inputs), [out.dtype])
    apply_fused(graph, fused, inputs, [out], prog, name, library=f"poprand.{name}", cycles=cycles)


@dataclass(frozen=True)
class DrawCycles:
    """Tile cycles of a generator: ``start`` + 6·``prologue`` + ``slots_per_vector`` for each vector of ``dtype``."""

    start: int
    prologue: int
    slots_per_vector: float
    dtype: ElementType

    def __call__(self, size: Int64, ipu: Ipu) -> Int64:
        """Tile cycles of vertices of ``size`` elements, int64[n]."""
        vectors = -(-size // ipu.vector_width(self.dtype))
        total = self.start + ipu.num_workers * self.prologue + np.ceil(vectors * self.slots_per_vector)
        return np.asarray(total, np.int64)
