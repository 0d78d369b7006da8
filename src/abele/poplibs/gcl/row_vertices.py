"""The vertices that pick rows by the number of the replica."""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.codelet import Input, Output, Vector, Vertex, codelet
from abele.machine import Ipu
from abele.numerics import ElementType, u32

REGION_SLOTS = (27, 13)
ROW_SLOTS = {True: (29, 1), False: (31, 2)}
"""Slots of a worker that slices one region: at its start and end; and of a row, and of each vector of it, by whether
elements have 32 bits. Source: machine reference §4.9 (DynamicSlice 2D)."""


@cache
def look_up_codelet() -> type:
    """Some entries of a table, from the place on that belongs to this replica; slots are counted."""

    @codelet
    class LookUpRows(Vertex):
        replica: Input[u32]
        start: Vector[u32]
        table: Vector[u32]
        picked: Output[Vector[u32]]

        def compute(self):
            for j in range(len(self.picked)):
                self.picked[j] = self.table[self.start[self.replica] + j]

    return LookUpRows


@cache
def distances_codelet() -> type:
    """Vertex type that gives the distance of each table entry behind this replica's own number on a ring."""

    @codelet
    class RingDistances(Vertex):
        replica: Input[u32]
        own: Vector[u32]
        table: Vector[u32]
        picked: Output[Vector[u32]]

        def compute(self):
            size = len(self.picked)
            for j in range(size):
                distance = self.table[j] + size - self.own[self.replica]
                self.picked[j] = distance - size if distance >= size else distance

    return RingDistances


@cache
def pick_rows_codelet(dtype: ElementType) -> type:
    """Codelet that copies rows of ``dtype`` by the places in a table."""

    @codelet
    class PickRows(Vertex):
        rows: Vector[Input[Vector[dtype]]]
        picked: Input[Vector[u32]]
        out: Vector[Output[Vector[dtype]]]

        def compute(self):
            for j in range(len(self.out)):
                for i in range(len(self.out[j])):
                    self.out[j][i] = self.rows[self.picked[j]][i]

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            return _slicing_slots(v, ipu, dtype)

    return PickRows


def _slicing_slots(v: Any, ipu: Ipu, dtype: ElementType) -> Int64:
    rows = np.asarray(v.out.rows, np.int64)
    width = np.asarray(v.out.total, np.int64) // np.maximum(rows, 1)
    row, vector = ROW_SLOTS[dtype.bits == 32]
    vectors = -(-width * dtype.bytes // ipu.data_path_bytes)
    return np.asarray(sum(REGION_SLOTS) + rows * (row + vector * vectors), np.int64)
