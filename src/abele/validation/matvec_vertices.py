"""The vertices of the matrix-vector product that is held against a measurement."""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from abele.codelet import Input, Output, Vector, Vertex, codelet
from abele.numerics import f32


@codelet
class Dot(Vertex):
    """The product of a piece of a row with a piece of the vector."""

    row: Input[Vector[f32]]
    x: Input[Vector[f32]]
    out: Output[f32]

    def compute(self):
        """One product or element after the other."""
        total = 0.0
        for i in range(len(self.row)):
            total += self.row[i] * self.x[i]
        self.out = total


@codelet
class Total(Vertex):
    """The sum of a row's partial products."""

    x: Input[Vector[f32]]
    out: Output[f32]

    def compute(self):
        """One product or element after the other."""
        total = 0.0
        for i in range(len(self.x)):
            total += self.x[i]
        self.out = total
