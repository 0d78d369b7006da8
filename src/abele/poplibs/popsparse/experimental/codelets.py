"""Vertices of products and softmaxes of blocks that poplin has none of: zeros, and softmax of a row.

A softmax of a row goes over it three times: its largest element, powers relative to it and their sum, and the division.
A row is what a mask leaves of one row of all held blocks in it. Its elements come side by side, so that the vertex does
not know of blocks.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache

import numpy as np

from abele.arrays import Int64
from abele.codelet import InOut, Input, Output, SupervisorVertex, Vector, Vertex, codelet, exp, macro
from abele.machine import Ipu
from abele.numerics import ElementType, f32, i32, i64
from abele.poplibs.popops.elementwise.cost import BINARY_PROLOGUE, SUPERVISOR_CYCLES, CostForm, vector_slots
from abele.poplibs.popops.elementwise.fill import FillCycles
from abele.poplibs.popops.expr import Expr, _1, _2, _3
from abele.poplibs.popops.expr import exp as power
from abele.poplibs.popops.expressions.fused import fuse
from abele.poplibs.popsparse.experimental.params import SubBlockMask

MINUS_INFINITY = float("-inf")
LOWEST = -3.0e38
"""A row whose largest element is below this is hidden throughout: zeros."""


@cache
def zero_codelet(dtype: ElementType) -> type:
    """The vertex that fills a region with zeros; it costs what PopLibs' Fill does."""
    cycles_of = FillCycles(dtype)

    @codelet
    class ZeroBlocks(SupervisorVertex):
        out: Output[Vector[dtype]]

        def compute(self):
            for i in range(len(self.out)):
                self.out[i] = dtype(0.0)

        @staticmethod
        def cycles(v, ipu):
            return cycles_of(v.out, ipu)

    return ZeroBlocks


@macro
def _softmax(x, out, dtype):
    """Powers of ``x`` over their sum; zeros where all of it is minus infinity."""
    top = f32(x[0])
    for i in range(1, len(x)):
        top = max(top, f32(x[i]))
    shift = max(top, LOWEST)
    total = f32(0.0)
    for i in range(len(x)):
        power = exp(f32(x[i]) - shift)
        total += power
        out[i] = dtype(power)
    scale = f32(1.0) / (f32(1.0) if top < LOWEST else total)
    for i in range(len(x)):
        out[i] = dtype(f32(out[i]) * scale)


