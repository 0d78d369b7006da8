"""The vertices of factorisations by columns: each holds some rows of a matrix, and learns of one row per step.

Workers take equal stretches of columns, so that tiles with a single row keep all of them busy. Which column the step is
about comes with it, so costs are means over the steps: half of the columns are to the right.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.machine import Ipu
from abele.numerics import ElementType
from abele.poplibs.poplin.linalg.codelets import narrow, wide
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
from abele.poplibs.popops.expressions.generated import build

Int64 = npt.NDArray[np.int64]


def _stretch(start: str, stop: str) -> list[str]:
    """Statements for ``begin`` and ``end``, a worker's stretch of the columns from ``start`` to ``stop``."""
    width = f"({stop} - {start} + 5) // 6"
    return [f"begin = {start} + worker_id * ({width})", f"end = min(begin + {width}, {stop})"]


@lru_cache(maxsize=16)
def partials_codelet(dtype: ElementType) -> type:
    """What a step of Householder's method needs of some rows of ``a`` beside ``q``.

    ``sums`` gets, for every column, Σ a[i, k]·column[i] over the rows i ≥ k; ``pivot`` row k, or zeros where it is on
    another tile; ``column`` column k of these rows. ``n`` and ``m`` are the columns of ``a`` and ``q``, ``first`` the
    number of the first row.
    """
    name = dtype.name
    fields = [f"a: Input[Vector[{name}]]", f"q: Input[Vector[{name}]]", "at: Input[u32]"]
    fields += [f"{out}: Output[Vector[f32]]" for out in ("sums", "pivot", "column")]
    fields += ["n: i32", "m: i32", "first: i32"]
    lines = ["k = i32(self.at)", "row = k - self.first", "rows = len(self.column)"]
    for part, size, offset in (("a", "n", ""), ("q", "m", "self.n + ")):
        lines += [
            *_stretch("0", f"self.{size}"),
            "for j in range(begin, end):",
            f"    self.sums[{offset}j] = 0.0",
            f"    self.pivot[{offset}j] = 0.0",
            "for i in range(max(row, 0), rows):",
            f"    left = {wide('self.a[i * self.n + k]', dtype)}",
            "    for j in range(begin, end):",
            f"        right = {wide(f'self.{part}[i * self.{size} + j]', dtype)}",
            f"        self.sums[{offset}j] = self.sums[{offset}j] + left * right",
            "if row >= 0 and row < rows:",
            "    for j in range(begin, end):",
            f"        self.pivot[{offset}j] = {wide(f'self.{part}[row * self.{size} + j]', dtype)}",
        ]
    lines += ["if worker_id == 0:", *(f"    {line}" for line in _copy_column(dtype))]
    loop = LoopCosts(dtype)

    def cycles(v: Any, ipu: Ipu) -> Int64:
        columns, rows = np.asarray(v.sums, np.int64), np.asarray(v.column, np.int64)
        each = rows * _sum_slots(loop) + 2 * (INDEX + LOOP) + loop.load + 3
        slots = ENTRY + -(-columns // ipu.num_workers) * each + rows * (INDEX + loop.load + 1 + LOOP)
        return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * slots, np.int64)

    return build("HouseholderPartials", "MultiVertex", fields, lines, cycles, extra=dtype)


def _copy_column(dtype: ElementType) -> list[str]:
    return ["for i in range(len(self.column)):", f"    self.column[i] = {wide('self.a[i * self.n + k]', dtype)}"]


def _sum_slots(loop: LoopCosts) -> int:
    """Slots of a round that adds a product with a number in a register to an f32 in memory."""
    return INDEX + loop.load + 1 + MULTIPLY + ADD + 1 + LOOP


