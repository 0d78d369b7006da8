"""The vertices of a reduction: one that reduces a rectangle, one that reduces several."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from abele.machine import Ipu
from abele.numerics import ElementType, bool_
from abele.poplibs.popops.expressions.generated import build, type_name
from abele.poplibs.popops.reductions import cost as reduce_cost
from abele.poplibs.popops.reductions.ops import ReduceOp, accumulator, combining, identity

Int64 = npt.NDArray[np.int64]
Direction = Literal["rows", "columns"]
"""What a vertex reduces: the rows of its rectangle, leaving one result per column, or the columns."""


@dataclass(frozen=True)
class Finish:
    """What a step does to a result before it stores it.

    Attributes:
        type: Element type of the output.
        scale: What multiplies it, in field ``scale``: a ``number``, a ``tensor`` of one element, or nothing.
        updates: True if it is added to what the output held.
    """

    type: ElementType
    scale: Literal["", "number", "tensor"] = ""
    updates: bool = False

    def fields(self, layout: str = "") -> list[str]:
        """Declarations of the output, a vector of ``layout``, and the scale."""
        direction = "InOut" if self.updates else "Output"
        scale = {"": [], "number": ["scale: f32"], "tensor": ["scale: Input[f32]"]}
        return [f"y: {direction}[Vector[{type_name(self.type)}{layout}]]", *scale[self.scale]]

    def store(self, at: str, op: ReduceOp, kind: ElementType) -> list[str]:
        """Statements that store ``total``, an accumulator, as output ``at``."""
        lines = ["total = total * self.scale"] if self.scale else []
        if self.updates:
            lines += [f"e = {type_name(kind)}(self.y[{at}])", *combining(op, "total", "e")]
        value = "total"
        if self.type == bool_:
            value = "total != 0"
        elif self.type != kind:
            value = f"{type_name(self.type)}(total)"
        return [*lines, f"self.y[{at}] = {value}"]


def _accumulate(op: ReduceOp, source: str, dtype: ElementType, kind: ElementType) -> list[str]:
    """Statements that combine an element into ``total``."""
    value = source if dtype == kind else f"{type_name(kind)}({source})"
    square = ["e = e * e"] if op.squares else []
    return [f"e = {value}", *square, *combining(op, "total", "e")]


def _start(op: ReduceOp, kind: ElementType) -> str:
    return f"total = {type_name(kind)}({identity(op, kind)})"


def _indented(lines: list[str], depth: int) -> list[str]:
    return [f"{'    ' * depth}{line}" for line in lines]


@lru_cache(maxsize=1024)
def rectangle_codelet(
    op: ReduceOp, dtype: ElementType, direction: Direction, finish: Finish, *, short: bool = False
) -> type:
    """The vertex that reduces a rectangle of ``columns`` columns, whose rows begin ``width`` elements apart in ``x``.

    The first element of the rectangle is element ``first`` of ``x``. Counts are stored in 16 bits if ``short``,
    and then neither vector needs a length.
    """
    kind = accumulator(op, dtype)
    outer, inner = ("c", "r") if direction == "rows" else ("r", "c")
    counts = {"r": "self.rows", "c": "self.columns"}
    lines = [
        f"for {outer} in range({counts[outer]}):",
        f"    {_start(op, kind)}",
        f"    for {inner} in range({counts[inner]}):",
        *_indented(_accumulate(op, "self.x[r * self.width + self.first + c]", dtype, kind), 2),
        *_indented(finish.store(outer, op, kind), 1),
    ]
    number = "u16" if short else "i32"
    layout = ", ONE_PTR" if short else ""
    fields = [f"x: Input[Vector[{type_name(dtype)}{layout}]]", *finish.fields(layout)]
    fields += [f"{name}: {number}" for name in ("rows", "columns", "first", "width")]

    def formula(v: Any, ipu: Ipu) -> Int64:
        rows, columns, width = (np.asarray(n, np.int64) for n in (v.rows, v.columns, v.width))
        if direction == "rows":
            return reduce_cost.strided(rows, columns, width, ipu=ipu, op=op, dtype=dtype, out=finish.type)
        return reduce_cost.continuous(rows, columns, ipu, op=op, dtype=dtype, out=finish.type, updates=finish.updates)

    return build(f"Reduce_{op.name.lower()}_{direction}", "Vertex", fields, lines, formula, extra=(dtype, finish))


@lru_cache(maxsize=1024)
def regions_codelet(op: ReduceOp, dtype: ElementType, direction: Direction, finish: Finish) -> type:
    """The vertex that reduces several rectangles with the same outputs, each a row of ``x``."""
    kind = accumulator(op, dtype)
    number = "len(self.x[k]) // outputs"
    at = "j * outputs + i" if direction == "rows" else f"i * ({number}) + j"
    lines = [
        "outputs = len(self.y)",
        "for i in range(outputs):",
        f"    {_start(op, kind)}",
        "    for k in range(len(self.x)):",
        f"        for j in range({number}):",
        *_indented(_accumulate(op, f"self.x[k][{at}]", dtype, kind), 3),
        *_indented(finish.store("i", op, kind), 1),
    ]
    fields = [f"x: Input[VectorList[{type_name(dtype)}]]", *finish.fields()]

    def formula(v: Any, ipu: Ipu) -> Int64:
        width = reduce_cost.accumulators(op, ipu, dtype)
        outputs, regions = np.maximum(np.asarray(v.y, np.int64), 1), v.x.rows
        partials = v.x.total // outputs
        if direction == "rows":
            loops = -(-outputs // width)
            return reduce_cost.general(1, loops, regions, vectors=loops * partials, ipu=ipu, op=op, dtype=dtype)
        vectors = np.maximum(-(-partials // width), regions)
        return reduce_cost.general(outputs, 1, regions, vectors=vectors, ipu=ipu, op=op, dtype=dtype)

    return build(
        f"ReduceRegions_{op.name.lower()}_{direction}", "Vertex", fields, lines, formula, extra=(dtype, finish)
    )
