"""The vertices of a reduction: one that reduces a rectangle, one that combines partial results."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from abele.machine import Ipu
from abele.numerics import ElementType, bool_
from abele.poplibs.popops.generated import build, type_name
from abele.poplibs.popops.reduce_ops import ReduceOp, accumulator
from abele.poplibs.popops.reduce_plan import Direction

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Finish:
    """What the last step does to a result before it stores it.

    Attributes:
        type: Element type of the output.
        scale: Whether it is multiplied by a ``number`` or a ``tensor`` of one element, field ``scale``.
        updates: Whether it is added to what the output held.
    """

    type: ElementType
    scale: Literal["", "number", "tensor"] = ""
    updates: bool = False

    @property
    def fields(self) -> list[str]:
        """Declarations of the output and the scale."""
        direction = "InOut" if self.updates else "Output"
        scale = {"": [], "number": ["scale: f32"], "tensor": ["scale: Input[f32]"]}
        return [f"y: {direction}[Vector[{type_name(self.type)}]]", *scale[self.scale]]

    def store(self, value: str, at: str, op: ReduceOp, kind: ElementType) -> str:
        """The statement that stores ``value``, an accumulator, as output ``at``."""
        if self.scale:
            value = f"{value} * self.scale"
        if self.updates:
            value = op.step.format(f"{type_name(kind)}(self.y[{at}])", value)
        if self.type == bool_:
            value = f"{value} != 0"
        elif self.type != kind:
            value = f"{type_name(self.type)}({value})"
        return f"self.y[{at}] = {value}"


def _element(op: ReduceOp, source: str, dtype: ElementType, kind: ElementType) -> list[str]:
    """Statements that load an element as an accumulator ``e``."""
    value = source if dtype == kind else f"{type_name(kind)}({source})"
    return [f"e = {value}", "e = e * e"] if op.squares else [f"e = {value}"]


def _identity(op: ReduceOp, kind: ElementType) -> str:
    return op.identity[0 if kind.is_float else 1]


@lru_cache(maxsize=1024)
def rectangle_codelet(
    op: ReduceOp, dtype: ElementType, direction: Direction, finish: Finish, *, strided: bool = False
) -> type:
    """The vertex that reduces the rows or the columns of a rectangle ``x`` of ``columns`` columns.

    If ``strided``, the rectangle lies within ``x``, which has ``width`` columns, from column ``first`` on.
    """
    kind = accumulator(op, dtype)
    width, first = ("self.width", "self.first + ") if strided else ("self.columns", "")
    element = _element(op, f"self.x[r * {width} + {first}c]", dtype, kind)
    add = [*element, f"total = {op.step.format('total', 'e')}"]
    outer, inner, count = ("c", "r", "self.columns") if direction == "rows" else ("r", "c", "rows")
    inner_count = "rows" if direction == "rows" else "self.columns"
    lines = [
        f"rows = len(self.x) // {width}",
        f"for {outer} in range({count}):",
        f"    total = {type_name(kind)}({_identity(op, kind)})",
        f"    for {inner} in range({inner_count}):",
        *[f"        {line}" for line in add],
        f"    {finish.store('total', outer, op, kind)}",
    ]
    fields = [f"x: Input[Vector[{type_name(dtype)}]]", *finish.fields, "columns: i32"]
    fields += ["first: i32", "width: i32"] if strided else []
    cycles = _rows_cycles if direction == "rows" else _columns_cycles

    def formula(v: Any, ipu: Ipu) -> Int64:
        across = np.maximum(np.asarray(v.width if strided else v.columns, np.int64), 1)
        return cycles(v.x // across, np.asarray(v.columns, np.int64), ipu, dtype, finish)

    return build(f"Reduce_{op.name.lower()}_{direction}", "Vertex", fields, lines, formula, extra=(dtype, finish))


@lru_cache(maxsize=1024)
def combine_codelet(op: ReduceOp, kind: ElementType, finish: Finish) -> type:
    """The vertex that combines rows of partial results element by element."""
    lines = [
        "for i in range(len(self.y)):",
        f"    total = {type_name(kind)}({_identity(op, kind)})",
        "    for r in range(len(self.partials)):",
        f"        total = {op.step.format('total', 'self.partials[r][i]')}",
        f"    {finish.store('total', 'i', op, kind)}",
    ]
    fields = [f"partials: Vector[Input[Vector[{type_name(kind)}]]]", *finish.fields]

    def formula(v: Any, ipu: Ipu) -> Int64:
        return _combine_cycles(v, ipu, op, kind)

    return build(f"ReduceCombine_{op.name.lower()}", "Vertex", fields, lines, formula, extra=(kind, finish))


def _post_slots(dtype: ElementType, finish: Finish) -> int:
    """Slots to store one vector of results. Source: machine reference §4.7, strided reduce."""
    if dtype.bits == 16:
        return 8 if finish.type.bits == 16 else 7
    return 5


def _rows_cycles(rows: Int64, columns: Int64, ipu: Ipu, dtype: ElementType, finish: Finish) -> Int64:
    """Issue slots of a strided reduce. Source: machine reference §4.7."""
    together = np.gcd(ipu.vector_width(dtype), columns)
    loops = -(-columns // np.maximum(together, 1))
    return np.asarray(16 + loops * (3 + _post_slots(dtype, finish) + 3 + np.maximum(rows - 1, 0)), np.int64)


def _columns_cycles(rows: Int64, columns: Int64, ipu: Ipu, dtype: ElementType, finish: Finish) -> Int64:
    """Issue slots of a reduce over contiguous elements, for one output or for many. Source: machine reference §4.7."""
    width = ipu.vector_width(dtype)
    single = 3 + 6 + columns // width + 5 + columns % width + 3 + (5 if finish.type.bits == 16 else 0)
    odd = 2 * (columns % width > 0)
    many = 7 + 10 + rows * (12 + columns // width + odd + (1 if finish.updates else 0))
    return np.asarray(np.where(rows == 1, single, many), np.int64)


def _combine_cycles(v: Any, ipu: Ipu, op: ReduceOp, kind: ElementType) -> Int64:
    """Issue slots of the general reduce. Source: machine reference §4.7, vectorised default.

    Our reading of its terms: every output vector starts its accumulators (5, or 3 without wide ones), visits each
    partial region (10, and the loads of one vector) and is stored (1 + 1).
    """
    width = ipu.vector_width(kind)
    out_width = width * (2 if op.wide else 1)
    loops = -(-np.asarray(v.y) // out_width)
    rows = v.partials.rows
    per_loop = (5 if op.wide else 3) + 1 + 1 + rows * (10 + out_width // width)
    start = 7 + 26 + 16 + 6 + 2 * int(np.log2(out_width)) + 2
    return np.asarray(start + loops * per_loop, np.int64)
