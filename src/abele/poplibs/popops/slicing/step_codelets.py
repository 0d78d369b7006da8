"""The vertices of dynamic slices and updates.

Both walk a window of ``size`` indices from the offset ``at`` on. Indices of the window that the tensor does not have
give zeros, or are passed over by an update, so that a vertex never leaves its fields.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import numpy as np

from abele.arrays import Int64
from abele.codelet import InOut, Input, MultiVertex, Output, Vector, VectorList, Vertex, codelet, macro
from abele.machine import Ipu
from abele.numerics import ElementType, i64, u32
from abele.poplibs.popops.slicing.step_cost import stretch_cycles

Remap = Literal["", "first", "padding"]
"""Offsets that are taken for 0: none, all whose window leaves the tensor, or all of these but the extent itself."""


@macro
def _offset(self, size, remap):
    """First index of the window, with ``remap`` applied."""
    at = i64(self.at)
    if remap == "first":
        at = at if at >= 0 and at <= i64(self.extent) - size else i64(0)
    if remap == "padding":
        at = at if (at >= 0 and at <= i64(self.extent) - size) or at == i64(self.extent) else i64(0)
    return at


@cache
def stretch_codelet(dtype: ElementType, index: ElementType, remap: Remap, *, is_update: bool) -> type:
    """Between ``whole`` [extent, n] and ``part`` [size, n]; the workers share the n elements of an index."""
    of_whole, of_part = (InOut, Input) if is_update else (Input, Output)

    @codelet(name="DynamicUpdateSlice1D" if is_update else "DynamicSlice1D")
    class DynamicSlice1D(MultiVertex):
        whole: of_whole[Vector[dtype]]
        part: of_part[Vector[dtype]]
        at: Input[index]
        size: u32
        extent: u32

        def compute(self, worker_id):
            size = i64(self.size)
            n = i64(len(self.part)) // size
            low = i64(worker_id) * n // 6
            high = (i64(worker_id) + 1) * n // 6
            at = _offset(self, size, remap)
            for s in range(size):
                if at + s >= 0 and at + s < i64(self.extent):
                    for e in range(low, high):
                        if is_update:
                            self.whole[(at + s) * n + e] = self.part[s * n + e]
                        else:
                            self.part[s * n + e] = self.whole[(at + s) * n + e]
                elif not is_update:
                    for e in range(low, high):
                        self.part[s * n + e] = dtype(0)

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            size = np.asarray(v.size, np.int64)
            return stretch_cycles(np.asarray(v.part, np.int64) // size, size, dtype, ipu)

    return DynamicSlice1D


@cache
def regions_codelet(dtype: ElementType, index: ElementType, remap: Remap, *, is_update: bool) -> type:
    """Between rows of ``whole`` [cells, extent, width] and of ``part`` [cells, size, width]; ``width`` is one per row.

    Issue slots are counted.
    """
    of_whole, of_part = (InOut, Input) if is_update else (Input, Output)

    @codelet(name="DynamicUpdateSlice2D" if is_update else "DynamicSlice2D")
    class DynamicSlice2D(Vertex):
        whole: of_whole[VectorList[dtype]]
        part: of_part[VectorList[dtype]]
        width: Vector[u32]
        at: Input[index]
        size: u32
        extent: u32

        def compute(self):
            size = i64(self.size)
            at = _offset(self, size, remap)
            for r in range(len(self.part)):
                low = i64(0)
                high = i64(self.width[r])
                cells = i64(len(self.part[r])) // (high * size)
                for c in range(cells):
                    for s in range(size):
                        if at + s >= 0 and at + s < i64(self.extent):
                            for e in range(low, high):
                                if is_update:
                                    self.whole[r][(c * i64(self.extent) + at + s) * high + e] = self.part[r][
                                        (c * size + s) * high + e
                                    ]
                                else:
                                    self.part[r][(c * size + s) * high + e] = self.whole[r][
                                        (c * i64(self.extent) + at + s) * high + e
                                    ]
                        elif not is_update:
                            for e in range(low, high):
                                self.part[r][(c * size + s) * high + e] = dtype(0)

    return DynamicSlice2D
