"""One-hot rows from indices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64
from abele.errors import TensorError, TypeMismatchError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.machine import Ipu
from abele.numerics import ElementType, i32, u32
from abele.poplibs.popops.elementwise.fill import FillCycles
from abele.poplibs.popops.elementwise.map import apply_fused
from abele.poplibs.popops.expr import Cast, Const, Expr, PlaceHolder, _1, _2, converted, select
from abele.poplibs.popops.expressions.fused import fuse
from abele.words import counted

Value = float | Tensor

MASKED_LABEL_CODE = 0xFFFFFFFF
"""An index whose row has no element on."""
START_CYCLES, INDEX_CYCLES = 11, 74
"""Tile cycles of EncodeOneHot before the first index, and of each. Source: machine reference §4.8 (EncodeOneHot)."""


def encode_one_hot(
    graph: Graph,
    indices: Tensor,
    encoded: Tensor,
    prog: Sequence,
    *,
    on: Value = 1.0,
    off: Value = 0.0,
    name: str = "encode_one_hot",
) -> None:
    """Set element ``indices[i]`` of row i of ``encoded`` to ``on`` and the others to ``off``.

    A row whose index is :data:`MASKED_LABEL_CODE`, or no column, is all ``off``.

    Args:
        graph: Graph in which vertices are made.
        indices: u32 or i32 of shape [rows].
        encoded: Written; of shape [rows, columns].
        prog: Sequence that the step is appended to.
        on: A number or a tensor of one element.
        off: A number or a tensor of one element.
        name: Name of the step.

    Raises:
        TensorError: The shapes do not go together, or a value has more than one element.
        TypeMismatchError: Indices that are no 32-bit integers.
    """
    if indices.dtype not in (u32, i32):
        raise TypeMismatchError(f"{name}: the indices {indices!r} are {indices.dtype}, they must be u32 or i32")
    if encoded.ndim != 2 or indices.shape != encoded.shape[:1]:
        raise TensorError(
            f"{name}: indices {indices!r} of shape {list(indices.shape)} do not go with {encoded!r} of shape "
            f"{list(encoded.shape)}",
            remedy="indices [rows], encoded [rows, columns]",
        )
    if encoded.size == 0:
        return
    columns = encoded.shape[1]
    numbers = graph.constant(indices.dtype, (columns,), np.arange(columns), name=f"{name}/columns")
    tensors = [indices.expand_dims(1), numbers]
    values = [_value(v, tensors, encoded.dtype, name) for v in (on, off)]
    hot = Cast(select(values[0], values[1], _1 == _2), encoded.dtype)
    fused = fuse([hot], tuple(t.dtype for t in tensors), [encoded.dtype])
    cycles = _OneHotCycles(columns, FillCycles(encoded.dtype))
    apply_fused(graph, fused, tensors, [encoded], prog, name, library="popops.encode_one_hot", cycles=cycles)


@dataclass(frozen=True)
class _OneHotCycles:
    """Tile cycles: all elements are filled, then one of each row is set."""

    columns: int
    fill: FillCycles

    def __call__(self, size: Int64, ipu: Ipu) -> Int64:
        rows = -(-size // self.columns)
        return np.asarray(self.fill(size, ipu) + START_CYCLES + INDEX_CYCLES * rows, np.int64)


def _value(value: Value, tensors: list[Tensor], dtype: ElementType, name: str) -> Expr:
    if not isinstance(value, Tensor):
        return Cast(Const(value if dtype.is_float else int(value)), dtype)
    if value.size != 1:
        raise TensorError(f"{name}: the value {value!r} has {counted(value.size, 'element')}, it must be one")
    tensors.append(value.reshape(()))
    return converted(PlaceHolder(len(tensors)), value.dtype, dtype)
