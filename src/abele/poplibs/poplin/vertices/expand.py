"""The vertex that writes out windows of inputs as channels.

``walk`` (i32, by position): extent, source stride and result stride of g, b and ci (0 to 8); then for each of three
field dimensions its outputs and their stride in the result, kernel positions and theirs, inputs and their stride in the
source, and out-step, kernel-step and offset of the relation between the three.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any

from abele.codelet import Input, Output, SupervisorVertex, Vector, codelet
from abele.numerics import ElementType, i32
from abele.poplibs.poplin.vertices import cost

FIELD_DIMS = 3


@cache
def expand(dtype: ElementType, *, turned: bool) -> Any:
    """The vertex for inputs of ``dtype``; ``turned`` where neighbours in the source are apart in the result."""

    @codelet
    class ExpandWindows(SupervisorVertex):
        """Copies the input of every (output, kernel position), or zero where there is none."""

        x: Input[Vector[dtype]]
        out: Output[Vector[dtype]]
        walk: Vector[i32]

        def compute(self):
            s = self.walk
            for g in range(s[0]):
                for b in range(s[3]):
                    for o0 in range(s[9]):
                        for k0 in range(s[11]):
                            p0 = s[15] * o0 + s[16] * k0 + s[17]
                            in0 = p0 >= 0 and p0 < s[13]
                            x0 = g * s[1] + b * s[4] + p0 * s[14]
                            y0 = g * s[2] + b * s[5] + o0 * s[10] + k0 * s[12]
                            for o1 in range(s[18]):
                                for k1 in range(s[20]):
                                    p1 = s[24] * o1 + s[25] * k1 + s[26]
                                    in1 = in0 and p1 >= 0 and p1 < s[22]
                                    x1 = x0 + p1 * s[23]
                                    y1 = y0 + o1 * s[19] + k1 * s[21]
                                    for o2 in range(s[27]):
                                        for k2 in range(s[29]):
                                            p2 = s[33] * o2 + s[34] * k2 + s[35]
                                            x2 = x1 + p2 * s[32]
                                            y2 = y1 + o2 * s[28] + k2 * s[30]
                                            if in1 and p2 >= 0 and p2 < s[31]:
                                                for ci in range(s[6]):
                                                    self.out[y2 + ci * s[8]] = self.x[x2 + ci * s[7]]
                                            else:
                                                for ci in range(s[6]):
                                                    self.out[y2 + ci * s[8]] = dtype(0.0)

        @staticmethod
        def cycles(v, ipu):
            return cost.expand(v.out, dtype, turned=turned)

    return ExpandWindows
