"""Non-linearities and their gradients, on vectors and on rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.expr import NONLINEARITIES
from abele.machine import Ipu
from abele.numerics import ElementType, f16, f32, u16, u32
from abele.poplibs.popops.elementwise.cost import CostForm, element_cycles
from abele.poplibs.popops.expr import Op, PlaceHolder
from abele.poplibs.popops.expressions.element_codelets import element_statements
from abele.poplibs.popops.expressions.fused import Fused, fuse
from abele.poplibs.public_vertices.elementwise import rows_cycles
from abele.poplibs.public_vertices.family import Family, Instance
from abele.poplibs.public_vertices.parameters import choice, type_of
from abele.poplibs.public_vertices.text import place, row_loop, rows, shared_loop, state, vector

ROWS_START = 20
"""Worker slots before the first row, as those of the vertex on one vector. Source: machine reference §4.10."""
FORWARD = {n.enumerator: n.op for n in NONLINEARITIES.values()}
BACKWARD = {n.enumerator: n.gradient for n in NONLINEARITIES.values()}
"""Operations by the enumerators of popnn."""


def families() -> list[Family]:
    """Every vertex of this module."""
    forward = (type_of(f32, f16), choice("popnn::NonLinearityType", FORWARD))
    backward = (type_of(f32, f16), choice("popnn::NonLinearityType", BACKWARD))
    said, where = "out = the non-linearity of data", "data = the non-linearity of it"
    slope = "inGrad = outGrad · the slope at out (of GELU, GELU_ERF and SWISH out is the input)"
    return [
        Family("NonLinearity1D", forward, _forward(False, False), "sure", said),
        *Family("NonLinearity1DInPlace", forward, _forward(True, False), "sure", where).called(
            "NonLinearitySupervisor"
        ),
        Family("NonLinearity2D", forward, _forward(False, True), "sure", said),
        Family("NonLinearity2DInPlace", forward, _forward(True, True), "sure", where),
        *Family("NonLinearityGrad1D", backward, _backward(False), "sure", slope).called("NonLinearityGradSupervisor"),
        Family("NonLinearityGrad2D", backward, _backward(True), "sure", slope),
    ]


def _forward(in_place: bool, by_rows: bool) -> Callable[..., Instance]:
    def make(dtype: ElementType, op: str) -> Instance:
        fused = fuse([Op(op, PlaceHolder(1))], (dtype,), [dtype])
        declare, at = (rows, "[r][i]") if by_rows else (vector, "[i]")
        layout = "SPAN" if by_rows else "ONE_PTR"
        fields = [declare("data", dtype, "InOut" if in_place else "Input", layout)]
        if not in_place:
            fields.append(declare("out", dtype, "Output", layout))
        out = "data" if in_place else "out"
        lines = element_statements(fused, [place(f"self.data{at}", dtype)], [place(f"self.{out}{at}", dtype)])
        return _vertex(fields, lines, out, fused, in_place, by_rows)

    return make


def _backward(by_rows: bool) -> Callable[..., Instance]:
    def make(dtype: ElementType, op: str) -> Instance:
        fused = fuse([Op(op, PlaceHolder(1), PlaceHolder(2))], (dtype, dtype), [dtype])
        declare, at = (rows, "[r][i]") if by_rows else (vector, "[i]")
        layout = "SPAN" if by_rows else "ONE_PTR"
        fields = [declare(n, dtype, "Input", layout) for n in ("outGrad", "out")]
        fields.append(declare("inGrad", dtype, "Output", layout))
        places = [place(f"self.out{at}", dtype), place(f"self.outGrad{at}", dtype)]
        lines = element_statements(fused, places, [place(f"self.inGrad{at}", dtype)])
        return _vertex(fields, lines, "inGrad", fused, False, by_rows)

    return make


def _vertex(fields: list[str], lines: list[str], out: str, fused: Fused, in_place: bool, by_rows: bool) -> Instance:
    form = CostForm(streams=len(fused.types) + 1, scalars=0, in_place=in_place, rows=False)
    if by_rows:
        formula = rows_cycles(fused, form, out, ROWS_START)
        return Instance("Vertex", tuple(fields), tuple(row_loop(out, lines)), formula)

    def cycles(v: Any, ipu: Ipu) -> Int64:
        return element_cycles(fused, form, np.asarray(v.n, np.int64), 0, ipu)

    number = state("n", u16 if len(fused.types) > 1 else u32)
    return Instance("MultiVertex", (*fields, number), tuple(shared_loop("i64(self.n)", lines, 4)), cycles)