@lru_cache(maxsize=16)
def reflect_codelet(dtype: ElementType) -> type:
    """Reflect some rows of ``a`` and ``q`` so that column k of ``a``, ``column``, becomes zero below row k.

    With s and p the sums of :func:`partials_codelet` over all tiles and its pivot row: the reflection's vector v is
    column k from row k on, its first element p[k] less ``alpha`` = −sign(p[k])·√s[k]; vᵀ·column is s − alpha·p; and
    2 / vᵀv is 1 / (s[k] − alpha·p[k]). A column that is zero already is left alone.
    """
    name = dtype.name
    fields = [f"a: InOut[Vector[{name}]]", f"q: InOut[Vector[{name}]]", "at: Input[u32]"]
    fields += [f"{given}: Input[Vector[f32]]" for given in ("sums", "pivot", "column")]
    fields += ["n: i32", "m: i32", "first: i32"]
    lines = [
        "k = i32(self.at)",
        "row = k - self.first",
        "norm = sqrt(self.sums[k])",
        "alpha = -norm if self.pivot[k] >= f32(0.0) else norm",
        "below = self.sums[k] - alpha * self.pivot[k]",
        "if below > f32(0.0):",
        "    for i in range(max(row, 0), len(self.column)):",
        "        v = self.column[i]",
        "        if i == row:",
        "            v = v - alpha",
        "        v = v / below",
    ]
    for part, size, offset, start in (("a", "n", "", "k + 1"), ("q", "m", "self.n + ", "0")):
        body = [
            *_stretch(start, f"self.{size}"),
            "for j in range(begin, end):",
            f"    w = self.sums[{offset}j] - alpha * self.pivot[{offset}j]",
            f"    old = {wide(f'self.{part}[i * self.{size} + j]', dtype)}",
            f"    self.{part}[i * self.{size} + j] = {narrow('old - v * w', dtype)}",
        ]
        lines += [f"        {line}" for line in body]
    lines += [
        "        if worker_id == 0:",
        f"            self.a[i * self.n + k] = {narrow('alpha if i == row else f32(0.0)', dtype)}",
    ]
    loop = LoopCosts(dtype)

    def cycles(v: Any, ipu: Ipu) -> Int64:
        n, m, rows = (np.asarray(x, np.int64) for x in (v.n, v.m, v.column))
        share = -(-(n // 2 + m) // ipu.num_workers)
        row = share * (loop.update() + 1 + MULTIPLY + ADD) + 1 + DIVIDE + INDEX + loop.store + 4 * LOOP
        return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * (ENTRY + SQRT + rows * row), np.int64)

    return build("HouseholderReflect", "MultiVertex", fields, lines, cycles, extra=dtype)


@lru_cache(maxsize=16)
def publish_codelet(dtype: ElementType) -> type:
    """Row k of ``a``, as f32, or zeros where none of the rows here is row k; and column k of these rows."""
    fields = [f"a: Input[Vector[{dtype.name}]]", "at: Input[u32]"]
    fields += ["pivot: Output[Vector[f32]]", "column: Output[Vector[f32]]", "n: i32", "first: i32"]
    lines = [
        "k = i32(self.at)",
        "row = k - self.first",
        *_stretch("0", "self.n"),
        "for j in range(begin, end):",
        "    self.pivot[j] = 0.0",
        "if row >= 0 and row < len(self.column):",
        "    for j in range(begin, end):",
        f"        self.pivot[j] = {wide('self.a[row * self.n + j]', dtype)}",
        "if worker_id == 0:",
        *(f"    {line}" for line in _copy_column(dtype)),
    ]
    loop = LoopCosts(dtype)

    def cycles(v: Any, ipu: Ipu) -> Int64:
        columns, rows = np.asarray(v.pivot, np.int64), np.asarray(v.column, np.int64)
        share = -(-columns // ipu.num_workers)
        slots = ENTRY + share * (INDEX + loop.load + 2 + 2 * LOOP) + rows * (INDEX + loop.load + 1 + LOOP)
        return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * slots, np.int64)

    return build("PublishRow", "MultiVertex", fields, lines, cycles, extra=dtype)


@lru_cache(maxsize=16)
def eliminate_codelet(dtype: ElementType) -> type:
    """Take from some rows of ``a`` so much of row k, ``pivot``, that column k, ``column``, becomes zero below it.

    The factors are left in column k.
    """
    fields = [f"a: InOut[Vector[{dtype.name}]]", "at: Input[u32]"]
    fields += ["pivot: Input[Vector[f32]]", "column: Input[Vector[f32]]", "n: i32", "first: i32"]
    lines = [
        "k = i32(self.at)",
        *_stretch("k + 1", "self.n"),
        "for i in range(max(k + 1 - self.first, 0), len(self.column)):",
        "    factor = self.column[i] / self.pivot[k]",
        "    for j in range(begin, end):",
        f"        old = {wide('self.a[i * self.n + j]', dtype)}",
        f"        self.a[i * self.n + j] = {narrow('old - factor * self.pivot[j]', dtype)}",
        "    if worker_id == 0:",
        f"        self.a[i * self.n + k] = {narrow('factor', dtype)}",
    ]
    loop = LoopCosts(dtype)

    def cycles(v: Any, ipu: Ipu) -> Int64:
        n, rows = np.asarray(v.pivot, np.int64), np.asarray(v.column, np.int64)
        row = -(-n // (2 * ipu.num_workers)) * loop.update() + 1 + DIVIDE + INDEX + loop.store + 2 * LOOP
        return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * (ENTRY + rows * row), np.int64)

    return build("EliminateRows", "MultiVertex", fields, lines, cycles, extra=dtype)
