"""Costs of the vertices of dynamic slices and updates.

Source: machine reference §4.9 (DynamicSlice1D and 2D).
"""

from __future__ import annotations

import numpy as np

from abele.arrays import Array, Int64
from abele.machine import Ipu
from abele.numerics import ElementType

SUPERVISOR_CYCLES = 11 + 14
"""Starting the workers of a 1D vertex."""
WORKER_SLOTS = {8: 76, 16: 39, 32: 39}
"""Slots of a worker before the first index of a slice, by bits of an element."""
INDEX_SLOTS = {8: 72, 16: 24, 32: 24}
"""Slots of an index of a slice."""
VECTOR_SLOTS = 2
"""Slots of 8 bytes that are copied."""
START_2D_SLOTS, REGION_2D_SLOTS = 27, 13
"""Slots of a 2D worker, and of each of its regions."""
INDEX_2D_SLOTS = {16: (31, 2), 32: (29, 1)}
"""Slots of an index of a region, and of each vector of it; 8-bit elements are taken for 16-bit ones."""


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
