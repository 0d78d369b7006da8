"""The vertices of tile low-rank products: dot products of rows with vectors, and sums of partial results.

A matrix with a few vectors leaves the matrix units without work: each weight is used once. PopLibs multiplies such
operands with its horizontal multiply-accumulate (``ConvPartialHorizontalMac``), and so do these: a position is a row of
a factor, in-channels are its columns, out-channels the vectors.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.codelet import SPAN, Input, Output, SupervisorVertex, Vector, Vertex, codelet
from abele.numerics import ElementType, f16, f32, i32
from abele.poplibs.poplin.vertices import cost
from abele.poplibs.poplin.vertices.work import Work

_NARROWED = 4
"""Slots of an f32 sum that is stored as f16: a conversion, and a store of half a word. Source: machine.md §1.2, §6."""


def product_cycles(dtype: ElementType, output: ElementType | None, rows: Any, columns: Any, batch: Any) -> Int64:
    """Tile cycles of ``rows`` × ``columns`` dot products with ``batch`` vectors, shared by the workers.

    Args:
        dtype: Type of the factors and vectors.
        output: Type of the results; None for f32.
        rows: Rows of each vertex, int64[n].
        columns: Columns of each, int64[n].
        batch: Vectors of each, int64[n] or a number.

    Source: :func:`abele.poplibs.poplin.vertices.cost.hmac`.
    """
    rows, columns, batch = np.broadcast_arrays(*(np.asarray(n, np.int64) for n in (rows, columns, batch)))
    one = np.ones_like(rows)
    work = Work(
        dtype=dtype,
        partials=f32,
        groups=one,
        in_channels=columns,
        out_channels=batch,
        positions=rows,
        outputs=rows,
        run=rows,
        kernel_outer=one,
        kernel_inner=one,
    )
    narrowed = _NARROWED * cost.WORKERS * cost.ceil_div(rows, cost.WORKERS) * batch if output == f16 else 0
    return np.asarray(cost.hmac(work) + narrowed, np.int64)


@cache
def products_codelet(dtype: ElementType, output: ElementType) -> type:
    """Rows of a factor times vectors: ``out`` [batch, rows] of ``m`` [rows, stride] and ``x`` [batch, columns]."""

    @codelet
    class LowRankProducts(SupervisorVertex):
        m: Input[Vector[dtype, SPAN, 8]]
        x: Input[Vector[dtype, SPAN, 8]]
        out: Output[Vector[output]]
        rows: i32
        columns: i32
        stride: i32
        batch: i32

        def compute(self):
            for r in range(self.rows):
                for b in range(self.batch):
                    total = f32(0.0)
                    for c in range(self.columns):
                        total += f32(self.m[r * self.stride + c]) * f32(self.x[b * self.columns + c])
                    self.out[b * self.rows + r] = output(total)

        @staticmethod
        def cycles(v, ipu):
            return product_cycles(dtype, output, v.rows, v.columns, v.batch)

    return LowRankProducts


@cache
def sums_codelet(output: ElementType) -> type:
    """Sums of rows ``x``, each as long as ``out``; zeros where there are none."""

    @codelet
    class LowRankSums(SupervisorVertex):
        x: Vector[Input[Vector[f32]]]
        out: Output[Vector[output]]

        def compute(self):
            for i in range(len(self.out)):
                total = f32(0.0)
                for r in range(len(self.x)):
                    total += self.x[r][i]
                self.out[i] = output(total)

        @staticmethod
        def cycles(v, ipu):
            return cost.reduce_add_list(v.out, v.x.rows, f32, output)

    return LowRankSums


@cache
def host_sums_codelet(output: ElementType) -> type:
    """A host's sums of the partial results [batch, rows] of a part of a block row, into ``out`` [batch, rows]."""

    @codelet(name="HostLowRankSums")
    class HostLowRankSums(Vertex):
        x: Input[Vector[f32]]
        total: Output[Vector[f32]]
        out: Vector[Output[Vector[output]]]

        def compute(self):
            size = len(self.total)
            for i in range(size):
                self.total[i] = f32(0.0)
            for s in range(len(self.x) // size):
                for i in range(size):
                    self.total[i] += self.x[s * size + i]
            rows = size // len(self.out)
            for b in range(len(self.out)):
                for i in range(rows):
                    self.out[b][i] = output(self.total[b * rows + i])

    return HostLowRankSums
