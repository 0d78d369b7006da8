"""Issue slots of reducing vertices. Source of every formula: machine reference §4.7."""

from __future__ import annotations

import numpy as np

from abele.arrays import Int64
from abele.machine import Ipu
from abele.numerics import ElementType
from abele.poplibs.popops.reductions.ops import ReduceOp

PROLOGUE = 7
"""Entering a vertex."""
REGION_SLOTS = 10
"""Visiting a region of partials in the general vertex."""
SHARE_SLOTS = 12
"""Finding the share of a worker in a vertex that all of them share: two divisions by multiplying, bounds, and
addresses. Guessed: a dozen instructions, as in PopLibs' MultiVertex codelets."""
STRIDED_PROLOGUE = 16
"""Entering the vertex of strided rows."""
LOG_ADD_SLOTS = {16: 13, 32: 23}
"""Combining one vector of logarithms, by bits of an element."""


def accumulators(op: ReduceOp, ipu: Ipu, dtype: ElementType) -> int:
    """Outputs that a vertex accumulates at a time: 8 of f16 and 4 of f32 for sums, half of that for others."""
    return ipu.vector_width(dtype) * (2 if op.wide and dtype.is_float else 1)


def combine_slots(op: ReduceOp, dtype: ElementType) -> int:
    """Slots to combine one vector that is loaded."""
    return LOG_ADD_SLOTS[dtype.bits] if op.combine == "log_add" and dtype.bits in LOG_ADD_SLOTS else 1


def post_slots(dtype: ElementType, out: ElementType) -> int:
    """Slots to store one vector of outputs in the strided vertex."""
    if dtype.bits == 16:
        return 8 if out.bits == 16 else 7
    return 5


def strided(
    rows: Int64, columns: Int64, stride: Int64, ipu: Ipu, op: ReduceOp, dtype: ElementType, out: ElementType
) -> Int64:
    """Rows ``stride`` elements apart, reduced to ``columns`` outputs."""
    together = np.maximum(np.gcd(ipu.vector_width(dtype), stride), 1)
    loops = -(-columns // together)
    each = combine_slots(op, dtype) * np.maximum(rows - 1, 0)
    return np.asarray(STRIDED_PROLOGUE + loops * (3 + post_slots(dtype, out) + 3 + each), np.int64)


def continuous(
    outputs: Int64, partials: Int64, ipu: Ipu, op: ReduceOp, dtype: ElementType, out: ElementType, updates: bool
) -> Int64:
    """``partials`` neighbouring elements reduced to each of ``outputs``, or to the one output that there is."""
    width = ipu.vector_width(dtype)
    vectors = combine_slots(op, dtype) * (partials // width)
    single = 3 + 6 + vectors + 5 + partials % width + 3 + (5 if out.bits == 16 else 0)
    odd = 2 * (partials % width > 0)
    many = PROLOGUE + 10 + outputs * (12 + vectors + odd + (1 if updates else 0))
    return np.asarray(np.where(outputs == 1, single, many), np.int64)


def general(
    outputs: Int64 | int, loops: Int64 | int, regions: Int64, vectors: Int64, ipu: Ipu, op: ReduceOp, dtype: ElementType
) -> Int64:
    """The default vertex, which walks lists of regions.

    Our reading of its terms: each reduction is set up; each vector of outputs starts its accumulators (5, or 3 without
    wide ones) and is stored (1 + 1); each of its regions is visited; each vector in these is loaded and accumulated.

    Args:
        outputs: Reductions of the vertex.
        loops: Vectors of outputs of each.
        regions: Regions of partials of each, int64[n].
        vectors: Vectors of partials of each, int64[n].
        ipu: The chip.
        op: The operation.
        dtype: Element type of the partials.
    """
    width = accumulators(op, ipu, dtype)
    setup = 16 + 6 + 2 * int(np.log2(max(width, 1))) + 2
    loads = max(width // max(ipu.vector_width(dtype), 1), 1)
    vector = 2 * combine_slots(op, dtype) + 2 + loads + 3
    each = setup + loops * ((5 if op.wide else 3) + 1 + 1 + REGION_SLOTS * regions) + vector * vectors
    return np.asarray(PROLOGUE + 26 + outputs * each, np.int64)
