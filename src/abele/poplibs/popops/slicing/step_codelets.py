"""The vertices of dynamic slices and updates, and what they cost.

Both walk a window of ``size`` indices from the offset ``at`` on. Indices of the window that the tensor does not have
give zeros, or are passed over by an update, so that a vertex never leaves its fields.

Source of the costs: machine reference §4.9 (DynamicSlice1D and 2D).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from abele.machine import Ipu
from abele.numerics import ElementType
from abele.poplibs.popops.expressions.generated import build, type_name

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]
Remap = Literal["", "first", "padding"]
"""Which offsets are taken for 0: none, all whose window leaves the tensor, or all of these but the extent itself."""

SUPERVISOR_CYCLES = 11 + 14
WORKER_SLOTS = {8: 76, 16: 39, 32: 39}
"""Slots of a worker before the first index of a slice, by bits of an element."""
INDEX_SLOTS = {8: 72, 16: 24, 32: 24}
"""Slots of an index of a slice."""
VECTOR_SLOTS = 2
"""Slots of 8 bytes that are copied."""
START_2D_SLOTS, REGION_2D_SLOTS = 27, 13
"""Slots of a 2D worker, and of each of its regions."""
INDEX_2D_SLOTS = {16: (31, 2), 32: (29, 1)}
"""Slots of an index of a region, and of each vector of it; 8-bit elements are taken for 16-bit ones.
Source of all: machine reference §4.9."""


def stretch_cycles(width: Array, size: int | Int64, dtype: ElementType, ipu: Ipu) -> Int64:
    """Tile cycles of a vertex whose six workers copy ``size`` indices of ``width`` elements each."""
    bits = min(dtype.bits, 32)
    share = -(-_words(width, dtype) // ipu.num_workers)
    vectors = share // (8 * ipu.data_path_bytes // bits)
    slots = WORKER_SLOTS[bits] + (INDEX_SLOTS[bits] + VECTOR_SLOTS * vectors) * size
    return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * slots, np.int64)


def region_slots(width: Array, size: int | Int64, dtype: ElementType, ipu: Ipu) -> Int64:
    """Slots of one region of ``width`` elements per index in a worker of the 2D vertex."""
    bits = 16 if dtype.bits <= 16 else 32
    each, vector = INDEX_2D_SLOTS[bits]
    vectors = _words(width, dtype) // (8 * ipu.data_path_bytes // min(dtype.bits, 32))
    return np.asarray((each + vector * vectors) * size + REGION_2D_SLOTS, np.int64)


def _words(width: Array, dtype: ElementType) -> Int64:
    """Elements as the vertex counts them: those of 64 bits are two."""
    return np.asarray(width, np.int64) * max(1, dtype.bits // 32)


@lru_cache(maxsize=128)
def stretch_codelet(dtype: ElementType, index: ElementType, remap: Remap, *, is_update: bool) -> type:
    """Between ``whole`` [extent, n] and ``part`` [size, n]; the workers share the n elements of an index."""
    lines = [
        "size = i64(self.size)",
        "n = i64(len(self.part)) // size",
        "low = i64(worker_id) * n // 6",
        "high = (i64(worker_id) + 1) * n // 6",
        *_offset(remap),
        "for s in range(size):",
        *_index_lines("self.whole[(at + s) * n + e]", "self.part[s * n + e]", dtype, is_update),
    ]
    whole, part = _ways(is_update)
    name = type_name(dtype)
    fields = [f"whole: {whole}[Vector[{name}]]", f"part: {part}[Vector[{name}]]", *_state(index)]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        size = np.asarray(v.size, np.int64)
        return stretch_cycles(np.asarray(v.part, np.int64) // size, size, dtype, ipu)

    family = "DynamicUpdateSlice1D" if is_update else "DynamicSlice1D"
    return build(family, "MultiVertex", fields, lines, cycles, extra=dtype)


@lru_cache(maxsize=128)
def regions_codelet(dtype: ElementType, index: ElementType, remap: Remap, *, is_update: bool) -> type:
    """Between rows of ``whole`` [cells, extent, width] and ``part`` [cells, size, width]; ``width`` is one per row."""
    lines = [
        "size = i64(self.size)",
        *_offset(remap),
        "for r in range(len(self.part)):",
        "    low = i64(0)",
        "    high = i64(self.width[r])",
        "    cells = i64(len(self.part[r])) // (high * size)",
        "    for c in range(cells):",
        "        for s in range(size):",
        *(
            f"        {line}"
            for line in _index_lines(
                "self.whole[r][(c * i64(self.extent) + at + s) * high + e]",
                "self.part[r][(c * size + s) * high + e]",
                dtype,
                is_update,
            )
        ),
    ]
    whole, part = _ways(is_update)
    name = type_name(dtype)
    fields = [
        f"whole: {whole}[VectorList[{name}]]",
        f"part: {part}[VectorList[{name}]]",
        "width: Vector[u32]",
        *_state(index),
    ]
    return build("DynamicUpdateSlice2D" if is_update else "DynamicSlice2D", "Vertex", fields, lines, None, extra=dtype)


def zero_text(dtype: ElementType) -> str:
    """Zero of ``dtype`` in the text of a codelet."""
    return f"{type_name(dtype)}({'0.0' if dtype.is_float else '0'})"


def _state(index: ElementType) -> list[str]:
    return [f"at: Input[{index.name}]", "size: u32", "extent: u32"]


def _ways(is_update: bool) -> tuple[str, str]:
    return ("InOut", "Input") if is_update else ("Input", "Output")


def _offset(remap: Remap) -> list[str]:
    lines = ["at = i64(self.at)"]
    if remap:
        inside = "at >= 0 and at <= i64(self.extent) - size"
        padding = " or at == i64(self.extent)" if remap == "padding" else ""
        lines.append(f"at = at if ({inside}){padding} else i64(0)")
    return lines


def _index_lines(whole: str, part: str, dtype: ElementType, is_update: bool) -> list[str]:
    move = f"{whole} = {part}" if is_update else f"{part} = {whole}"
    lines = [
        "    if at + s >= 0 and at + s < i64(self.extent):",
        "        for e in range(low, high):",
        f"            {move}",
    ]
    if is_update:
        return lines
    return [*lines, "    else:", "        for e in range(low, high):", f"            {part} = {zero_text(dtype)}"]
