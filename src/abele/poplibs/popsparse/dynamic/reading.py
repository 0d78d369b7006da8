"""Reading meta-info back: the block that each slot holds.

All buckets are walked at once: a step for each sub-group of the fullest bucket, and one for each row of the longest.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abele.arrays import Bool, Int64
from abele.errors import PatternMismatchError
from abele.poplibs.popsparse.dynamic.buckets import COUNT, ID, LINK, ROWS, X, Y
from abele.poplibs.popsparse.dynamic.plan import DynamicPlan


def read_meta(plan: DynamicPlan, meta: npt.ArrayLike) -> tuple[Int64, Int64, Int64, Int64]:
    """Group, block row, block column and slot of each block that the meta-info names.

    Raises:
        PatternMismatchError: It is not of this plan.
    """
    entries = np.asarray(meta).reshape(-1).astype(np.int64)
    if entries.size != plan.num_meta:
        raise PatternMismatchError(
            f"meta-info of {entries.size:,} entries, this plan's has {plan.num_meta:,}",
            remedy="the Partitioner with the same parameters, type, machine and options as the tensor",
        )
    base = plan.info_slots + np.arange(plan.num_tiles) * plan.meta_slots
    end = base + plan.meta_slots
    tile, slot = np.arange(plan.num_tiles), np.zeros(plan.num_tiles, np.int64)
    found: list[tuple[Int64, Int64, Int64, Int64]] = []
    while True:
        more = base + plan.header <= end
        more[more] = entries[base[more] + ID] > 0
        base, end, tile, slot = base[more], end[more], tile[more], slot[more]
        if not len(base):
            break
        _check_headers(plan, entries, base, end)
        found.extend(_read_rows(plan, entries, base, tile, slot))
        slot = slot + entries[base + COUNT]
        base = base + entries[base + LINK]
    parts = tuple(np.concatenate([np.zeros(0, np.int64), *(f[i] for f in found)]) for i in range(4))
    group, row, column, slots = parts
    outside = (row >= plan.grid[0]) | (column >= plan.grid[1]) | (slots % plan.nz_slots < 0)
    _refuse(outside, "a block outside the matrix")
    return group, row, column, slots


def _check_headers(plan: DynamicPlan, entries: Int64, base: Int64, end: Int64) -> None:
    cell = entries[base + X] * plan.parts[1] + entries[base + Y]
    _refuse(entries[base + ID] != cell + 1, "an id that is not its cell's")
    _refuse(cell >= plan.num_cells, "a cell outside the grid")
    link = entries[base + LINK]
    rows, count = entries[base + ROWS], entries[base + COUNT]
    _refuse((base + link > end) | (link != plan.header + 2 * rows + count), "a sub-group of another length")


def _read_rows(
    plan: DynamicPlan, entries: Int64, base: Int64, tile: Int64, slot: Int64
) -> list[tuple[Int64, Int64, Int64, Int64]]:
    """Blocks of one sub-group in each of some buckets, row after row."""
    at, left, stop = base + plan.header, entries[base + ROWS], base + entries[base + LINK]
    value = tile * plan.nz_slots + slot
    last = (tile + 1) * plan.nz_slots
    x, y, group = entries[base + X], entries[base + Y], tile // plan.group_tiles
    found = []
    while len(at):
        counts = entries[at + 1]
        _refuse((at + 2 + counts > stop) | (value + counts > last), "a row beyond its bucket")
        inside = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        row = x * plan.cell[0] + entries[at]
        column = np.repeat(y * plan.cell[1], counts) + entries[np.repeat(at + 2, counts) + inside]
        found.append((np.repeat(group, counts), np.repeat(row, counts), column, np.repeat(value, counts) + inside))
        at, value, left = at + 2 + counts, value + counts, left - 1
        more = left > 0
        at, value, left, stop, last = at[more], value[more], left[more], stop[more], last[more]
        x, y, group = x[more], y[more], group[more]
    return found


def _refuse(wrong: Bool, what: str) -> None:
    if wrong.any():
        raise PatternMismatchError(
            f"meta-info is not of this plan: it has {what}",
            because=f"{int(wrong.sum()):,} of {wrong.size:,} are wrong",
            remedy="the Partitioner with the same parameters, type, machine and options as the tensor",
        )
