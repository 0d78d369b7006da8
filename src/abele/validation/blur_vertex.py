"""The vertex of the blur that is held against measurements."""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any

from abele.codelet import Input, MultiVertex, Output, Vector, codelet
from abele.numerics import ElementType, i32

WEIGHTS = (0.25, 0.125, 0.0625)
"""Of a pixel, of those beside it, of those at its corners."""


@cache
def blur_vertex(dtype: ElementType, channels: int, weights: tuple[float, float, float] = WEIGHTS) -> Any:
    """The vertex of one tile: each of the six workers has a share of its block."""
    near, far = channels, 2 * channels
    middle, side, corner = weights

    @codelet
    class Blur(MultiVertex):
        """One step of the block that ``after`` shows; ``before`` is the same block with a border of one pixel.

        ``shares`` has first and last row and first and last element of each worker.
        """

        before: Vector[Input[Vector[dtype]]]
        after: Vector[Output[Vector[dtype]]]
        shares: Vector[i32]

        def compute(self, worker_id):
            left = self.shares[4 * worker_id + 2]
            right = self.shares[4 * worker_id + 3]
            for r in range(self.shares[4 * worker_id], self.shares[4 * worker_id + 1]):
                north = self.before[r]
                row = self.before[r + 1]
                south = self.before[r + 2]
                after = self.after[r]
                for c in range(left, right):
                    sides = (north[c + near] + south[c + near]) + (row[c] + row[c + far])
                    corners = (north[c] + north[c + far]) + (south[c] + south[c + far])
                    after[c] = middle * row[c + near] + side * sides + corner * corners

    return Blur
