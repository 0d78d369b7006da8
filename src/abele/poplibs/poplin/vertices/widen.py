"""The vertex that writes the weights of single channels as the diagonal of those of combined groups."""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any

from abele.codelet import Input, Output, SupervisorVertex, Vector, codelet
from abele.numerics import ElementType, i32
from abele.poplibs.poplin.vertices import cost


@cache
def widen_diagonal(dtype: ElementType) -> Any:
    """The vertex for weights of ``dtype``."""

    @codelet
    class WidenDiagonal(SupervisorVertex):
        """[channels, taps] to [taps, channels, channels], zero off the diagonal."""

        x: Input[Vector[dtype]]
        out: Output[Vector[dtype]]
        channels: i32

        def compute(self):
            taps = len(self.x) // self.channels
            at = 0
            for k in range(taps):
                for co in range(self.channels):
                    for ci in range(self.channels):
                        if ci == co:
                            self.out[at] = self.x[co * taps + k]
                        else:
                            self.out[at] = dtype(0.0)
                        at += 1

        @staticmethod
        def cycles(v, ipu):
            return cost.widen(v.x, v.out, dtype)

    return WidenDiagonal
