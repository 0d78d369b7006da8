"""The vertex that weighs features by splines."""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache

from abele.codelet import Input, Output, Vector, Vertex, codelet
from abele.numerics import ElementType, f32, i32


@cache
def weighting_codelet(dtype: ElementType, channels: int, width: int, splines: int) -> type:
    """A worker's vertex over whole edges; its issue slots are counted."""

    @codelet
    class SplineWeighting(Vertex):
        x: Input[Vector[dtype]]
        w: Input[Vector[dtype]]
        b: Input[Vector[dtype]]
        k: Input[Vector[i32]]
        y: Output[Vector[dtype]]

        def compute(self):
            for e in range(len(self.y) // width):
                for o in range(width):
                    total = f32(0.0)
                    for s in range(splines):
                        inner = f32(0.0)
                        first = self.k[e * splines + s] * (channels * width) + o
                        for i in range(channels):
                            inner += f32(self.x[e * channels + i]) * f32(self.w[first + i * width])
                        total += inner * f32(self.b[e * splines + s])
                    self.y[e * width + o] = dtype(total)

    return SplineWeighting
