"""The vertices of a reduction: one for a single rectangle, one for several."""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from abele.arrays import Int64
from abele.codelet import ONE_PTR, SPAN, InOut, Input, Output, Vector, VectorList, Vertex, codelet, exp, log, macro
from abele.machine import Ipu
from abele.numerics import ElementType, f32, i32, u16
from abele.poplibs.popops.reductions import cost as reduce_cost
from abele.poplibs.popops.reductions.ops import ReduceOp, accumulator, start_of

Direction = Literal["rows", "columns"]
"""Dimension that a vertex reduces: the rows of its rectangle, leaving one result per column, or the columns."""


@dataclass(frozen=True)
class Finish:
    """Operations on a result before a vertex stores it.

    Attributes:
        type: Element type of the output.
        scale: Form of the factor in field ``scale``: a ``number``, a ``tensor`` of one element, or none.
        updates: True if it is added to what the output held.
    """

    type: ElementType
    scale: Literal["", "number", "tensor"] = ""
    updates: bool = False


@macro
def combined(op, total, e):
    """Two accumulators combined.

    A sum of powers is taken relative to the larger exponent; an infinite one, whose difference to itself is no number,
    stands for itself.
    """
    if op.combine == "log_add":
        top = max(total, e)
        return top + log(1.0 + exp(min(total, e) - top)) if top - top == 0.0 else top
    if op.combine == "max":
        return max(total, e)
    if op.combine == "min":
        return min(total, e)
    if op.combine == "mul":
        return total * e
    return total + e


@macro
def accumulated(op, total, element):
    """An accumulator with one more element, of its type."""
    e = element
    if op.squares:
        e = e * e
    return combined(op, total, e)


@macro
def finished(self, op, kind, total, finish, at):
    """Accumulator in the form that is stored as output ``at``."""
    result = total
    if finish.scale != "":
        result = result * self.scale
    if finish.updates:
        e = kind(self.y[at])
        result = combined(op, result, e)
    return finish.type(result)


@lru_cache(maxsize=1024)
def rectangle_codelet(
    op: ReduceOp, dtype: ElementType, direction: Direction, finish: Finish, *, short: bool = False
) -> type:
    """Vertex that reduces a rectangle of ``columns`` columns; its rows begin ``width`` elements apart in ``x``.

    The first element of the rectangle is element ``first`` of ``x``. Counts are stored in 16 bits if ``short``,
    and then neither vector needs a length.
    """
    kind = accumulator(op, dtype)
    start = start_of(op, kind)
    number, layout = (u16, ONE_PTR) if short else (i32, SPAN)
    way = InOut if finish.updates else Output

    def formula(v: Any, ipu: Ipu) -> Int64:
        rows, columns, width = (np.asarray(n, np.int64) for n in (v.rows, v.columns, v.width))
        if direction == "rows":
            return reduce_cost.strided(rows, columns, width, ipu=ipu, op=op, dtype=dtype, out=finish.type)
        return reduce_cost.continuous(rows, columns, ipu, op=op, dtype=dtype, out=finish.type, updates=finish.updates)

    @codelet(name=f"Reduce_{op.name.lower()}_{direction}")
    class ReduceRectangle(Vertex):
        x: Input[Vector[dtype, layout]]
        y: way[Vector[finish.type, layout]]
        if finish.scale == "number":
            scale: f32
        elif finish.scale == "tensor":
            scale: Input[f32]
        rows: number
        columns: number
        first: number
        width: number
        cycles = staticmethod(formula)

        def compute(self):
            if direction == "rows":
                for c in range(self.columns):
                    total = kind(start)
                    for r in range(self.rows):
                        total = accumulated(op, total, kind(self.x[r * self.width + self.first + c]))
                    self.y[c] = finished(self, op, kind, total, finish, c)
            else:
                for r in range(self.rows):
                    total = kind(start)
                    for c in range(self.columns):
                        total = accumulated(op, total, kind(self.x[r * self.width + self.first + c]))
                    self.y[r] = finished(self, op, kind, total, finish, r)

    return ReduceRectangle


@lru_cache(maxsize=1024)
def regions_codelet(op: ReduceOp, dtype: ElementType, direction: Direction, finish: Finish) -> type:
    """The vertex that reduces several rectangles with the same outputs, each a row of ``x``."""
    kind = accumulator(op, dtype)
    start = start_of(op, kind)
    way = InOut if finish.updates else Output

    def formula(v: Any, ipu: Ipu) -> Int64:
        width = reduce_cost.accumulators(op, ipu, dtype)
        outputs, regions = np.maximum(np.asarray(v.y, np.int64), 1), v.x.rows
        partials = v.x.total // outputs
        if direction == "rows":
            loops = -(-outputs // width)
            return reduce_cost.general(1, loops, regions, vectors=loops * partials, ipu=ipu, op=op, dtype=dtype)
        vectors = np.maximum(-(-partials // width), regions)
        return reduce_cost.general(outputs, 1, regions, vectors=vectors, ipu=ipu, op=op, dtype=dtype)

    @codelet(name=f"ReduceRegions_{op.name.lower()}_{direction}")
    class ReduceRegions(Vertex):
        x: Input[VectorList[dtype]]
        y: way[Vector[finish.type]]
        if finish.scale == "number":
            scale: f32
        elif finish.scale == "tensor":
            scale: Input[f32]
        cycles = staticmethod(formula)

        def compute(self):
            outputs = len(self.y)
            for i in range(outputs):
                total = kind(start)
                for k in range(len(self.x)):
                    for j in range(len(self.x[k]) // outputs):
                        if direction == "rows":
                            total = accumulated(op, total, kind(self.x[k][j * outputs + i]))
                        else:
                            total = accumulated(op, total, kind(self.x[k][i * (len(self.x[k]) // outputs) + j]))
                self.y[i] = finished(self, op, kind, total, finish, i)

    return ReduceRegions
