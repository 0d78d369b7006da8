"""The vertices that test, count and sum up elements in order."""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.codelet import InOut, Input, Output, SupervisorVertex, Vector, Vertex, codelet, exp, log, macro
from abele.machine import Ipu
from abele.numerics import ElementType, bool_, f32, i64

SUPERVISOR_CYCLES = 24
WORKER_SLOTS = {16: 17 + 12 + 11, 32: 17 + 10 + 7}
"""Entering and leaving the vertex, by bits of an element."""
SLOTS_OF_FOUR = {16: 2, 32: 3}
"""Four elements. Source of all: machine reference §4.8 (Has-NaN)."""


@cache
def has_nan_codelet(dtype: ElementType, infinite: bool) -> type:
    """Vertex that tests the elements of a tile: a number less itself is 0, an infinite one less itself is NaN.

    Source of its cost: machine reference §4.8 (Has-NaN), by fours of elements.
    """

    def slots(v: Any, ipu: Ipu) -> Int64:
        share = -(-np.asarray(v.x.total, np.int64) // (4 * ipu.num_workers))
        slots = WORKER_SLOTS[dtype.bits] + SLOTS_OF_FOUR[dtype.bits] * share
        return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * slots, np.int64)

    @codelet(name="HasNaNOrInf" if infinite else "HasNaN")
    class HasNaN(SupervisorVertex):
        x: Vector[Input[Vector[dtype]]]
        found: Output[bool_]
        cycles = staticmethod(slots)

        def compute(self):
            bad = 0
            for r in range(len(self.x)):
                for i in range(len(self.x[r])):
                    v = f32(self.x[r][i])
                    if infinite:
                        bad = bad | (1 if v - v != 0.0 else 0)
                    if not infinite:
                        bad = bad | (1 if v != v else 0)
            self.found = bad != 0

    return HasNaN


@cache
def histogram_codelet(dtype: ElementType, number: ElementType, absolute: bool) -> type:
    """Vertex that counts the elements of a worker, level by level; its issue slots are counted."""

    @codelet
    class Histogram(Vertex):
        x: Input[Vector[dtype]]
        levels: Input[Vector[dtype]]
        counts: Output[Vector[number]]

        def compute(self):
            before = number(0)
            for j in range(len(self.levels)):
                level = f32(self.levels[j])
                below = number(0)
                for i in range(len(self.x)):
                    if absolute:
                        below = below + (number(1) if abs(f32(self.x[i])) < level else number(0))
                    else:
                        below = below + (number(1) if f32(self.x[i]) < level else number(0))
                self.counts[j] = below - before
                before = below
            self.counts[len(self.levels)] = number(len(self.x)) - before

    return Histogram


@macro
def _joined(operation, a, b):
    """Two results of a scan as one."""
    if operation == "add":
        return a + b
    if operation == "mul":
        return a * b
    if operation == "max":
        return max(a, b)
    if operation == "min":
        return min(a, b)
    # log(exp(a) + exp(b)). Equal ones are apart because the difference of equal infinities is no number.
    high = max(a, b)
    return high + (0.6931471805599453 if a == b else log(1.0 + exp(min(a, b) - high)))


SCANS = ("add", "mul", "max", "min", "logaddexp")
_SCAN_NAMES = {"add": "CumSum", "mul": "CumProd", "max": "CumMax", "min": "CumMin", "logaddexp": "CumLogSumExp"}


def scan_identity(operation: str, dtype: ElementType) -> float:
    """Identity of a scan's operation."""
    if operation in ("add", "mul"):
        return 0 if operation == "add" else 1
    if dtype.is_float:
        return float("inf") if operation == "min" else -float("inf")
    limits = np.iinfo(dtype.np)
    return int(limits.max if operation == "min" else limits.min)


@cache
def scan_codelet(
    dtype: ElementType, wide: ElementType, exclusive: bool, has_total: bool = True, operation: str = "add"
) -> type:
    """Vertex type of a scan: ``y``, the operation over ``x`` up to each element, and ``total``, over all of it."""
    identity = scan_identity(operation, wide)

    @codelet(name=_SCAN_NAMES[operation])
    class Scan(Vertex):
        x: Input[Vector[dtype]]
        y: Output[Vector[dtype]]
        if has_total:
            total: Output[wide]

        def compute(self):
            s = wide(identity)
            for i in range(len(self.x)):
                if exclusive:
                    e = wide(self.x[i])
                    self.y[i] = dtype(s)
                    s = _joined(operation, s, e)
                else:
                    s = _joined(operation, s, wide(self.x[i]))
                    self.y[i] = dtype(s)
            if has_total:
                self.total = s

    return Scan


