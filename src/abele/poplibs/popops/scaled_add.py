"""Scaled addition: the update step of most training algorithms."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.machine import Ipu
from abele.numerics import ElementType
from abele.poplibs.popops.expr import Expr, ExprLike, PlaceHolder
from abele.poplibs.popops.fused import fuse
from abele.poplibs.popops.map import apply_fused, map_with_output

Int64 = npt.NDArray[np.int64]
Scale = float | Tensor

SUPERVISOR_CYCLES = 21 + 11 + 7 + 12 + 6
SUBTRACT_CYCLES = 7
AXPBY_CYCLES = 12
"""Cycles before the workers start, and what subtraction and a scale of the first operand add.
Source: machine reference §4.8 (ScaledAdd)."""
LOOP_SLOTS = {(32, 32): 3, (16, 16): 3, (32, 16): 4, (16, 32): 5}
"""Slots of a vector by bits of the two operands. Source: machine reference §4.8 (ScaledAdd)."""


def scaled_add_to(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    scale_b: Scale,
    prog: Sequence,
    *,
    scale_a: Scale | None = None,
    name: str = "scaled_add_to",
) -> None:
    """a ← scale_a·a + scale_b·b, in place.

    Args:
        graph: Where vertices are made.
        a: Overwritten.
        b: Broadcasts to ``a``.
        scale_b: A number or a tensor of one element.
        prog: Sequence that the step is appended to.
        scale_a: As ``scale_b``; 1 when left out.
        name: Name of the step.

    Raises:
        TensorError: A scale of more than one element, or ``b`` does not broadcast to ``a``.
    """
    _scaled(graph, a, b, scale_b, prog, scale_a, 1.0, name)


def scaled_subtract_from(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    scale_b: Scale,
    prog: Sequence,
    *,
    scale_a: Scale | None = None,
    name: str = "scaled_subtract_from",
) -> None:
    """a ← scale_a·a − scale_b·b, in place; see :func:`scaled_add_to`."""
    _scaled(graph, a, b, scale_b, prog, scale_a, -1.0, name)


def _scaled(
    graph: Graph, a: Tensor, b: Tensor, scale_b: Scale, prog: Sequence, scale_a: Scale | None, sign: float, name: str
) -> None:
    tensors = [a, b]
    first: Expr = PlaceHolder(1)
    if scale_a is not None:
        first = _factor(scale_a, tensors, name) * first
    term = _factor(scale_b, tensors, name) * PlaceHolder(2)
    expression = first + term if sign > 0 else first - term
    if b.shape != a.shape or not (a.dtype.is_float and b.dtype.is_float):
        map_with_output(graph, expression, tensors, a, prog, name)
        return
    fused = fuse([expression], tuple(t.dtype for t in tensors), [a.dtype])

    def cycles(size: Int64, ipu: Ipu) -> Int64:
        return scaled_add_cycles(size, a.dtype, b.dtype, ipu, subtract=sign < 0, scales_both=scale_a is not None)

    library, base = f"popops.{name}", "SupervisorVertex"
    apply_fused(graph, fused, tensors, [a], prog, name, library=library, cycles=cycles, base=base)


def scaled_add_cycles(
    size: Int64, a: ElementType, b: ElementType, ipu: Ipu, *, subtract: bool = False, scales_both: bool = False
) -> Int64:
    """Tile cycles of a scaled addition of ``size`` elements of types ``a`` and ``b``.

    A supervisor vertex, whose own code starts the workers. Source: machine reference §4.8 (ScaledAdd); with the launch
    of a compute set within 1 % of silicon, §4.0.
    """
    vector = ipu.vector_width(a)
    loops = size // vector // ipu.num_workers
    slots = LOOP_SLOTS[a.bits, b.bits]
    worker = 15 + 6 + slots * np.maximum(loops - 1, 0) + 4 + 2 * (size % vector > 0)
    supervisor = SUPERVISOR_CYCLES + SUBTRACT_CYCLES * subtract + AXPBY_CYCLES * scales_both
    return np.asarray(supervisor + ipu.num_workers * worker, np.int64)


def _factor(scale: Scale, tensors: list[Tensor], name: str) -> ExprLike:
    if not isinstance(scale, Tensor):
        return float(scale)
    if scale.size != 1:
        raise TensorError(f"{name}: the scale {scale!r} has {scale.size} elements, it must be one")
    tensors.append(scale.reshape(()))
    return PlaceHolder(len(tensors))
