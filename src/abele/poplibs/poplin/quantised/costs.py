"""Cycles of vertices over quantised weights, and the split of a product of few rows over tiles.

A worker goes over one row of codes at a time. A code becomes a half once, and is multiplied with every row of x while
it is in registers; a group's sum is multiplied by its scale. Slots are of hand-written assembly, as in the other
libraries' vertices.

Example: int4 in groups of 64, one row of x: 64 codes are 8 words of 10 slots to unpack and 16 vector products, and the
group 6 slots more: 102 slots for 64 weights. A matrix [4096, 4096] on 1,472 tiles is about 11,400 weights per tile and
18,200 cycles, or 10 µs; read as halves from streaming memory it would take 200 times as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.errors import OutOfMemoryError
from abele.machine import System
from abele.numerics import ElementType, f32
from abele.poplibs.poplin.operations.float8 import multiplies_quarters
from abele.poplibs.poplin.planner.target import target_of
from abele.poplibs.popops.elementwise.cast import (
    BYTES_BACK,
    QUARTER_TO_HALF,
    UNPACKED_BY_WORKERS,
    WIDENING,
)

WORKERS = 6
"""Worker contexts of a tile. Source: machine.md §1.2."""
NIBBLES = (8, 10)
"""Codes of a word of int4 and slots to make halves of them: load 1, shift 3, then twice, for four codes each: keep the
nibbles with one 64-bit instruction, set the exponent of 1,024 with another, subtract 1,024 (and the rest is exact).
Source: our own count.
"""
VECTOR = {16: 4, 32: 2}
"""Products of one slot, whose load of x goes with it. Source: machine.md §1.3."""
VERTEX_SLOTS, ROW_SLOTS, GROUP_SLOTS, OFFSET_SLOTS = 20, 12, 6, 3
"""Slots of a worker: to start; of each row of codes: addresses, loop, store; of each group: loop, load of the scale,
sum of the lanes, product; of its offset: load, sum of x, product. Source: our own count."""
SCALING = 3
"""Slots to scale, shift and store a vector of numbers. Source: our own count."""
SUM_SLOTS, SUM_VECTOR = 8, 2
"""Slots to begin a sum of partials, and f32 of one: load and add in one slot each. Source: our own count."""
SUPERVISOR_CYCLES = 12
"""Starting the workers. Source: machine reference §1.5."""


def unpack_slots(kind: str, dtype: ElementType, codes: Any, system: System) -> Int64:
    """Slots that make numbers of ``dtype`` of so many codes."""
    if kind == "int4":
        vector, slots = NIBBLES
    elif kind == "int8":
        vector, slots = BYTES_BACK
    else:
        vector, slots = QUARTER_TO_HALF if multiplies_quarters(system) else UNPACKED_BY_WORKERS
    halves = _ceil(codes, vector) * slots
    wider = _ceil(codes, WIDENING[0]) * WIDENING[1] if dtype == f32 and not _gives_f32(kind, system) else 0
    return np.asarray(halves + wider, np.int64)


def _gives_f32(kind: str, system: System) -> bool:
    """True if workers make f32 of codes anyway: 8-bit floats without instructions for them."""
    return kind == "f143" and not multiplies_quarters(system)


def _ceil(a: Any, b: Any) -> Int64:
    return np.asarray(-(-np.asarray(a, np.int64) // np.asarray(b, np.int64)), np.int64)


@dataclass(frozen=True)
class CodeSizes:
    """A quantised matrix as costs see it.

    Attributes:
        kind: Kind of the codes.
        outputs: Rows.
        groups: Groups of a row.
        group: Columns of a group.
        code_bytes: Bytes of codes of a group.
        offsets: True if groups have offsets.
    """

    kind: str
    outputs: int
    groups: int
    group: int
    code_bytes: int
    offsets: bool


def product_cycles(
    weights: CodeSizes, dtype: ElementType, rows: int, outputs: Any, groups: Any, system: System
) -> Int64:
    """Tile cycles of some outputs and groups of a product of ``rows`` rows of x."""
    each = unpack_slots(weights.kind, dtype, weights.group, system)
    each = each + rows * (_ceil(weights.group, VECTOR[dtype.bits]) + GROUP_SLOTS + OFFSET_SLOTS * weights.offsets)
    own = _ceil(outputs, WORKERS)
    return np.asarray(SUPERVISOR_CYCLES + WORKERS * (VERTEX_SLOTS + own * (ROW_SLOTS + groups * each)), np.int64)


def dequantise_cycles(weights: CodeSizes, dtype: ElementType, groups: Any, system: System) -> Int64:
    """Tile cycles of making so many groups numbers of ``dtype``: unpack, multiply and add, store."""
    each = unpack_slots(weights.kind, dtype, weights.group, system) + GROUP_SLOTS
    each = each + SCALING * _ceil(weights.group, VECTOR[dtype.bits])
    return np.asarray(SUPERVISOR_CYCLES + WORKERS * (VERTEX_SLOTS + _ceil(groups, WORKERS) * each), np.int64)


@dataclass(frozen=True)
class QuantisedSplit:
    """Parts of a product over tiles.

    Attributes:
        outputs: Outputs of a tile, but for the last ones.
        groups: Groups of a row that a tile has, but for the last ones.
        parts: Tiles along outputs and along groups.
        cycles: Expected cycles: exchange of x, products, and sums over the parts of a row.
    """

    outputs: int
    groups: int
    parts: tuple[int, int]
    cycles: int


@lru_cache(maxsize=1024)
def best_split(weights: CodeSizes, dtype: ElementType, rows: int, system: System) -> QuantisedSplit:
    """The split of the fewest expected cycles.

    Raises:
        OutOfMemoryError: Every tile has too much of it.
    """
    target = target_of(system)
    along = np.arange(1, min(weights.groups, target.tiles) + 1)
    groups = _ceil(weights.groups, along)
    along = _ceil(weights.groups, groups)
    outputs = _ceil(weights.outputs, np.maximum(1, target.tiles // along))
    across = _ceil(weights.outputs, outputs)
    rate = target.exchange_bytes_per_cycle
    arriving = rows * groups * weights.group * dtype.bytes / rate
    cycles = product_cycles(weights, dtype, rows, outputs, groups, system) + arriving + target.superstep_cycles
    sums = _ceil(weights.outputs * rows, target.tiles)
    summing = (
        along * sums * f32.bytes / rate
        + WORKERS * _ceil(sums, SUM_VECTOR * WORKERS) * (along + SUM_SLOTS)
        + target.superstep_cycles
    )
    cycles = np.where(along > 1, cycles + summing, cycles)
    held = outputs * groups * (weights.code_bytes + f32.bytes * (1 + weights.offsets)) + rows * (
        groups * weights.group * dtype.bytes + outputs * f32.bytes
    )
    fits = held <= target.tile_bytes
    if not fits.any():
        raise OutOfMemoryError(
            f"quantised weights [{weights.outputs:,}, {weights.groups * weights.group:,}] do not fit {target.name}",
            because=f"each of {target.tiles:,} tiles would hold {int(held.min()):,} B of {target.tile_bytes:,}",
        )
    best = int(np.argmin(np.where(fits, cycles, np.inf)))
    return QuantisedSplit(
        int(outputs[best]), int(groups[best]), (int(across[best]), int(along[best])), int(cycles[best])
    )