COLUMNS = 16
"""Rows that a host scans side by side, in vector lanes."""


@cache
def side_by_side_codelet(
    dtype: ElementType, wide: ElementType, exclusive: bool, operation: str = "add", *, across: bool
) -> type:
    """A host's scan of up to :data:`COLUMNS` rows ``y`` side by side. It costs nothing.

    Rows of ``x`` are those that are scanned, or lie ``across`` them: each holds an element of every one. ``s`` are the
    scans so far. ``t`` are so many elements of all, which are turned on their way.
    """
    identity = scan_identity(operation, wide)

    @codelet(name=f"{_SCAN_NAMES[operation]}SideBySide")
    class ScanSideBySide(Vertex):
        x: Vector[Input[Vector[dtype]]]
        y: Vector[Output[Vector[dtype]]]
        s: InOut[Vector[wide]]
        t: InOut[Vector[dtype]]

        def compute(self):
            n = i64(len(self.y[0]))
            rows = i64(len(self.y))
            for c in range(COLUMNS):
                self.s[c] = wide(identity)
            blocks = n // COLUMNS if rows == COLUMNS else i64(0)
            for block in range(blocks):
                if not across:
                    for c in range(COLUMNS):
                        for k in range(COLUMNS):
                            self.t[COLUMNS * k + c] = self.x[c][COLUMNS * block + k]
                for k in range(COLUMNS):
                    for c in range(COLUMNS):
                        before = self.s[c]
                        e = self.x[COLUMNS * block + k][c] if across else self.t[COLUMNS * k + c]
                        after = _joined(operation, before, wide(e))
                        self.s[c] = after
                        self.t[COLUMNS * k + c] = dtype(before) if exclusive else dtype(after)
                for c in range(COLUMNS):
                    for k in range(COLUMNS):
                        self.y[c][COLUMNS * block + k] = self.t[COLUMNS * k + c]
            for i in range(COLUMNS * blocks, n):
                for c in range(rows):
                    before = self.s[c]
                    e = self.x[i][c] if across else self.x[c][i]
                    after = _joined(operation, before, wide(e))
                    self.s[c] = after
                    self.y[c][i] = dtype(before) if exclusive else dtype(after)

    return ScanSideBySide


@cache
def join_codelet(dtype: ElementType, wide: ElementType, operation: str = "add") -> type:
    """Every element of ``y`` joined with ``before``; issue slots are counted."""

    @codelet(name=f"{_SCAN_NAMES[operation]}Add")
    class ScanJoin(Vertex):
        y: InOut[Vector[dtype]]
        before: Input[wide]

        def compute(self):
            for i in range(len(self.y)):
                self.y[i] = dtype(_joined(operation, self.before, wide(self.y[i])))

    return ScanJoin


@cache
def recurrence_total_codelet(dtype: ElementType) -> type:
    """Vertex type of a recurrence's block: ``scale`` and ``offset`` of its effect h → scale · h + offset."""

    @codelet(name="RecurrenceTotal")
    class RecurrenceTotal(Vertex):
        factor: Input[Vector[dtype]]
        addend: Input[Vector[dtype]]
        scale: Output[f32]
        offset: Output[f32]

        def compute(self):
            a = f32(1)
            b = f32(0)
            for i in range(len(self.factor)):
                f = f32(self.factor[i])
                a = a * f
                b = b * f + f32(self.addend[i])
            self.scale = a
            self.offset = b

    return RecurrenceTotal


@cache
def recurrence_codelet(dtype: ElementType, out: ElementType, *, exclusive: bool = False, begins: bool = True) -> type:
    """y[i] = factor[i] · y[i − 1] + addend[i], where y[−1] is ``before``, or 0 unless the vertex ``begins`` with it.

    With ``exclusive`` y[i] is what stands before element i.
    """

    @codelet(name="Recurrence")
    class Recurrence(Vertex):
        factor: Input[Vector[dtype]]
        addend: Input[Vector[dtype]]
        y: Output[Vector[out]]
        if begins:
            before: Input[f32]

        def compute(self):
            if begins:
                h = self.before
            if not begins:
                h = f32(0)
            for i in range(len(self.factor)):
                if exclusive:
                    self.y[i] = out(h)
                h = h * f32(self.factor[i]) + f32(self.addend[i])
                if not exclusive:
                    self.y[i] = out(h)

    return Recurrence
