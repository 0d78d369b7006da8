"""The vertices that read, or reduce by one, an element of every row."""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from math import inf
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet, macro
from abele.machine import Ipu
from abele.numerics import ElementType, f32, i64, u32
from abele.poplibs.popops.slicing.one_hot import MASKED_LABEL_CODE

START_SLOTS = 11
"""Slots of a worker before its first row: as EncodeOneHot. Source: machine reference §4.8."""
ROW_SLOTS = 12
"""Slots of a row: three loads (index, first column, width), a difference, three compared and branched on, and the
element loaded and stored. Guessed from the codelet's own instructions; no estimate is published."""
JOIN_SLOTS = 4
"""Slots of a part of a row that others have parts of too: load, compare, branch, move. Guessed likewise."""


def _row_cycles(v: Any, ipu: Ipu) -> Int64:
    return np.asarray(START_SLOTS + ROW_SLOTS * np.asarray(v.indices, np.int64), np.int64)


@macro
def _where(self, p):
    """Place of part ``p``'s index: its column here, the part's width, True if it is here, True if it is nowhere."""
    index = i64(u32(self.indices[p]))
    column = index - i64(self.first[p])
    width = i64(self.width[p])
    here = column >= 0 and column < width
    wrong = index >= i64(self.columns) and index != MASKED_LABEL_CODE
    return column, width, here, wrong


@cache
def select_codelet(dtype: ElementType, index: ElementType) -> type:
    """The element of each part that its index points at, 0 where it points elsewhere."""

    @codelet
    class SelectFromRows(Vertex):
        params: Input[Vector[dtype]]
        indices: Input[Vector[index]]
        first: Vector[u32]
        width: Vector[u32]
        columns: u32
        out: Output[Vector[dtype]]
        cycles = staticmethod(_row_cycles)

        def compute(self):
            at = i64(0)
            for p in range(len(self.out)):
                column, width, here, wrong = _where(self, p)
                self.out[p] = self.params[at + (column if here else i64(0))] if here else dtype(0)
                if dtype.is_float and wrong and self.first[p] == 0:
                    self.out[p] = dtype(inf - inf)
                at = at + width

    return SelectFromRows


@cache
def update_codelet(dtype: ElementType, index: ElementType) -> type:
    """Takes one from the element of each part that its index points at; all of it is NaN if that is no column."""

    @codelet
    class UpdateInRows(Vertex):
        params: InOut[Vector[dtype]]
        indices: Input[Vector[index]]
        first: Vector[u32]
        width: Vector[u32]
        columns: u32
        cycles = staticmethod(_row_cycles)

        def compute(self):
            at = i64(0)
            for p in range(len(self.indices)):
                column, width, here, wrong = _where(self, p)
                if here:
                    self.params[at + column] = dtype(f32(self.params[at + column]) - f32(1.0))
                if wrong:
                    for j in range(width):
                        self.params[at + j] = dtype(inf - inf)
                at = at + width

    return UpdateInRows


@cache
def join_codelet(dtype: ElementType) -> type:
    """That of ``counts[i]`` parts which is not zero."""

    @codelet
    class JoinRows(Vertex):
        parts: Input[Vector[dtype]]
        out: Output[Vector[dtype]]
        counts: Vector[u32]

        def compute(self):
            at = i64(0)
            for i in range(len(self.out)):
                self.out[i] = dtype(0)
                for p in range(i64(self.counts[i])):
                    if self.parts[at + p] != dtype(0):
                        self.out[i] = self.parts[at + p]
                at = at + i64(self.counts[i])

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            return np.asarray(START_SLOTS + JOIN_SLOTS * np.asarray(v.parts, np.int64), np.int64)

    return JoinRows
