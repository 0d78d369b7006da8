"""The vertices that write blocks of a tensor in another order.

A box of up to four dimensions is enough for all that :mod:`abele.poplibs.poplin.lowering.arrange` asks: boxes are cut
so that at most the two innermost dimensions of source and target are longer than one index, and two more join where
boxes may grow.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any

from abele.codelet import Input, Output, SupervisorVertex, Vector, codelet
from abele.numerics import ElementType, i32
from abele.poplibs.poplin.vertices import cost, records


@cache
def permute(dtype: ElementType) -> Any:
    """The vertex that writes a box of up to four dimensions in another order."""

    @codelet
    class PermuteBlocks(SupervisorVertex):
        """For every box, walks ``out`` in order and picks elements of ``x`` by strides.

        ``shape`` has four extents, then the strides, for every box.
        """

        x: Vector[Input[Vector[dtype]]]
        out: Vector[Output[Vector[dtype]]]
        shape: Vector[i32]
        matrices: i32
        blocks: i32

        def compute(self):
            s = self.shape
            for i in range(len(self.out)):
                box = 8 * i
                at = 0
                for a in range(s[box]):
                    for b in range(s[box + 1]):
                        for c in range(s[box + 2]):
                            for d in range(s[box + 3]):
                                place = a * s[box + 4] + b * s[box + 5] + c * s[box + 6] + d * s[box + 7]
                                self.out[i][at] = self.x[i][place]
                                at += 1

        @staticmethod
        def cycles(v, ipu):
            return cost.permute(v.matrices, v.blocks, dtype)

        @staticmethod
        def state_bytes(v, ipu):
            return records.transpose(v.out.rows)

    return PermuteBlocks


@cache
def permute_run(dtype: ElementType) -> Any:
    """The vertex that writes boxes of one shape in another order, each after the one before it."""

    @codelet
    class PermuteRun(SupervisorVertex):
        """For every box, walks its part of ``out`` in order and picks elements of its part of ``x`` by strides.

        ``shape`` has four extents, then the strides, of all boxes. Neither operand needs a pointer for each box.
        """

        x: Input[Vector[dtype]]
        out: Output[Vector[dtype]]
        shape: Vector[i32]
        boxes: i32
        matrices: i32
        blocks: i32

        def compute(self):
            s = self.shape
            each = s[0] * s[1] * s[2] * s[3]
            at = 0
            for i in range(self.boxes):
                for a in range(s[0]):
                    for b in range(s[1]):
                        for c in range(s[2]):
                            for d in range(s[3]):
                                self.out[at] = self.x[i * each + a * s[4] + b * s[5] + c * s[6] + d * s[7]]
                                at += 1

        @staticmethod
        def cycles(v, ipu):
            return cost.permute(v.matrices, v.blocks, dtype)

        @staticmethod
        def state_bytes(v, ipu):
            return records.transpose_run(v.boxes)

    return PermuteRun