class RowCycles:
    """Cost of a vertex that goes over its row several times, as popnn's maps and reductions of it do.

    Args:
        dtype: Element type.
        passes: Of each pass the expression, the rows that it reads or writes beyond one, and slots per vector to add
            its result up.
        once: Slots for what is done once for the row.
    """

    def __init__(self, dtype: ElementType, passes: tuple[tuple[Expr, int, int], ...], once: int) -> None:
        self.dtype, self.passes, self.once = dtype, passes, once

    def of_worker(self, elements: Int64, ipu: Ipu) -> Int64:
        """Issue slots of the one worker that has a row of ``elements``."""
        vectors = -(-np.asarray(elements, np.int64) // ipu.vector_width(self.dtype))
        slots = sum(self._slots(ipu))
        return np.asarray(BINARY_PROLOGUE[self.dtype.name] + self.once + np.ceil(vectors * slots), np.int64)

    def of_all(self, elements: Int64, ipu: Ipu) -> Int64:
        """Tile cycles where all workers share a row: they are started for each pass."""
        vectors = -(-np.asarray(elements, np.int64) // ipu.vector_width(self.dtype))
        share, start = -(-vectors // ipu.num_workers), BINARY_PROLOGUE[self.dtype.name]
        cycles = sum(
            SUPERVISOR_CYCLES + ipu.num_workers * (start + np.ceil(share * slots)) for slots in self._slots(ipu)
        )
        # The workers' results of a pass are put together by the supervisor, one each.
        return np.asarray(cycles + ipu.num_workers * len(self.passes) + self.once, np.int64)

    def _slots(self, ipu: Ipu) -> list[float]:
        """Slots of a vector in each pass; expressions have up to three operands. Source: popops' table of costs."""
        vector = ipu.vector_width(self.dtype)
        found = []
        for expression, streams, sums in self.passes:
            fused = fuse([expression], (self.dtype,) * 3, [self.dtype])
            found.append(vector_slots(fused, CostForm(streams + 1, 1, in_place=False, rows=False), vector) + sums)
        return found


_INVERSE_SLOTS = 5
"""Slots of a division. Source: machine.md §1.3, 10 slots for two elements of f32."""


@cache
def softmax_cycles(dtype: ElementType) -> RowCycles:
    """Cost of a softmax; the largest element takes a slot for each vector, as in popops' reductions."""
    return RowCycles(dtype, ((power(_1 - _2), 1, 2), (_1 * _2, 1, 0)), _INVERSE_SLOTS)


@cache
def gradient_cycles(dtype: ElementType) -> RowCycles:
    """Cost of a gradient: the sum of products is a pass of its own."""
    return RowCycles(dtype, ((_1 * _2, 2, 0), (_1 * (_2 - _3), 2, 0)), 0)


@cache
def softmax_codelet(dtype: ElementType, in_place: bool, shared: bool) -> type:
    """The vertex of one row's softmax; ``shared`` by all workers, or on one."""

    @codelet
    class BlockRowSoftmax(SupervisorVertex if shared else Vertex):
        if in_place:
            out: InOut[Vector[dtype]]
        else:
            x: Input[Vector[dtype]]
            out: Output[Vector[dtype]]

        def compute(self):
            if in_place:
                _softmax(self.out, self.out, dtype)
            else:
                _softmax(self.x, self.out, dtype)

        @staticmethod
        def cycles(v, ipu):
            costs = softmax_cycles(dtype)
            return costs.of_all(v.out, ipu) if shared else costs.of_worker(v.out, ipu)

    return BlockRowSoftmax


@cache
def softmax_gradient_codelet(dtype: ElementType, shared: bool) -> type:
    """The vertex of y · (g − Σ g · y) for one row; ``shared`` by all workers, or on one."""

    @codelet
    class BlockRowSoftmaxGrad(SupervisorVertex if shared else Vertex):
        y: Input[Vector[dtype]]
        g: Input[Vector[dtype]]
        out: Output[Vector[dtype]]

        def compute(self):
            total = f32(0.0)
            for i in range(len(self.y)):
                total += f32(self.y[i]) * f32(self.g[i])
            for i in range(len(self.y)):
                self.out[i] = dtype(f32(self.y[i]) * (f32(self.g[i]) - total))

        @staticmethod
        def cycles(v, ipu):
            costs = gradient_cycles(dtype)
            return costs.of_all(v.out, ipu) if shared else costs.of_worker(v.out, ipu)

    return BlockRowSoftmaxGrad


# A host has the blocks of a block row in one stretch, and goes over its rows one after the other. Of blocks that the
# diagonal crosses, what a mask hides is chosen away element by element, so that all lanes do the same.


@cache
def host_softmax_codelet(dtype: ElementType, block: tuple[int, int], mask: SubBlockMask, in_place: bool) -> type:
    """The softmax of all rows of a block row, whose blocks ``x`` are at block columns ``across``."""
    height, width = block
    upper, lower = mask is SubBlockMask.ZeroUpperTriangle, mask is SubBlockMask.ZeroLowerTriangle

    @codelet(name="HostBlockSoftmax")
    class HostBlockSoftmax(Vertex):
        if in_place:
            out: InOut[Vector[dtype]]
        else:
            x: Input[Vector[dtype]]
            out: Output[Vector[dtype]]
        s: InOut[Vector[f32]]
        across: Vector[i32]
        down: i32

        def compute(self):
            count = i64(len(self.across))
            for r in range(height):
                row = height * i64(self.down) + r
                for b in range(count):
                    at = (b * height + r) * width
                    column = width * i64(self.across[b])
                    for c in range(width):
                        e = f32(self.out[at + c]) if in_place else f32(self.x[at + c])
                        if upper:
                            e = MINUS_INFINITY if column + c > row else e
                        if lower:
                            e = MINUS_INFINITY if column + c < row else e
                        self.s[b * width + c] = e
                top = f32(MINUS_INFINITY)
                for i in range(count * width):
                    top = max(top, self.s[i])
                shift = max(top, f32(LOWEST))
                total = f32(0.0)
                for i in range(count * width):
                    p = exp(self.s[i] - shift)
                    total += p
                    self.s[i] = p
                scale = f32(1.0) / (f32(1.0) if top < LOWEST else total)
                for b in range(count):
                    at = (b * height + r) * width
                    for c in range(width):
                        self.out[at + c] = dtype(self.s[b * width + c] * scale)

    return HostBlockSoftmax


@cache
def host_gradient_codelet(dtype: ElementType, block: tuple[int, int]) -> type:
    """y · (g − Σ g · y) for all rows of a block row."""
    height, width = block

    @codelet(name="HostBlockSoftmaxGrad")
    class HostBlockSoftmaxGrad(Vertex):
        y: Input[Vector[dtype]]
        g: Input[Vector[dtype]]
        out: Output[Vector[dtype]]

        def compute(self):
            count = i64(len(self.y)) // (height * width)
            for r in range(height):
                total = f32(0.0)
                for b in range(count):
                    at = (b * height + r) * width
                    for c in range(width):
                        total += f32(self.y[at + c]) * f32(self.g[at + c])
                for b in range(count):
                    at = (b * height + r) * width
                    for c in range(width):
                        self.out[at + c] = dtype(f32(self.y[at + c]) * (f32(self.g[at + c]) - total))

    return HostBlockSoftmaxGrad
