"""The vertices of factorisations and solves on one block: scalar loops, as PopLibs' compiled C++ has them.

Their costs are made of the slots in :mod:`~abele.poplibs.poplin.linalg.costs`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.machine import Ipu
from abele.numerics import ElementType, f32
from abele.poplibs.poplin.linalg.costs import ADD, DIVIDE, ENTRY, INDEX, LOOP, SQRT, SUPERVISOR_CYCLES, LoopCosts
from abele.poplibs.popops.expressions.generated import build, type_name

Int64 = npt.NDArray[np.int64]
Formula = Callable[[Any, Ipu], Int64]


@lru_cache(maxsize=16)
def cholesky_codelet(dtype: ElementType) -> type:
    """The lower factor of one block ``x`` (n·n elements) in its place, zeros above the diagonal, on one worker.

    A block that is not positive definite takes the root of a negative number: not-a-number, there and below.
    """
    fields = [f"x: InOut[Vector[{dtype.name}]]", "n: i32"]
    lines = [
        "for j in range(self.n):",
        f"    d = {wide('self.x[j * self.n + j]', dtype)}",
        "    for k in range(j):",
        f"        e = {wide('self.x[j * self.n + k]', dtype)}",
        "        d = d - e * e",
        "    d = sqrt(d)",
        f"    self.x[j * self.n + j] = {narrow('d', dtype)}",
        "    for i in range(j + 1, self.n):",
        f"        s = {wide('self.x[i * self.n + j]', dtype)}",
        "        for k in range(j):",
        f"            left = {wide('self.x[i * self.n + k]', dtype)}",
        f"            right = {wide('self.x[j * self.n + k]', dtype)}",
        "            s = s - left * right",
        f"        self.x[i * self.n + j] = {narrow('s / d', dtype)}",
        f"        self.x[j * self.n + i] = {narrow('f32(0.0)', dtype)}",
    ]
    return build("Cholesky", "Vertex", fields, lines, _cholesky_cycles(dtype), extra=dtype)


def _cholesky_cycles(dtype: ElementType) -> Formula:
    loop = LoopCosts(dtype)

    def cycles(v: Any, ipu: Ipu) -> Int64:
        n = np.asarray(v.n, np.int64)
        rounds, below = (n + 1) * n * (n - 1) // 6, n * (n - 1) // 2
        element = 2 * INDEX + loop.load + DIVIDE + 2 * loop.store + LOOP
        diagonal = INDEX + loop.load + SQRT + loop.store + 2 * LOOP
        return np.asarray(ENTRY + rounds * loop.multiply_add(2, 0) + below * element + n * diagonal, np.int64)

    return cycles


@lru_cache(maxsize=16)
def solve_codelet(dtype: ElementType) -> type:
    """Solve one triangular block ``a`` (n·n elements) for vectors ``b`` into ``x``, which the workers share out.

    Vectors lie one after the other, n elements each. Row i of the system, in the order of substitution, is at
    ``start`` + i·``row`` + k·``column`` of ``a`` for the unknowns k before it, and at ``first`` + i·``along`` of each
    vector. Only the triangle of ``a`` is read, and not its diagonal where ``unit`` is 1.
    """
    fields = [f"a: Input[Vector[{dtype.name}]]", f"b: Input[Vector[{dtype.name}]]", f"x: Output[Vector[{dtype.name}]]"]
    fields += [f"{name}: i32" for name in ("n", "start", "row", "column", "first", "along", "unit")]
    lines = [
        "for j in range(worker_id, len(self.x) // self.n, 6):",
        "    begin = j * self.n + self.first",
        "    for i in range(self.n):",
        "        at = self.start + i * self.row",
        f"        s = {wide('self.b[begin + i * self.along]', dtype)}",
        "        for k in range(i):",
        f"            left = {wide('self.a[at + k * self.column]', dtype)}",
        f"            right = {wide('self.x[begin + k * self.along]', dtype)}",
        "            s = s - left * right",
        "        if self.unit == 0:",
        f"            s = s / {wide('self.a[at + i * self.column]', dtype)}",
        f"        self.x[begin + i * self.along] = {narrow('s', dtype)}",
    ]
    return build("TriangularSolve", "MultiVertex", fields, lines, _solve_cycles(dtype), extra=dtype)


def _solve_cycles(dtype: ElementType) -> Formula:
    loop = LoopCosts(dtype)

    def cycles(v: Any, ipu: Ipu) -> Int64:
        n = np.asarray(v.n, np.int64)
        vectors = -(-(np.asarray(v.x, np.int64) // n) // ipu.num_workers)
        element = INDEX + loop.load + loop.store + LOOP + np.where(np.asarray(v.unit) == 0, loop.load + DIVIDE, 0)
        vector = n * (n - 1) // 2 * loop.multiply_add(1, 1) + n * element
        return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * (ENTRY + vectors * vector), np.int64)

    return cycles


@lru_cache(maxsize=16)
def inverse_codelet(dtype: ElementType) -> type:
    """The inverse ``y`` of one lower triangular block ``x`` (n·n elements), on one worker."""
    fields = [f"x: Input[Vector[{dtype.name}]]", f"y: Output[Vector[{dtype.name}]]", "n: i32"]
    lines = [
        "for j in range(self.n):",
        "    for i in range(j):",
        f"        self.y[i * self.n + j] = {narrow('f32(0.0)', dtype)}",
        "    for i in range(j, self.n):",
        "        s = f32(0.0)",
        "        if i == j:",
        "            s = f32(1.0)",
        "        for k in range(j, i):",
        f"            left = {wide('self.x[i * self.n + k]', dtype)}",
        f"            right = {wide('self.y[k * self.n + j]', dtype)}",
        "            s = s - left * right",
        f"        s = s / {wide('self.x[i * self.n + i]', dtype)}",
        f"        self.y[i * self.n + j] = {narrow('s', dtype)}",
    ]
    return build("TriangularInverse", "Vertex", fields, lines, _inverse_cycles(dtype), extra=dtype)


def _inverse_cycles(dtype: ElementType) -> Formula:
    loop = LoopCosts(dtype)

    def cycles(v: Any, ipu: Ipu) -> Int64:
        n = np.asarray(v.n, np.int64)
        rounds, elements = (n + 1) * n * (n - 1) // 6, n * (n + 1) // 2
        element = 2 * INDEX + loop.load + ADD + DIVIDE + loop.store + LOOP
        zero = INDEX + loop.store + LOOP
        total = rounds * loop.multiply_add(2, 0) + elements * element + (n * n - elements) * zero
        return np.asarray(ENTRY + total, np.int64)

    return cycles


def wide(text: str, dtype: ElementType) -> str:
    """An element as f32."""
    return text if dtype == f32 else f"f32({text})"


def narrow(text: str, dtype: ElementType) -> str:
    """An f32 as an element."""
    return text if dtype == f32 else f"{type_name(dtype)}({text})"
