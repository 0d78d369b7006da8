"""Converting tensors between element types."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.errors import TensorError
from abele.graph import Copy, Graph, Tensor
from abele.graph.program import Sequence
from abele.machine import Ipu
from abele.numerics import ElementType, as_element_type, bool_, f32
from abele.poplibs.popops.elementwise.map import apply_fused, check_writable
from abele.poplibs.popops.expr import Cast, Const, Expr, Op, PlaceHolder, select
from abele.poplibs.popops.expressions.fused import fuse
from abele.poplibs.poputil.layout import clone

Int64 = npt.NDArray[np.int64]

SUPERVISOR_CYCLES = 12
PROLOGUE = 18 + 19
NARROWING = (4, 2)
WIDENING = (2, 1)
BYTES = (4, 14)
BYTES_BACK = (4, 9)
OTHER = (1, 2)
"""Supervisor cycles, worker slots before the loop, and (elements, slots) of a loop: f32 to f16, f16 to f32, f16 to
8-bit integers and back, all others. Source: machine reference §4.8 (Cast1D)."""


def cast(graph: Graph, tensor: Tensor, dtype: ElementType | str, prog: Sequence, name: str = "cast") -> Tensor:
    """``tensor`` as a new tensor of ``dtype``.

    Narrower floats round to nearest even, and too large ones become infinite. Floats to integers truncate, and those
    out of range become the nearest integer that there is. Integers to narrower ones keep their low bits. To bool,
    everything but zero is true.

    Args:
        graph: Where vertices and the result are made.
        tensor: Any element type that libraries compute with.
        dtype: Element type of the result.
        prog: Sequence that the step is appended to.
        name: Name of the step.

    Raises:
        TypeMismatchError: Libraries do not compute with one of the types.
    """
    dtype = as_element_type(dtype)
    out = clone(graph, tensor, f"{name}/out", dtype)
    cast_with_output(graph, tensor, out, prog, name)
    return out


def cast_with_output(graph: Graph, tensor: Tensor, out: Tensor, prog: Sequence, name: str = "cast") -> None:
    """Write ``tensor`` to ``out``, converted to its element type; see :func:`cast`.

    Raises:
        TensorError: The shapes differ.
        ConstantWriteError: ``out`` cannot be written.
    """
    if out.shape != tensor.shape:
        raise TensorError(
            f"{name}: {tensor!r} of shape {list(tensor.shape)} does not go with the output {out!r} of shape "
            f"{list(out.shape)}"
        )
    check_writable(name, out)
    if out.dtype == tensor.dtype:
        prog.add(Copy(tensor, out))
        return
    fused = fuse([conversion(tensor.dtype, out.dtype)], (tensor.dtype,), [out.dtype])
    cycles = CastCycles(tensor.dtype, out.dtype)
    apply_fused(graph, fused, [tensor], [out], prog, name, library="popops.cast", cycles=cycles)


@dataclass(frozen=True)
class CastCycles:
    """Tile cycles of a conversion. Source: machine reference §4.8 (Cast1D)."""

    source: ElementType
    target: ElementType

    def __call__(self, size: Int64, ipu: Ipu) -> Int64:
        """Tile cycles of vertices of ``size`` elements, int64[n]."""
        elements, slots = cast_loop(self.source, self.target)
        share = -(-size // ipu.num_workers)
        loops = -(-share // elements)
        return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * (PROLOGUE + loops * slots), np.int64)


def cast_loop(source: ElementType, target: ElementType) -> tuple[int, int]:
    """Elements of a round of the loop, and slots that it takes. Source: machine reference §4.8 (Cast1D)."""
    if source.is_float and target.is_float:
        return NARROWING if source.bits > target.bits else WIDENING
    if source.bits == 16 and source.is_float and target.bits == 8:
        return BYTES
    if source.bits == 8 and target.bits == 16 and target.is_float:
        return BYTES_BACK
    return OTHER


def conversion(source: ElementType, target: ElementType) -> Expr:
    """The expression that converts an element; floats that an integer type does not hold become its nearest."""
    x = PlaceHolder(1)
    if target == bool_ and source != bool_:
        return Op("neq", x, Const(0, f32) if source.is_float else Const(0))
    if not source.is_float or target.is_float:
        return Cast(x, target)
    limits = np.iinfo(target.np)
    # An f32 below 2ᵏ: the largest that truncates to an integer that the type holds.
    last = float(np.nextafter(np.float32(limits.max + 1), np.float32(0)))
    inside = Cast(Op("clamp", x, float(limits.min), last), target)
    if math.floor(last) == limits.max:
        return inside
    return select(Const(int(limits.max)), inside, x >= float(limits.max + 1))
