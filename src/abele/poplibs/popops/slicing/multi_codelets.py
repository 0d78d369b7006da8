"""The vertices that slice and update rows of a table by indices."""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import numpy as np

from abele.arrays import Int64
from abele.codelet import (
    InOut,
    Input,
    MultiVertex,
    Output,
    SupervisorVertex,
    Vector,
    VectorList,
    Vertex,
    codelet,
    macro,
)
from abele.machine import Ipu
from abele.numerics import ElementType, bool_, f32, i64, u32
from abele.poplibs.popops.slicing.multi_cost import add_cycles, slice_cycles

Operation = Literal["none", "add", "max", "mul"]
"""Operation that joins an update's row with the table's; ``none`` replaces it."""
Scaled = Literal["", "number", "tensor"]

CHECK_START_SLOTS, CHECK_SLOTS = 11, 5
"""Slots of entering the vertex (guessed), and of an index that is compared with the number of entries: as one that
MultiUpdateAdd passes over.
Source: machine reference §4.9 (MultiUpdateAdd, out of range)."""
SHORT_WIDTH = 4
"""Elements up to which rows of one width have code of their own, without a loop. Guessed."""


def short(width: int) -> int:
    """``width`` if rows of this width have code of their own, else 0: then the vertex's state has it."""
    return width if width <= SHORT_WIDTH else 0


@macro
def _sizes(self, width_known):
    """Values that are read once: the first entry, the number of entries, and the width of a row.

    Offsets are compared without sign, so a negative one is large and out of range.
    """
    first = self.first
    entries = self.entries
    width = width_known if width_known > 0 else i64(self.width)
    return first, entries, width


@cache
def slice_codelet(dtype: ElementType, index: ElementType, width: int = 0, *, fills: bool) -> type:
    """Rows of ``base`` by ``offsets``: row i of ``sub`` is entry ``offsets[i]``; see :func:`short` for ``width``.

    ``base`` holds ``entries`` rows of ``width`` elements, the first of them entry ``first``. Rows of other entries are
    left as they are, or set to zero where the vertex ``fills``.
    """
    width_known = width

    @codelet
    class MultiSlice(MultiVertex):
        offsets: Input[Vector[index]]
        base: Input[Vector[dtype]]
        sub: Output[Vector[dtype]]
        first: u32
        entries: u32
        width: u32

        def compute(self, worker_id):
            first, entries, width = _sizes(self, width_known)
            n = len(self.offsets)
            for i in range(worker_id * n // self.num_workers, (worker_id + 1) * n // self.num_workers):
                row = u32(self.offsets[i]) - first
                if row < entries:
                    at = i64(row) * width
                    for j in range(width):
                        self.sub[i * width + j] = self.base[at + j]
                elif fills:
                    for j in range(width):
                        self.sub[i * width + j] = dtype(0)

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            return slice_cycles(v.offsets, np.asarray(v.width, np.int64), dtype).astype(np.int64)

    return MultiSlice


@cache
def select_codelet(dtype: ElementType, index: ElementType) -> type:
    """Row i of ``sub`` is row i of that of ``parts`` whose entries hold ``offsets[i]``.

    Part p holds what was sliced from the entries p · ``entries`` on; an index beyond all parts gives zeros.
    """

    @codelet
    class MultiSliceSelect(MultiVertex):
        offsets: Input[Vector[index]]
        parts: Input[VectorList[dtype]]
        sub: Output[Vector[dtype]]
        total: u32
        entries: u32
        width: u32

        def compute(self, worker_id):
            total = self.total
            entries = self.entries
            width = i64(self.width)
            n = len(self.offsets)
            for i in range(worker_id * n // self.num_workers, (worker_id + 1) * n // self.num_workers):
                entry = u32(self.offsets[i])
                if entry < total:
                    part = i64(entry // entries)
                    for j in range(width):
                        self.sub[i * width + j] = self.parts[part][i * width + j]
                else:
                    for j in range(width):
                        self.sub[i * width + j] = dtype(0)

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            return slice_cycles(v.offsets, np.asarray(v.width, np.int64), dtype).astype(np.int64)

    return MultiSliceSelect


@macro
def joined(operation, old, e):
    """A row's element, joined with that of an update."""
    if operation == "add":
        return old + e
    if operation == "mul":
        return old * e
    if operation == "max":
        return max(old, e)
    return e


_NAMES = {"none": "MultiUpdate", "add": "MultiUpdateAdd", "max": "MultiUpdateMax", "mul": "MultiUpdateMul"}


@cache
def update_codelet(
    dtype: ElementType,
    given: ElementType,
    index: ElementType,
    operation: Operation,
    scaled: Scaled,
    scale_type: ElementType = f32,
    width: int = 0,
) -> type:
    """Rows of ``sub`` joined with those of ``base`` that ``offsets`` name, in order.

    Args:
        dtype: Element type of ``base``.
        given: Element type of ``sub``.
        index: Element type of ``offsets``.
        operation: Operation that joins rows.
        scaled: Factor of the rows of ``sub``: a number, a tensor of one element, or none.
        scale_type: Element type of that tensor.
        width: See :func:`short`.

    One worker has each row of the table, so rows that are named twice are joined one after the other.
    """
    kind, width_known = f32 if dtype.is_float else dtype, width

    @codelet(name=_NAMES[operation])
    class MultiUpdate(SupervisorVertex):
        offsets: Input[Vector[index]]
        base: InOut[Vector[dtype]]
        sub: Input[Vector[given]]
        first: u32
        entries: u32
        width: u32
        if scaled == "number":
            scale: f32
        elif scaled == "tensor":
            scale: Input[scale_type]

        def compute(self):
            first, entries, width = _sizes(self, width_known)
            for i in range(len(self.offsets)):
                row = u32(self.offsets[i]) - first
                if row < entries:
                    at = i64(row) * width
                    for j in range(width):
                        if scaled != "":
                            e = kind(self.scale) * kind(self.sub[i * width + j])
                        else:
                            e = kind(self.sub[i * width + j])
                        self.base[at + j] = dtype(joined(operation, kind(self.base[at + j]), e))

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            num, width = np.asarray(v.offsets, np.int64), np.asarray(v.width, np.int64)
            if operation == "none":
                return slice_cycles(num, width, dtype, update=True).astype(np.int64)
            return add_cycles(num, width, dtype, scaled=bool(scaled)).astype(np.int64)

    return MultiUpdate


@cache
def check_codelet(index: ElementType) -> type:
    """Vertex type that finds if any of ``offsets`` is no entry of a table of ``entries`` rows."""

    @codelet
    class CheckIndices(Vertex):
        offsets: Input[Vector[index]]
        found: Output[bool_]
        entries: u32

        def compute(self):
            bad = 0
            for i in range(len(self.offsets)):
                bad = bad | (0 if u32(self.offsets[i]) < self.entries else 1)
            self.found = bad != 0

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            return CHECK_START_SLOTS + CHECK_SLOTS * np.asarray(v.offsets, np.int64)

    return CheckIndices
