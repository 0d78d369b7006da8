"""The vertices of factorisations by columns: each holds some rows of a matrix, and learns of one row per step.

Workers take equal stretches of columns, so that tiles with a single row keep all of them busy. Which column the step is
about comes with it, so costs are means over the steps: half of the columns are to the right.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.codelet import InOut, Input, MultiVertex, Output, Vector, codelet, macro, sqrt
from abele.machine import Ipu
from abele.numerics import ElementType, f32, i32, u32
from abele.poplibs.poplin.linalg.costs import (
    ADD,
    DIVIDE,
    ENTRY,
    INDEX,
    LOOP,
    MULTIPLY,
    SQRT,
    SUPERVISOR_CYCLES,
    LoopCosts,
)


@macro
def _stretch(start, stop, worker_id):
    """The worker's stretch of the columns from ``start`` to ``stop``."""
    begin = start + worker_id * ((stop - start + 5) // 6)
    end = min(begin + (stop - start + 5) // 6, stop)
    return begin, end


@macro
def _copy_column(self, k):
    """Column k of the rows here, in f32."""
    for i in range(len(self.column)):
        self.column[i] = f32(self.a[i * self.n + k])


@cache
def partials_codelet(dtype: ElementType) -> type:
    """Vertex type for one step of Householder's method: partial sums over some rows of ``a`` beside ``q``.

    ``sums`` gets, for every column, Σ a[i, k]·column[i] over the rows i ≥ k; ``pivot`` row k, or zeros where it is on
    another tile; ``column`` column k of these rows. ``n`` and ``m`` are the columns of ``a`` and ``q``, ``first`` the
    number of the first row. Its cost counts its instructions. Source: §1.2.
    """
    loop = LoopCosts(dtype)

    @codelet
    class HouseholderPartials(MultiVertex):
        a: Input[Vector[dtype]]
        q: Input[Vector[dtype]]
        at: Input[u32]
        sums: Output[Vector[f32]]
        pivot: Output[Vector[f32]]
        column: Output[Vector[f32]]
        n: i32
        m: i32
        first: i32

        def compute(self, worker_id):
            k = i32(self.at)
            row = k - self.first
            rows = len(self.column)
            # Workers share the columns, so each sum has one owner. First the columns of `a`.
            begin, end = _stretch(0, self.n, worker_id)
            for j in range(begin, end):
                self.sums[j] = 0.0
                self.pivot[j] = 0.0
            for i in range(max(row, 0), rows):
                left = f32(self.a[i * self.n + k])
                for j in range(begin, end):
                    right = f32(self.a[i * self.n + j])
                    self.sums[j] = self.sums[j] + left * right
            # Row k is on one tile alone; the zeros of the others drop out of the sum over tiles.
            if row >= 0 and row < rows:
                for j in range(begin, end):
                    self.pivot[j] = f32(self.a[row * self.n + j])
            # The same for the columns of `q`, behind those of `a` in the results.
            begin, end = _stretch(0, self.m, worker_id)
            for j in range(begin, end):
                self.sums[self.n + j] = 0.0
                self.pivot[self.n + j] = 0.0
            for i in range(max(row, 0), rows):
                left = f32(self.a[i * self.n + k])
                for j in range(begin, end):
                    right = f32(self.q[i * self.m + j])
                    self.sums[self.n + j] = self.sums[self.n + j] + left * right
            if row >= 0 and row < rows:
                for j in range(begin, end):
                    self.pivot[self.n + j] = f32(self.q[row * self.m + j])
            if worker_id == 0:
                _copy_column(self, k)

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            columns, rows = np.asarray(v.sums, np.int64), np.asarray(v.column, np.int64)
            each = rows * _sum_slots(loop) + 2 * (INDEX + LOOP) + loop.load + 3
            slots = ENTRY + -(-columns // ipu.num_workers) * each + rows * (INDEX + loop.load + 1 + LOOP)
            return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * slots, np.int64)

    return HouseholderPartials


def _sum_slots(loop: LoopCosts) -> int:
    """Slots of a round that adds a product with a number in a register to an f32 in memory."""
    return INDEX + loop.load + 1 + MULTIPLY + ADD + 1 + LOOP


@cache
def reflect_codelet(dtype: ElementType) -> type:
    """Reflect some rows of ``a`` and ``q`` so that column k of ``a``, ``column``, becomes zero below row k.

    With s and p the sums of :func:`partials_codelet` over all tiles and its pivot row: the reflection's vector v is
    column k from row k on, its first element p[k] less ``alpha`` = −sign(p[k])·√s[k]; vᵀ·column is s − alpha·p; and
    2 / vᵀv is 1 / (s[k] − alpha·p[k]). A column that is zero already is left alone. Its cost counts its
    instructions. Source: §1.2.
    """
    loop = LoopCosts(dtype)

    @codelet
    class HouseholderReflect(MultiVertex):
        a: InOut[Vector[dtype]]
        q: InOut[Vector[dtype]]
        at: Input[u32]
        sums: Input[Vector[f32]]
        pivot: Input[Vector[f32]]
        column: Input[Vector[f32]]
        n: i32
        m: i32
        first: i32

        def compute(self, worker_id):
            k = i32(self.at)
            row = k - self.first
            norm = sqrt(self.sums[k])
            alpha = -norm if self.pivot[k] >= f32(0.0) else norm
            below = self.sums[k] - alpha * self.pivot[k]
            if below > f32(0.0):
                for i in range(max(row, 0), len(self.column)):
                    v = self.column[i]
                    if i == row:
                        v = v - alpha
                    v = v / below
                    begin, end = _stretch(k + 1, self.n, worker_id)
                    for j in range(begin, end):
                        w = self.sums[j] - alpha * self.pivot[j]
                        old = f32(self.a[i * self.n + j])
                        self.a[i * self.n + j] = dtype(old - v * w)
                    begin, end = _stretch(0, self.m, worker_id)
                    for j in range(begin, end):
                        w = self.sums[self.n + j] - alpha * self.pivot[self.n + j]
                        old = f32(self.q[i * self.m + j])
                        self.q[i * self.m + j] = dtype(old - v * w)
                    if worker_id == 0:
                        self.a[i * self.n + k] = dtype(alpha if i == row else f32(0.0))

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            n, m, rows = (np.asarray(x, np.int64) for x in (v.n, v.m, v.column))
            share = -(-(n // 2 + m) // ipu.num_workers)
            row = share * (loop.update() + 1 + MULTIPLY + ADD) + 1 + DIVIDE + INDEX + loop.store + 4 * LOOP
            return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * (ENTRY + SQRT + rows * row), np.int64)

    return HouseholderReflect


@cache
def publish_codelet(dtype: ElementType) -> type:
    """Row k of ``a``, as f32, or zeros where none of the rows here is row k; and column k of these rows."""
    loop = LoopCosts(dtype)

    @codelet
    class PublishRow(MultiVertex):
        a: Input[Vector[dtype]]
        at: Input[u32]
        pivot: Output[Vector[f32]]
        column: Output[Vector[f32]]
        n: i32
        first: i32

        def compute(self, worker_id):
            k = i32(self.at)
            row = k - self.first
            begin, end = _stretch(0, self.n, worker_id)
            for j in range(begin, end):
                self.pivot[j] = 0.0
            if row >= 0 and row < len(self.column):
                for j in range(begin, end):
                    self.pivot[j] = f32(self.a[row * self.n + j])
            if worker_id == 0:
                _copy_column(self, k)

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            columns, rows = np.asarray(v.pivot, np.int64), np.asarray(v.column, np.int64)
            share = -(-columns // ipu.num_workers)
            slots = ENTRY + share * (INDEX + loop.load + 2 + 2 * LOOP) + rows * (INDEX + loop.load + 1 + LOOP)
            return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * slots, np.int64)

    return PublishRow


@cache
def eliminate_codelet(dtype: ElementType) -> type:
    """Take from some rows of ``a`` so much of row k, ``pivot``, that column k, ``column``, becomes zero below it.

    The factors are left in column k.
    """
    loop = LoopCosts(dtype)

    @codelet
    class EliminateRows(MultiVertex):
        a: InOut[Vector[dtype]]
        at: Input[u32]
        pivot: Input[Vector[f32]]
        column: Input[Vector[f32]]
        n: i32
        first: i32

        def compute(self, worker_id):
            k = i32(self.at)
            begin, end = _stretch(k + 1, self.n, worker_id)
            for i in range(max(k + 1 - self.first, 0), len(self.column)):
                factor = self.column[i] / self.pivot[k]
                for j in range(begin, end):
                    old = f32(self.a[i * self.n + j])
                    self.a[i * self.n + j] = dtype(old - factor * self.pivot[j])
                if worker_id == 0:
                    self.a[i * self.n + k] = dtype(factor)

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            n, rows = np.asarray(v.pivot, np.int64), np.asarray(v.column, np.int64)
            row = -(-n // (2 * ipu.num_workers)) * loop.update() + 1 + DIVIDE + INDEX + loop.store + 2 * LOOP
            return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * (ENTRY + rows * row), np.int64)

    return EliminateRows
