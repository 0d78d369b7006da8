"""The library's vertices: partial products, sums of partials, casts, and permutations of blocks.

On the machine these are hand-written assembly on the AMP units; here each has a plain meaning and, beside it, the
closed form of its cost from :mod:`abele.poplibs.poplin.vertices.cost`.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any

from abele.codelet import Input, Output, SupervisorVertex, Vector, codelet
from abele.numerics import ElementType, f32, i32
from abele.poplibs.poplin.planner.plan import Method
from abele.poplibs.poplin.vertices import cost
from abele.poplibs.poplin.vertices.work import Work

FIELD_DIMS = 3
"""Field dimensions that a vertex loops over; fewer are padded with dimensions of one index."""


@cache
def pointwise_partial(method: Method, dtype: ElementType, partials: ElementType) -> Any:
    """The vertex for contractions in which no field dimension mixes."""

    @codelet
    class ConvPartial1x1(SupervisorVertex):
        """Every output position times a matrix of channels."""

        x: Input[Vector[dtype]]
        w: Input[Vector[dtype]]
        out: Output[Vector[partials]]
        geometry: Vector[i32]
        groups: i32
        in_channels: i32
        out_channels: i32
        positions: i32
        outputs: i32
        run: i32
        kernel_outer: i32
        kernel_inner: i32

        def compute(self):
            s = self.geometry
            for g in range(s[4]):
                for b1 in range(s[2]):
                    for b0 in range(s[3]):
                        for o0 in range(s[7]):
                            for o1 in range(s[8]):
                                for o2 in range(s[9]):
                                    x_at = g * s[28] + b1 * s[29] + b0 * s[30] + o0 * s[32] + o1 * s[33] + o2 * s[34]
                                    y_at = g * s[42] + b1 * s[43] + b0 * s[44] + o0 * s[47] + o1 * s[48] + o2 * s[49]
                                    for co1 in range(s[0]):
                                        for co0 in range(s[1]):
                                            w_at = g * s[35] + co1 * s[36] + co0 * s[37]
                                            total = f32(0.0)
                                            for ci1 in range(s[5]):
                                                for ci0 in range(s[6]):
                                                    total += f32(self.x[x_at + ci1 * s[31] + ci0]) * f32(
                                                        self.w[w_at + ci1 * s[38] + ci0]
                                                    )
                                            self.out[y_at + co1 * s[45] + co0 * s[46]] = partials(total)

        @staticmethod
        def cycles(v, ipu):
            return method.cycles(_work(v, dtype, partials), _load_bytes(method, ipu))

    return ConvPartial1x1


@cache
def field_partial(method: Method, dtype: ElementType, partials: ElementType) -> Any:
    """The vertex for contractions over a field; see :mod:`~abele.poplibs.poplin.lowering.geometry`.

    The vertical kind takes every out-channel from the in-channel of the same number alone.
    """
    vertical = method.kind == "vmac"

    @codelet
    class ConvPartialNx1(SupervisorVertex):
        """Every kernel position times the inputs that it meets, summed."""

        x: Input[Vector[dtype]]
        w: Input[Vector[dtype]]
        out: Output[Vector[partials]]
        geometry: Vector[i32]
        groups: i32
        in_channels: i32
        out_channels: i32
        positions: i32
        outputs: i32
        run: i32
        kernel_outer: i32
        kernel_inner: i32

        def compute(self):
            s = self.geometry
            for g in range(s[4]):
                for co1 in range(s[0]):
                    for co0 in range(s[1]):
                        w_at = g * s[35] + co1 * s[36] + co0 * s[37]
                        for b1 in range(s[2]):
                            for b0 in range(s[3]):
                                x_at = g * s[28] + b1 * s[29] + b0 * s[30]
                                y_at = g * s[42] + b1 * s[43] + b0 * s[44] + co1 * s[45] + co0 * s[46]
                                for o0 in range(s[7]):
                                    for o1 in range(s[8]):
                                        for o2 in range(s[9]):
                                            total = f32(0.0)
                                            for k0 in range(s[10]):
                                                p0 = s[19] * o0 + s[22] * k0 + s[25]
                                                if p0 >= 0 and p0 < s[16] * s[13] and p0 % s[16] == 0:
                                                    x0 = x_at + p0 // s[16] * s[32]
                                                    w0 = w_at + k0 * s[39]
                                                    for k1 in range(s[11]):
                                                        p1 = s[20] * o1 + s[23] * k1 + s[26]
                                                        if p1 >= 0 and p1 < s[17] * s[14] and p1 % s[17] == 0:
                                                            x1 = x0 + p1 // s[17] * s[33]
                                                            w1 = w0 + k1 * s[40]
                                                            for k2 in range(s[12]):
                                                                p2 = s[21] * o2 + s[24] * k2 + s[27]
                                                                if p2 >= 0 and p2 < s[18] * s[15] and p2 % s[18] == 0:
                                                                    x2 = x1 + p2 // s[18] * s[34]
                                                                    w2 = w1 + k2 * s[41]
                                                                    if vertical:
                                                                        x_here = f32(self.x[x2 + co0])
                                                                        total += x_here * f32(self.w[w2 + co0])
                                                                    else:
                                                                        for ci1 in range(s[5]):
                                                                            for ci0 in range(s[6]):
                                                                                total += f32(
                                                                                    self.x[x2 + ci1 * s[31] + ci0]
                                                                                ) * f32(self.w[w2 + ci1 * s[38] + ci0])
                                            self.out[y_at + o0 * s[47] + o1 * s[48] + o2 * s[49]] = partials(total)

        @staticmethod
        def cycles(v, ipu):
            return method.cycles(_work(v, dtype, partials), _load_bytes(method, ipu))

    return ConvPartialNx1


def _load_bytes(method: Method, ipu: Any) -> int:
    """Bytes of weights that enter the matrix units in a cycle."""
    return ipu.amp.wide_weight_load_bytes_per_cycle if method.wide_loads else ipu.amp.weight_load_bytes_per_cycle


def _work(v: Any, dtype: ElementType, partials: ElementType) -> Work:
    """The sizes of a group's vertices, from their state."""
    return Work(
        dtype,
        partials,
        v.groups,
        v.in_channels,
        v.out_channels,
        v.positions,
        v.outputs,
        v.run,
        v.kernel_outer,
        v.kernel_inner,
    )


