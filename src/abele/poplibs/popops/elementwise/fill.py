"""Filling tensors with a value, or with their own indices."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64
from abele.errors import InvalidOptionError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.machine import Ipu
from abele.numerics import ElementType, i32, misfit
from abele.poplibs.popops.elementwise.map import apply_fused, check_writable
from abele.poplibs.popops.elementwise.placement import CycleFormula
from abele.poplibs.popops.expr import Cast, Const, Expr, converted, element_index
from abele.poplibs.popops.expressions.fused import fuse
from abele.poplibs.poputil.rules import is_number

FILL_START = {1: 28, 2: 26, 4: 23, 8: 5}
FILL_ELEMENTS = {1: 4, 2: 4, 4: 2, 8: 1}
"""Worker slots before the loop of Fill, and elements per slot, by bytes of an element.
Source: machine reference §4.8 (Fill1D)."""
IOTA_START, IOTA_SLOTS = 10 + 4, 3
"""Worker slots before the loop of Iota, and slots of a vector. Source: machine reference §4.8 (Iota)."""


def fill(graph: Graph, tensor: Tensor, prog: Sequence, value: float, name: str = "fill") -> None:
    """Set every element of ``tensor`` to ``value``.

    Raises:
        InvalidOptionError: A value that the element type does not hold: a fraction, or one out of range, for integers;
            one too large for an 8-bit float.
        ConstantWriteError: ``tensor`` is a constant, or a view that repeats elements.
    """
    _check_value(tensor, value, name)
    check_writable(name, tensor)
    _compute(graph, tensor, Const(value, tensor.dtype), prog, name, FillCycles(tensor.dtype))


def zero(graph: Graph, tensor: Tensor, prog: Sequence, name: str = "zero") -> None:
    """Set every element of ``tensor`` to zero.

    Raises:
        ConstantWriteError: ``tensor`` is a constant, or a view that repeats elements.
    """
    fill(graph, tensor, prog, 0, name)


def _check_value(tensor: Tensor, value: float, name: str) -> None:
    """Refuse a value that the element type of ``tensor`` does not hold."""
    dtype = tensor.dtype
    if not is_number(value):
        raise InvalidOptionError(f"{name}: {tensor!r} cannot hold {value!r}", remedy="a number")
    if dtype.is_quarter and (found := misfit([value], dtype)) is not None:
        raise InvalidOptionError(f"{name}: {tensor!r} cannot hold {found}", remedy="another scale, or f16")
    if dtype.kind not in ("int", "uint"):
        return
    limits = np.iinfo(dtype.np)
    if not (math.isfinite(value) and value == int(value) and limits.min <= value <= limits.max):
        raise InvalidOptionError(
            f"{name}: {tensor!r} cannot hold {value}",
            because=f"{dtype} takes whole numbers from {limits.min} to {limits.max}",
        )


def iota(graph: Graph, tensor: Tensor, start: int, prog: Sequence, name: str = "iota", *, step: int = 1) -> None:
    """Set element i of the flattened ``tensor`` to ``start`` + i·``step``.

    Raises:
        InvalidOptionError: The first or the last number does not fit an integer type.
    """
    last = start + max(tensor.size - 1, 0) * step
    if not tensor.dtype.is_float and tensor.dtype.name != "bool":
        limits = np.iinfo(tensor.dtype.np)
        if min(start, last) < limits.min or max(start, last) > limits.max:
            raise InvalidOptionError(f"{name}: {start} to {last} does not fit {tensor!r} of {tensor.dtype}")
    index = element_index() if step == 1 else element_index() * step
    if start and not -(2**31) <= min(start, last) <= max(start, last) < 2**31:
        value: Expr = Cast(index, tensor.dtype) + start
    else:
        counted = index + start
        value = converted(counted, i32, tensor.dtype)
    _compute(graph, tensor, value, prog, name, _IotaCycles(tensor.dtype))


@dataclass(frozen=True)
class FillCycles:
    """Tile cycles of setting elements to one value, the workers sharing them."""

    dtype: ElementType

    def __call__(self, size: Int64, ipu: Ipu) -> Int64:
        """Tile cycles of vertices of ``size`` elements, int64[n]."""
        share = -(-size // ipu.num_workers)
        slots = FILL_START[self.dtype.bytes] + -(-share // FILL_ELEMENTS[self.dtype.bytes])
        return np.asarray(ipu.num_workers * slots, np.int64)


@dataclass(frozen=True)
class _IotaCycles:
    """Tile cycles of setting elements to their own indices."""

    dtype: ElementType

    def __call__(self, size: Int64, ipu: Ipu) -> Int64:
        """Tile cycles of vertices of ``size`` elements, int64[n]."""
        share = -(-size // ipu.num_workers)
        vectors = -(-share // ipu.vector_width(self.dtype))
        return np.asarray(ipu.num_workers * (IOTA_START + IOTA_SLOTS * vectors), np.int64)


def _compute(graph: Graph, tensor: Tensor, value: Expr, prog: Sequence, name: str, cycles: CycleFormula) -> None:
    fused = fuse([value], (), [tensor.dtype])
    apply_fused(graph, fused, [], [tensor], prog, name, library=f"popops.{name}", cycles=cycles)
