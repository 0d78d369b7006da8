"""Cycles of the vertices of static sparse products: closed forms over arrays of vertices.

The planner evaluates them over the busiest tile of every candidate, the lowering over the real rows of every tile.
Source of all: popsparse.md §6, restated from PopLibs' estimators.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.numerics import ElementType
from abele.poplibs.popsparse.float8 import result_type

WORKERS = 6
"""Worker contexts of a tile. Source: machine.md §1.2."""
GRAIN = {8: 8, 16: 4, 32: 2}
"""Dense columns that one instruction works on, by bits of an element: a word of 64 bits."""
AT_ONCE = {8: 2, 16: 1, 32: 1}
"""Blocks of a row that are multiplied together, by bits of an element.

Two blocks of 8-bit floats fill the weights' registers and the words of the input that one block of halves fills, and
leave as many sums, so the loop that PopLibs has for one block of halves takes two of them in its time. Pairs of 16 x 16
are 128 multiply-accumulates a cycle, as many as the units do. PopLibs has no such vertex. Source: low_precision.md §1.3
D.
"""
Numbers = npt.NDArray[Any]


def ceil_div(a: Any, b: Any) -> Int64:
    """``a / b`` rounded up."""
    return np.asarray(-(-np.asarray(a, np.int64) // np.asarray(b, np.int64)))


class RowSlots(NamedTuple):
    """Slots of a worker that multiplies elements (blocks of 1 x 1) by rows of the dense matrix.

    Attributes:
        start: Slots of the vertex.
        row: Slots of a row of the sparse matrix, its first value included.
        value: Slots of each further value.
    """

    start: Int64
    row: Int64
    value: Int64


def element_slots(dtype: ElementType, columns: Any) -> RowSlots:
    """Slots by the number of dense columns, which is rounded up to whole instructions."""
    columns = np.asarray(columns, np.int64)
    if dtype.bits == 16:
        eights, rest = columns // 8, ceil_div(columns % 8, 4)
        row = 11 + eights * 14 + rest * 9
        value = eights * 3 + rest * 2
        return RowSlots(
            np.where(columns <= 8, np.where((columns <= 4) | (columns == 8), 31, 33), 33),
            np.where(columns <= 4, 7, np.where(columns == 8, 8, row)),
            np.where(columns <= 4, 2, np.where(columns == 8, 3, value)),
        )
    fours, rest = columns // 4, ceil_div(columns % 4, 2)
    row = 12 + fours * 10 + rest * 10
    value = fours * 3 + rest * 2
    return RowSlots(
        np.where(columns <= 2, 29, np.where(columns == 4, 30, 31)),
        np.where(columns <= 2, 5, np.where(columns == 4, 6, row)),
        np.where(columns <= 2, 2, np.where(columns == 4, 3, value)),
    )


def element_cycles(dtype: ElementType, rows: Any, values: Any, columns: Any) -> Int64:
    """Tile cycles where each worker has ``rows`` rows of ``values`` values, times ``columns`` dense columns."""
    slots = element_slots(dtype, columns)
    return np.asarray(WORKERS * (slots.start + rows * (slots.row + slots.value * (values - 1))), np.int64)


_BLOCK_STARTS = {
    (16, 4): (17, 1),
    (16, 8): (13, 1),
    (16, 16): (13, 1),
    (32, 4): (13, 1),
    (32, 8): (13, 4),
    (32, 16): (16, 4),
}
"""Worker slots of the vertex and of a block row, by bits of an element and side of a block."""


def _block_slots(dtype: ElementType, block: int, columns: Int64) -> Int64:
    """Worker slots of one block, for the dense columns of a worker."""
    if dtype.bits == 16:
        if block == 4:
            return np.where(columns <= 2, 7 + columns, 13 + columns)
        return 14 + 2 * (columns - 1) if block == 8 else 19 + 4 * (columns - 1)
    if block == 4:
        return 12 + 4 * (columns - 1)
    if block == 8:
        return 19 + 8 * (columns - 1)
    return np.where(columns == 1, 58, 2 * (37 + 8 * (columns - 1)))


def block_cycles(dtype: ElementType, block: int, rows: Any, loads: Any, columns: Any) -> Int64:
    """Tile cycles of ``rows`` block rows times ``columns`` dense columns.

    Workers share the dense columns. Blocks of f32 of 8 and 16 add to partials, which are set to zero before.

    Args:
        dtype: Type of the operands.
        block: Side of a block.
        rows: Block rows.
        loads: Loads of weights in all of them, of :data:`AT_ONCE` blocks each.
        columns: Dense columns.
    """
    kind = result_type(dtype)
    start, per_row = _BLOCK_STARTS[kind.bits, block]
    own = ceil_div(columns, WORKERS)
    loaded = AT_ONCE[dtype.bits] * block * block * dtype.bytes // 8
    each = 16 + loaded + WORKERS * _block_slots(kind, block, own)
    cycles = 30 + start * WORKERS + rows * (per_row * WORKERS + 17) + loads * each
    if dtype.bits == 32 and block >= 8:
        cycles = cycles + zero_cycles(rows * block * columns * dtype.bytes)
    return np.asarray(cycles, np.int64)


def zero_cycles(size_bytes: Any) -> Int64:
    """Tile cycles of setting bytes to zero."""
    return np.asarray(WORKERS * (12 + ceil_div(ceil_div(size_bytes, 8), WORKERS)), np.int64)


def reduce_slots(dtype: ElementType, elements: Any, partials: Any) -> Int64:
    """Worker slots of summing ``partials`` of each of ``elements`` elements."""
    at_once, start = (8, 8) if dtype.bits == 16 else (4, 5)
    return np.asarray(16 + ceil_div(elements, at_once) * (start + 6 + partials - 1), np.int64)


def order_cycles(size_bytes: Any) -> Int64:
    """Tile cycles of putting bytes of the result in order, once they have arrived.

    PopLibs plans a cycle for each (popsparse.md §6): between copies on a tile of pieces of two words and of one
    (machine.md §2.6). Its terms of exchanges are bytes over the exchange's rate; this one is not, so that the exchange
    comes on top.
    """
    return np.asarray(size_bytes, np.int64)
