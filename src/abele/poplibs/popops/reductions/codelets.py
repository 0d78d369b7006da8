"""The vertices of a reduction: for one rectangle, for several of the same outputs, and for those that workers share."""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from abele.arrays import Int64
from abele.codelet import (
    ONE_PTR,
    SPAN,
    InOut,
    Input,
    MultiVertex,
    Output,
    Vector,
    VectorList,
    Vertex,
    codelet,
    exp,
    log,
    macro,
)
from abele.machine import Ipu
from abele.numerics import ElementType, f32, i32, i64, u16
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


@dataclass(frozen=True)
class SharedForm:
    """Form of the vertex that all workers share.

    Attributes:
        listed: True if it has several rectangles, each a row of its operand; False for one.
        short: True if its counts are stored in 16 bits.
        grain: Columns of a share are a multiple of this.
        pair: A second sum that it gives beside the first: of the squares, or of another operand.
    """

    listed: bool
    short: bool
    grain: int
    pair: Literal["", "squares", "other"] = ""


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


@macro
def part_of(total, parts, part, grain):
    """First element of a part of ``total``, which is whole grains, or elements where there are too few."""
    unit = grain if (total + grain - 1) // grain >= parts else i64(1)
    return min(part * ((total + unit - 1) // unit) // parts * unit, total)


@lru_cache(maxsize=1024)
def shared_codelet(op: ReduceOp, dtype: ElementType, direction: Direction, finish: Finish, form: SharedForm) -> type:
    """Vertex whose workers share rectangles of ``rows`` times ``columns``, each a row of ``x``, or all of it.

    Outputs are cut into ``kept`` parts and what is reduced into ``reduced``; each share gives a result in ``y``, one
    after the other. A pair of sums has two results, in turn ``turn`` outputs of each.
    """
    kind = accumulator(op, dtype)
    start = start_of(op, kind)
    number = u16 if form.short else i32
    way = InOut if finish.updates else Output
    listed, pair, grain = form.listed, form.pair, form.grain
    two = pair != ""
    by_row = direction == "rows"
    stored = finish.type
    vectors = VectorList[dtype] if listed else Vector[dtype, ONE_PTR]

    def formula(v: Any, ipu: Ipu) -> Int64:
        rows, columns, kept, reduced = (np.asarray(n, np.int64) for n in (v.rows, v.columns, v.kept, v.reduced))
        rectangles = v.x.rows if listed else 1
        rounds = -(-rectangles * kept * reduced // ipu.num_workers)
        row_parts, column_parts = (reduced, kept) if by_row else (kept, reduced)
        high, wide = -(-rows // row_parts), -(-columns // column_parts)
        wide = np.minimum(np.where(-(-columns // grain) < column_parts, wide, -(-wide // grain) * grain), columns)
        if by_row:
            slots = reduce_cost.strided(high, wide, columns, ipu=ipu, op=op, dtype=dtype, out=stored)
        else:
            slots = reduce_cost.continuous(high, wide, ipu, op=op, dtype=dtype, out=stored, updates=finish.updates)
        return np.asarray(ipu.num_workers * (reduce_cost.SHARE_SLOTS + rounds * slots * (2 if two else 1)), np.int64)

    @codelet(name=f"Reduce{'Two' if two else ''}_{op.name.lower()}_{direction}")
    class ReduceShared(MultiVertex):
        x: Input[vectors]
        if pair == "other":
            x2: Input[vectors]
        y: way[Vector[stored, ONE_PTR]]
        if finish.scale == "number":
            scale: f32
        elif finish.scale == "tensor":
            scale: Input[f32]
        rows: number
        columns: number
        kept: number
        reduced: number
        if two:
            turn: number
        cycles = staticmethod(formula)

        def compute(self, worker_id):
            kept = i64(self.kept)
            reduced = i64(self.reduced)
            rows = i64(self.rows)
            columns = i64(self.columns)
            shares = kept * reduced
            each = (columns if by_row else rows) * reduced
            count = shares
            if listed:
                count = shares * i64(len(self.x))
            for n in range((count + 5 - i64(worker_id)) // 6):
                share = i64(worker_id) + 6 * n
                k = share // shares
                part = share % shares // reduced
                piece = share % reduced
                first = part_of(columns if by_row else rows, kept, part, i64(grain if by_row else 1))
                last = part_of(columns if by_row else rows, kept, part + 1, i64(grain if by_row else 1))
                low = part_of(rows if by_row else columns, reduced, piece, i64(1 if by_row else grain))
                high = part_of(rows if by_row else columns, reduced, piece + 1, i64(1 if by_row else grain))
                at = k * each + first * reduced + piece * (last - first)
                for o in range(last - first):
                    total = kind(start)
                    if two:
                        other = kind(start)
                    for e in range(low, high):
                        place = e * columns + first + o if by_row else (first + o) * columns + e
                        if listed:  # noqa: SIM108
                            a = kind(self.x[k][place])
                        else:
                            a = kind(self.x[place])
                        total = accumulated(op, total, a)
                        if pair == "squares":
                            other = other + a * a
                        elif pair == "other":
                            if listed:  # noqa: SIM108
                                other = other + kind(self.x2[k][place])
                            else:
                                other = other + kind(self.x2[place])
                    if two:
                        turn = i64(self.turn)
                        to = 2 * at + o // turn * (2 * turn) + o % turn
                        self.y[to] = stored(total)
                        self.y[to + turn] = stored(other)
                    else:
                        self.y[at + o] = finished(self, op, kind, total, finish, at + o)

    return ReduceShared


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