@cache
def reduce_add(partials: ElementType, output: ElementType) -> Any:
    """The vertex that sums rows of partials."""

    @codelet
    class ReduceAdd(SupervisorVertex):
        """Sums the rows of ``x``, each as long as ``out``."""

        x: Input[Vector[partials]]
        out: Output[Vector[output]]

        def compute(self):
            size = len(self.out)
            depth = len(self.x) // size
            for i in range(size):
                total = f32(0.0)
                for d in range(depth):
                    total += f32(self.x[d * size + i])
                self.out[i] = output(total)

        @staticmethod
        def cycles(v, ipu):
            return cost.reduce_add(v.out, v.x // v.out, partials, output)

    return ReduceAdd


@cache
def reduce_add_list(partials: ElementType, output: ElementType) -> Any:
    """The vertex that sums partials that lie apart."""

    @codelet
    class ReduceAddList(SupervisorVertex):
        """Sums the rows of ``x``, each as long as ``out``."""

        x: Vector[Input[Vector[partials]]]
        out: Output[Vector[output]]

        def compute(self):
            for i in range(len(self.out)):
                total = f32(0.0)
                for d in range(len(self.x)):
                    total += f32(self.x[d][i])
                self.out[i] = output(total)

        @staticmethod
        def cycles(v, ipu):
            return cost.reduce_add_list(v.out, v.x.rows, partials, output)

    return ReduceAddList


@cache
def cast(source: ElementType, target: ElementType) -> Any:
    """The vertex that converts partials to the type of the output."""

    @codelet
    class Cast(SupervisorVertex):
        """Converts every element."""

        x: Input[Vector[source]]
        out: Output[Vector[target]]

        def compute(self):
            for i in range(len(self.out)):
                self.out[i] = target(self.x[i])

        @staticmethod
        def cycles(v, ipu):
            return cost.cast(v.out, source, target)

    return Cast


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

    return PermuteBlocks
