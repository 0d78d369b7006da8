"""Tile cycles of the vertices that slice and update rows by indices.

How many indices fall into the rows of a vertex depends on data. A vertex is charged for the worst data: every index
falls into its rows and, where workers share rows, into those of one worker. The planner expects indices spread evenly
over all entries, which is what ``share`` says.

Source of all: machine reference §4.9 (MultiSlice, MultiUpdateAdd), confidence S unless said otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.arrays import Array
from abele.numerics import ElementType

WORKERS = 6
"""Worker contexts of a tile. Source: §1.2."""

SLICE_SLOTS, UPDATE_SLOTS = 30, 29
"""Worker slots of MultiSlice and MultiUpdate before the first index."""
ROW_SLOTS = 19
"""Slots of an index in range, before its elements."""
OUTSIDE_SLOTS = 8
"""Slots of an index out of range."""
COPY_SLOTS = {8: (4, 3), 16: (2, 2), 32: (2, 2)}
"""Elements of one copy of a worker, and its slots, by bits of an element."""

ADD_SLOTS = {16: 3 + 30, 32: 3 + 29}
"""Worker slots of MultiUpdateAdd before the first index, by bits of an element of the table."""
ADD_SCALED_SLOTS = {16: 6, 32: 4}
"""Slots that a scale adds to them. The reference says 4 to 6: that the scale's conversion makes 6 of 4 is a guess."""
ADD_ROW_SLOTS = {16: 12, 32: 11}
"""Slots of an index in range with its first atom of 4 bytes; a scale adds one where elements have 16 bits."""
ADD_ATOM_SLOTS = {16: 4, 32: 3}
"""Slots of each further atom."""
ADD_OUTSIDE_SLOTS = 5
"""Slots of an index out of range."""
ADD_SUBWORD_SLOTS = 20
"""Slots of an element where rows are no whole number of 4-byte atoms."""
ADD_SHORT_ROWS = {(32, 2): (8, 8), (32, 4): (16, 16), (16, 4): (9, 12)}
"""Slots of an index in range, unscaled and scaled, by bits and elements of a row that has code of its own."""


def slice_cycles(num: Array, width: Array, dtype: ElementType, *, share: Any = 1.0, update: bool = False) -> Array:
    """Tile cycles of MultiSlice, or of MultiUpdate, whose workers share the indices; a single row is shared itself.

    Args:
        num: Indices of each vertex.
        width: Elements of a row.
        dtype: Type of the elements.
        share: Proportion of the indices that is in range.
        update: True if rows are written to the table.
    """
    num, width = np.asarray(num), np.asarray(width) * max(1, dtype.bits // 32)
    at_once, slots = COPY_SLOTS[min(dtype.bits, 32)]
    each = -(-num // WORKERS)
    elements = np.where(num == 1, -(-width // WORKERS), width)
    row = ROW_SLOTS + slots * -(-elements // at_once)
    start = UPDATE_SLOTS if update else SLICE_SLOTS
    return np.asarray(WORKERS * (start + each * (share * row + (1.0 - share) * OUTSIDE_SLOTS)))


def add_cycles(num: Array, width: Array, dtype: ElementType, *, scaled: bool, share: Any = 1.0) -> Array:
    """Tile cycles of MultiUpdateAdd, whose workers share the rows of the table: each reads every index.

    Args:
        num: Indices of each vertex.
        width: Elements of a row.
        dtype: Type of the table's elements.
        scaled: True if rows are multiplied by a scale.
        share: Proportion of the indices that falls to the busiest worker.
    """
    num, width, bits = np.asarray(num), np.asarray(width), 16 if dtype.bits <= 16 else 32
    atoms = -(-width * dtype.bytes // 4)
    row = np.asarray(ADD_ROW_SLOTS[bits] + (scaled and bits == 16) + (atoms - 1) * ADD_ATOM_SLOTS[bits])
    for (size, elements), slots in ADD_SHORT_ROWS.items():
        if size == bits:
            row = np.where(width == elements, slots[scaled], row)
    row = np.where(width * dtype.bytes % 4 != 0, ADD_SUBWORD_SLOTS * width, row)
    start = ADD_SLOTS[bits] + ADD_SCALED_SLOTS[bits] * scaled
    return np.asarray(WORKERS * (start + num * (share * row + (1.0 - share) * ADD_OUTSIDE_SLOTS)))
