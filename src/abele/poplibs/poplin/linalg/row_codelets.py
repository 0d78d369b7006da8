"""The vertices of factorisations by columns: each holds some rows of a matrix, and learns of one row or column a step.

Which column it is comes with every step, so costs are means over the steps: half of the columns to the right.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.machine import Ipu
from abele.numerics import ElementType
from abele.poplibs.poplin.linalg.codelets import narrow, wide
from abele.poplibs.poplin.linalg.costs import ADD, DIVIDE, ENTRY, INDEX, LOOP, MULTIPLY, SQRT, SUPERVISOR_CYCLES, Loop
from abele.poplibs.popops.generated import build

Int64 = npt.NDArray[np.int64]


@lru_cache(maxsize=16)
def partials_codelet(dtype: ElementType) -> type:
    """What a step of Householder's method needs of some rows of ``a`` beside ``q``.

    ``sums`` gets, for every column, Σ a[i, k]·column[i] over the rows i ≥ k; ``pivot`` row k, or zeros where it is on
    another tile. ``n`` and ``m`` are the columns of ``a`` and ``q``, ``first`` the number of the first row. Workers
    share out the columns.
    """
    name = dtype.name
    fields = [f"a: Input[Vector[{name}]]", f"q: Input[Vector[{name}]]", "at: Input[u32]"]
    fields += ["sums: Output[Vector[f32]]", "pivot: Output[Vector[f32]]", "n: i32", "m: i32", "first: i32"]
    lines = ["k = i32(self.at)", "row = k - self.first", "rows = len(self.a) // self.n"]
    for part, size, offset in (("a", "n", ""), ("q", "m", "self.n + ")):
        lines += [
            f"for j in range(worker_id, self.{size}, 6):",
            "    s = f32(0.0)",
            "    for i in range(max(row, 0), rows):",
            f"        right = {wide(f'self.{part}[i * self.{size} + j]', dtype)}",
            f"        s = s + {wide('self.a[i * self.n + k]', dtype)} * right",
            "    p = f32(0.0)",
            "    if row >= 0 and row < rows:",
            f"        p = {wide(f'self.{part}[row * self.{size} + j]', dtype)}",
            f"    self.sums[{offset}j] = s",
            f"    self.pivot[{offset}j] = p",
        ]
    loop = Loop(dtype)

    def cycles(v: Any, ipu: Ipu) -> Int64:
        columns, rows = np.asarray(v.sums, np.int64), np.asarray(v.a, np.int64) // np.asarray(v.n, np.int64)
        column = rows * loop.multiply_add(2, 0) + 2 * INDEX + loop.load + 2 + 2 * LOOP
        return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * (ENTRY + -(-columns // ipu.num_workers) * column))

    return build("HouseholderPartials", "MultiVertex", fields, lines, cycles, extra=dtype)


@lru_cache(maxsize=16)
def reflect_codelet(dtype: ElementType) -> type:
    """Reflect some rows of ``a`` and ``q`` so that column k of ``a`` becomes zero below row k; workers share the rows.

    With s and p the sums of :func:`partials_codelet` over all tiles and its pivot row: the reflection's vector v is
    column k from row k on, its first element p[k] less ``alpha`` = −sign(p[k])·√s[k]; vᵀ·column is s − alpha·p; and
    2 / vᵀv is 1 / (s[k] − alpha·p[k]). A column that is zero already is left alone.
    """
    name = dtype.name
    fields = [f"a: InOut[Vector[{name}]]", f"q: InOut[Vector[{name}]]", "at: Input[u32]"]
    fields += ["sums: Input[Vector[f32]]", "pivot: Input[Vector[f32]]", "n: i32", "m: i32", "first: i32"]
    lines = [
        "k = i32(self.at)",
        "rows = len(self.a) // self.n",
        "norm = sqrt(self.sums[k])",
        "alpha = -norm if self.pivot[k] >= f32(0.0) else norm",
        "below = self.sums[k] - alpha * self.pivot[k]",
        "if below > f32(0.0):",
        "    for i in range(worker_id, rows, 6):",
        "        if i + self.first >= k:",
        f"            v = {wide('self.a[i * self.n + k]', dtype)}",
        "            if i + self.first == k:",
        "                v = v - alpha",
        "            v = v / below",
        "            for j in range(k + 1, self.n):",
        "                w = self.sums[j] - alpha * self.pivot[j]",
        f"                old = {wide('self.a[i * self.n + j]', dtype)}",
        f"                self.a[i * self.n + j] = {narrow('old - v * w', dtype)}",
        "            for j in range(self.m):",
        "                w = self.sums[self.n + j] - alpha * self.pivot[self.n + j]",
        f"                old = {wide('self.q[i * self.m + j]', dtype)}",
        f"                self.q[i * self.m + j] = {narrow('old - v * w', dtype)}",
        "            if i + self.first == k:",
        f"                self.a[i * self.n + k] = {narrow('alpha', dtype)}",
        "            else:",
        f"                self.a[i * self.n + k] = {narrow('f32(0.0)', dtype)}",
    ]
    loop = Loop(dtype)

    def cycles(v: Any, ipu: Ipu) -> Int64:
        n, m, total = (np.asarray(x, np.int64) for x in (v.n, v.m, v.a))
        rows = -(-(total // n) // ipu.num_workers)
        row = (n // 2 + m) * (loop.update() + MULTIPLY + ADD) + 2 * INDEX + loop.load + DIVIDE + loop.store + 3 * LOOP
        return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * (ENTRY + SQRT + rows * row), np.int64)

    return build("HouseholderReflect", "MultiVertex", fields, lines, cycles, extra=dtype)


@lru_cache(maxsize=16)
def publish_codelet(dtype: ElementType) -> type:
    """Row k of ``a``, as f32, or zeros where none of the rows here is row k; workers share the columns."""
    fields = [f"a: Input[Vector[{dtype.name}]]", "at: Input[u32]", "pivot: Output[Vector[f32]]", "first: i32"]
    lines = [
        "row = i32(self.at) - self.first",
        "n = len(self.pivot)",
        "for j in range(worker_id, n, 6):",
        "    p = f32(0.0)",
        "    if row >= 0 and row * n < len(self.a):",
        f"        p = {wide('self.a[row * n + j]', dtype)}",
        "    self.pivot[j] = p",
    ]
    loop = Loop(dtype)

    def cycles(v: Any, ipu: Ipu) -> Int64:
        share = -(-np.asarray(v.pivot, np.int64) // ipu.num_workers)
        element = INDEX + loop.load + 1 + 2 * LOOP
        return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * (ENTRY + share * element), np.int64)

    return build("PublishRow", "MultiVertex", fields, lines, cycles, extra=dtype)


@lru_cache(maxsize=16)
def eliminate_codelet(dtype: ElementType) -> type:
    """Take from some rows of ``a`` so much of row k, ``pivot``, that column k becomes zero below it.

    The factors are left in column k. Workers share the rows.
    """
    fields = [f"a: InOut[Vector[{dtype.name}]]", "at: Input[u32]", "pivot: Input[Vector[f32]]", "first: i32"]
    lines = [
        "k = i32(self.at)",
        "n = len(self.pivot)",
        "for i in range(worker_id, len(self.a) // n, 6):",
        "    if i + self.first > k:",
        f"        factor = {wide('self.a[i * n + k]', dtype)} / self.pivot[k]",
        f"        self.a[i * n + k] = {narrow('factor', dtype)}",
        "        for j in range(k + 1, n):",
        f"            old = {wide('self.a[i * n + j]', dtype)}",
        f"            self.a[i * n + j] = {narrow('old - factor * self.pivot[j]', dtype)}",
    ]
    loop = Loop(dtype)

    def cycles(v: Any, ipu: Ipu) -> Int64:
        n = np.asarray(v.pivot, np.int64)
        rows = -(-(np.asarray(v.a, np.int64) // n) // ipu.num_workers)
        row = n // 2 * loop.update() + 2 * INDEX + loop.load + DIVIDE + loop.store + 2 * LOOP
        return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * (ENTRY + rows * row), np.int64)

    return build("EliminateRows", "MultiVertex", fields, lines, cycles, extra=dtype)
