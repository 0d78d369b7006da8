"""The vertex that turns a matrix around."""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache

from abele.codelet import Input, Output, Vector, Vertex, codelet
from abele.numerics import ElementType, i32


@cache
def transpose_codelet(dtype: ElementType) -> type:
    """The matrix ``x`` of ``columns`` columns, turned around in ``y``; issue slots are counted."""

    @codelet
    class Transpose(Vertex):
        x: Input[Vector[dtype]]
        y: Output[Vector[dtype]]
        columns: i32

        def compute(self):
            rows = len(self.x) // self.columns
            for r in range(rows):
                for c in range(self.columns):
                    self.y[c * rows + r] = self.x[r * self.columns + c]

    return Transpose
