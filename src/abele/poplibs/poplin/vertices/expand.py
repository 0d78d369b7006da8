"""The vertex that writes out windows of inputs as channels.

``walk`` says extents, strides and relations of a box; :mod:`~abele.poplibs.poplin.vertices.window_fields` names them.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any

from abele.codelet import Input, Output, SupervisorVertex, Vector, codelet
from abele.numerics import ElementType, i32
from abele.poplibs.poplin.vertices import cost, records
from abele.poplibs.poplin.vertices import window_fields as at


@cache
def expand(dtype: ElementType, *, turned: bool) -> Any:
    """The vertex for inputs of ``dtype``; ``turned`` where neighbours in the source are apart in the result."""

    @codelet
    class ExpandWindows(SupervisorVertex):
        """Copies the input of every (output, kernel position), or zero where there is none; zeros may fill a group."""

        x: Input[Vector[dtype]]
        out: Output[Vector[dtype]]
        walk: Vector[i32]

        def compute(self):
            s = self.walk
            for g in range(s[at.NUM_G]):
                for b in range(s[at.NUM_B]):
                    for o0 in range(s[at.NUM_O0]):
                        for k0 in range(s[at.NUM_K0]):
                            p0 = s[at.OUT_STEP0] * o0 + s[at.KERNEL_STEP0] * k0 + s[at.OFFSET0]
                            in0 = p0 >= 0 and p0 < s[at.NUM_I0]
                            x0 = g * s[at.X_G] + b * s[at.X_B] + p0 * s[at.X_I0]
                            y0 = g * s[at.Y_G] + b * s[at.Y_B] + o0 * s[at.Y_O0] + k0 * s[at.Y_K0]
                            for o1 in range(s[at.NUM_O1]):
                                for k1 in range(s[at.NUM_K1]):
                                    p1 = s[at.OUT_STEP1] * o1 + s[at.KERNEL_STEP1] * k1 + s[at.OFFSET1]
                                    in1 = in0 and p1 >= 0 and p1 < s[at.NUM_I1]
                                    x1 = x0 + p1 * s[at.X_I1]
                                    y1 = y0 + o1 * s[at.Y_O1] + k1 * s[at.Y_K1]
                                    for o2 in range(s[at.NUM_O2]):
                                        for k2 in range(s[at.NUM_K2]):
                                            p2 = s[at.OUT_STEP2] * o2 + s[at.KERNEL_STEP2] * k2 + s[at.OFFSET2]
                                            x2 = x1 + p2 * s[at.X_I2]
                                            y2 = y1 + o2 * s[at.Y_O2] + k2 * s[at.Y_K2]
                                            first = k0 * s[at.C_K0] + k1 * s[at.C_K1] + k2 * s[at.C_K2]
                                            inside = in1 and p2 >= 0 and p2 < s[at.NUM_I2]
                                            for ci in range(s[at.NUM_CI]):
                                                channel = first + ci
                                                place = channel // s[at.GROUP] * s[at.Y_GROUP]
                                                place += y2 + channel % s[at.GROUP] * s[at.Y_CI]
                                                if inside:
                                                    self.out[place] = self.x[x2 + ci * s[at.X_CI]]
                                                else:
                                                    self.out[place] = dtype(0.0)
                                            if first + s[at.NUM_CI] == s[at.FIRST_ZERO]:
                                                for zero in range(s[at.NUM_ZEROS]):
                                                    channel = s[at.FIRST_ZERO] + zero
                                                    place = channel // s[at.GROUP] * s[at.Y_GROUP]
                                                    place += y2 + channel % s[at.GROUP] * s[at.Y_CI]
                                                    self.out[place] = dtype(0.0)

        @staticmethod
        def cycles(v, ipu):
            return cost.expand(v.out, dtype, turned=turned)

        @staticmethod
        def state_bytes(v, ipu):
            return records.expand(v.walk)

    return ExpandWindows
