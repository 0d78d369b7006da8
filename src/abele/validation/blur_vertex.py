"""The vertex of the blur that is held against measurements."""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any

from abele.codelet import Input, MultiVertex, Output, Vector, codelet
from abele.numerics import ElementType

WEIGHTS = (0.25, 0.125, 0.0625)
"""Of a pixel, of those beside it, of those at its corners."""


@cache
def blur_vertex(dtype: ElementType, channels: int, weights: tuple[float, float, float] = WEIGHTS) -> Any:
    """The vertex of one tile: the six workers share its rows."""
    near, far = channels, 2 * channels
    middle, side, corner = weights

    @codelet
    class Blur(MultiVertex):
        """One step of the block that ``after`` shows; ``before`` is the same block with a border of one pixel."""

        before: Vector[Input[Vector[dtype]]]
        after: Vector[Output[Vector[dtype]]]

        def compute(self, worker_id):
            for r in range(worker_id, len(self.after), 6):
                north = self.before[r]
                row = self.before[r + 1]
                south = self.before[r + 2]
                after = self.after[r]
                for c in range(len(after)):
                    sides = (north[c + near] + south[c + near]) + (row[c] + row[c + far])
                    corners = (north[c] + north[c + far]) + (south[c] + south[c + far])
                    after[c] = middle * row[c + near] + side * sides + corner * corners

    return Blur
