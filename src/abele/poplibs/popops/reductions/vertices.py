"""The vertices that test, count and sum up elements in order."""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.codelet import InOut, Input, Output, SupervisorVertex, Vector, Vertex, codelet
from abele.machine import Ipu
from abele.numerics import ElementType, bool_, f32

Int64 = npt.NDArray[np.int64]
SUPERVISOR_CYCLES = 24
WORKER_SLOTS = {16: 17 + 12 + 11, 32: 17 + 10 + 7}
"""Entering and leaving the vertex, by bits of an element."""
SLOTS_OF_FOUR = {16: 2, 32: 3}
"""Four elements. Source of all: machine reference §4.8 (Has-NaN)."""


@cache
def has_nan_codelet(dtype: ElementType, infinite: bool) -> type:
    """The vertex that tests what a tile holds: a number less itself is 0, less an infinite one it is none."""

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
    """The vertex that counts what a worker holds, level by level; its issue slots are counted."""

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


@cache
def scan_codelet(dtype: ElementType, wide: ElementType, exclusive: bool, has_total: bool = True) -> type:
    """The sums ``y`` of ``x`` from its beginning, and their ``total``; issue slots are counted."""

    @codelet
    class CumSum(Vertex):
        x: Input[Vector[dtype]]
        y: Output[Vector[dtype]]
        if has_total:
            total: Output[wide]

        def compute(self):
            s = wide(0)
            for i in range(len(self.x)):
                if exclusive:
                    e = wide(self.x[i])
                    self.y[i] = dtype(s)
                    s = s + e
                else:
                    s = s + wide(self.x[i])
                    self.y[i] = dtype(s)
            if has_total:
                self.total = s

    return CumSum


@cache
def add_codelet(dtype: ElementType, wide: ElementType) -> type:
    """``before`` added to every element of ``y``; issue slots are counted."""

    @codelet
    class CumSumAdd(Vertex):
        y: InOut[Vector[dtype]]
        before: Input[wide]

        def compute(self):
            for i in range(len(self.y)):
                self.y[i] = dtype(wide(self.y[i]) + self.before)

    return CumSumAdd
