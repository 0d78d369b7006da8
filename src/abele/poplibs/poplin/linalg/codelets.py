"""The vertices of factorisations and solves on one block: scalar loops, as PopLibs' compiled C++ has them.

Those that stand for a vertex of PopLibs (``library``) cost what is published of it
(:mod:`~abele.poplibs.poplin.linalg.estimates`), the others what their loops do, by the slots in
:mod:`~abele.poplibs.poplin.linalg.costs`.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.codelet import InOut, Input, MultiVertex, Output, Vector, Vertex, codelet, sqrt
from abele.machine import Ipu
from abele.numerics import ElementType, f32, i32
from abele.poplibs.poplin.linalg import estimates
from abele.poplibs.poplin.linalg.costs import ADD, DIVIDE, ENTRY, INDEX, LOOP, SQRT, SUPERVISOR_CYCLES, LoopCosts

Formula = Callable[[Any, Ipu], Int64]


@cache
def cholesky_codelet(dtype: ElementType, library: bool) -> type:
    """The lower factor of one block ``x`` (n·n elements) in its place, zeros above the diagonal, on one worker.

    A block that is not positive definite takes the root of a negative number: not-a-number, there and below.
    """

    @codelet
    class Cholesky(Vertex):
        x: InOut[Vector[dtype]]
        n: i32
        cycles = staticmethod(estimates.formula(estimates.CHOLESKY[dtype], "n") if library else _cholesky_cycles(dtype))

        def compute(self):
            for j in range(self.n):
                d = f32(self.x[j * self.n + j])
                for k in range(j):
                    e = f32(self.x[j * self.n + k])
                    d = d - e * e
                d = sqrt(d)
                self.x[j * self.n + j] = dtype(d)
                for i in range(j + 1, self.n):
                    s = f32(self.x[i * self.n + j])
                    for k in range(j):
                        left = f32(self.x[i * self.n + k])
                        right = f32(self.x[j * self.n + k])
                        s = s - left * right
                    self.x[i * self.n + j] = dtype(s / d)
                    self.x[j * self.n + i] = dtype(0.0)

    return Cholesky


def _cholesky_cycles(dtype: ElementType) -> Formula:
    """Instructions as the codelet has them. Source: §1.2; a sixth is that of sums of squares."""
    loop = LoopCosts(dtype)

    def cycles(v: Any, ipu: Ipu) -> Int64:
        n = np.asarray(v.n, np.int64)
        rounds, below = (n + 1) * n * (n - 1) // 6, n * (n - 1) // 2
        element = 2 * INDEX + loop.load + DIVIDE + 2 * loop.store + LOOP
        diagonal = INDEX + loop.load + SQRT + loop.store + 2 * LOOP
        return np.asarray(ENTRY + rounds * loop.multiply_add(2, 0) + below * element + n * diagonal, np.int64)

    return cycles


@cache
def solve_codelet(dtype: ElementType) -> type:
    """Solve one triangular block ``a`` (n·n elements) for vectors ``b`` into ``x``, which the workers share out.

    Vectors lie one after the other, n elements each. Row i of the system, in the order of substitution, is at
    ``start`` + i·``row`` + k·``column`` of ``a`` for the unknowns k before it, and at ``first`` + i·``along`` of each
    vector. Only the triangle of ``a`` is read, and not its diagonal where ``unit`` is 1.
    """

    @codelet
    class TriangularSolve(MultiVertex):
        a: Input[Vector[dtype]]
        b: Input[Vector[dtype]]
        x: Output[Vector[dtype]]
        n: i32
        start: i32
        row: i32
        column: i32
        first: i32
        along: i32
        unit: i32
        cycles = staticmethod(_solve_cycles(dtype))

        def compute(self, worker_id):
            for j in range(worker_id, len(self.x) // self.n, 6):
                begin = j * self.n + self.first
                for i in range(self.n):
                    at = self.start + i * self.row
                    s = f32(self.b[begin + i * self.along])
                    for k in range(i):
                        left = f32(self.a[at + k * self.column])
                        right = f32(self.x[begin + k * self.along])
                        s = s - left * right
                    if self.unit == 0:
                        s = s / f32(self.a[at + i * self.column])
                    self.x[begin + i * self.along] = dtype(s)

    return TriangularSolve


@cache
def substitute_codelet(dtype: ElementType, lower: bool) -> type:
    """PopLibs' vertex: one worker solves one triangular block ``a`` (n·n elements) for one vector ``b`` into ``x``."""

    @codelet
    class TriangularSolveVector(Vertex):
        a: Input[Vector[dtype]]
        b: Input[Vector[dtype]]
        x: Output[Vector[dtype]]
        n: i32
        cycles = staticmethod(estimates.formula(estimates.SOLVE[dtype, lower], "n"))

        def compute(self):
            for q in range(self.n):
                i = q if lower else self.n - 1 - q
                s = f32(self.b[i])
                for p in range(q):
                    k = p if lower else self.n - 1 - p
                    left = f32(self.a[i * self.n + k])
                    right = f32(self.x[k])
                    s = s - left * right
                self.x[i] = dtype(s / f32(self.a[i * self.n + i]))

    return TriangularSolveVector


def _solve_cycles(dtype: ElementType) -> Formula:
    loop = LoopCosts(dtype)

    def cycles(v: Any, ipu: Ipu) -> Int64:
        n = np.asarray(v.n, np.int64)
        vectors = -(-(np.asarray(v.x, np.int64) // n) // ipu.num_workers)
        element = INDEX + loop.load + loop.store + LOOP + np.where(np.asarray(v.unit) == 0, loop.load + DIVIDE, 0)
        vector = n * (n - 1) // 2 * loop.multiply_add(1, 1) + n * element
        return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * (ENTRY + vectors * vector), np.int64)

    return cycles


@cache
def inverse_codelet(dtype: ElementType, library: bool, lower: bool) -> type:
    """The inverse ``y`` of one lower triangular block ``x`` (n·n elements), on one worker.

    ``lower`` is False where that block is the transpose of an upper one, which the library's vertex is quicker at.
    """

    @codelet
    class TriangularInverse(Vertex):
        x: Input[Vector[dtype]]
        y: Output[Vector[dtype]]
        n: i32
        cycles = staticmethod(
            estimates.formula(estimates.inverse(dtype, lower), "n") if library else _inverse_cycles(dtype)
        )

        def compute(self):
            for j in range(self.n):
                for i in range(j):
                    self.y[i * self.n + j] = dtype(0.0)
                for i in range(j, self.n):
                    s = f32(0.0)
                    if i == j:
                        s = f32(1.0)
                    for k in range(j, i):
                        left = f32(self.x[i * self.n + k])
                        right = f32(self.y[k * self.n + j])
                        s = s - left * right
                    s = s / f32(self.x[i * self.n + i])
                    self.y[i * self.n + j] = dtype(s)

    return TriangularInverse


def _inverse_cycles(dtype: ElementType) -> Formula:
    """Instructions as the codelet has them. Source: §1.2; a sixth is that of sums of squares."""
    loop = LoopCosts(dtype)

    def cycles(v: Any, ipu: Ipu) -> Int64:
        n = np.asarray(v.n, np.int64)
        rounds, elements = (n + 1) * n * (n - 1) // 6, n * (n + 1) // 2
        element = 2 * INDEX + loop.load + ADD + DIVIDE + loop.store + LOOP
        zero = INDEX + loop.store + LOOP
        total = rounds * loop.multiply_add(2, 0) + elements * element + (n * n - elements) * zero
        return np.asarray(ENTRY + total, np.int64)

    return cycles
