"""The vertices that pick rows by the number of the replica."""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.codelet import ONE_PTR, Input, MultiVertex, Output, Vector, Vertex, codelet
from abele.machine import Ipu
from abele.numerics import ElementType, i64, u16, u32

SUPERVISOR_CYCLES = 11 + 14
"""Starting the workers that slice. Source: machine reference §4.9 (DynamicSlice 1D)."""
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
    """Codelet that copies rows of ``width`` elements by the places in a table.

    Its workers share the elements of a row in whole vectors of ``grain``, and the rows where vectors are few.
    """

    @codelet
    class PickRows(MultiVertex):
        rows: Input[Vector[dtype, ONE_PTR]]
        picked: Input[Vector[u32]]
        out: Output[Vector[dtype, ONE_PTR]]
        width: u32
        grain: u16

        def compute(self, worker_id):
            width = i64(self.width)
            grain = i64(self.grain)
            vectors = (width + grain - 1) // grain
            across = min(vectors, i64(6))
            down = 6 // across
            count = i64(len(self.picked))
            column = i64(worker_id) % across
            row = i64(worker_id) // across
            low = vectors * column // across * grain
            high = min(vectors * (column + 1) // across * grain, width)
            if row < down:
                for j in range(count * row // down, count * (row + 1) // down):
                    for i in range(low, high):
                        self.out[j * width + i] = self.rows[i64(self.picked[j]) * width + i]

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            return _slicing_cycles(v, ipu, dtype)

    return PickRows


def _slicing_cycles(v: Any, ipu: Ipu, dtype: ElementType) -> Int64:
    width = np.asarray(v.width, np.int64)
    count = np.asarray(v.picked, np.int64)
    row, vector = ROW_SLOTS[dtype.bits == 32]
    vectors = -(-width * dtype.bytes // ipu.data_path_bytes)
    across = np.minimum(np.maximum(vectors, 1), ipu.num_workers)
    rows = -(-count // (ipu.num_workers // across))
    slots = sum(REGION_SLOTS) + rows * (row + vector * -(-vectors // across))
    return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * slots, np.int64)
