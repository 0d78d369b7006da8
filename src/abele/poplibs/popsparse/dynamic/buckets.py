"""Meta-info of a dynamic sparse matrix: the layout of its u16 entries, and writing it.

The whole meta-info is ``info_slots`` entries of overflow info, then a bucket of ``meta_slots`` entries for each tile,
then, where the gradient of the input has lists of its own, a bucket of ``grad_a_slots`` for each tile. Values are
``nz_slots`` blocks for each tile, each row-major.

Overflow info: [0] passes along x, [1] passes along y, [2] steps along z, [3 + i] 1 if something lies i cells away
along x; then zeros up to a whole word. A matrix without spills has [1, 1, pz, 1, 0, …].

A bucket is a list of sub-groups; an id of 0, or the bucket's end, ends it. Rows and columns count blocks from the
corner of their cell: block row r of cell x is row x · cell_rows + r of the grid of blocks.

| entry | of a sub-group |
|---|---|
| 0 | id: x · py + y + 1 of the cell (x, y) whose values these are |
| 1, 2 | x, y |
| 3 | blocks |
| 4 | entries from this sub-group to the next |
| 5 | dense columns of a tile |
| 6 | rows |
| 7, 8 | elements only: first row; workers |
| then | elements only, for each of 6 workers: [entry of first row, rows, first value, first column, columns] |
| then | with ``doGradWPass``, for each of 6 workers: [entry of first row, values of it to skip, first value, values] |
| | and of elements a fifth, [rows] |
| ``header`` | for each row: [block row in the cell, count, then the block column in the cell of each block] |

Entries count from the sub-group's begin, and values from its first. Sub-groups have their values in the bucket of
values one after the other, in the same order; those of a row follow each other. A row may be there twice: both add up.

A list of columns (``grad_a_slots``) has the same sub-groups in the same order, with ``grad_a_header`` entries before
the first column, and for each column: [block column in the cell, count, then for each block its block row in the cell
and its place among the values of the sub-group].

Example: 4 × 4 elements on one tile with values at (0, 1), (0, 3) and (2, 0), without gradients: ``header`` is 39, and
the bucket is [1, 0, 0, 3, 46, n, 2, 0, 6, 30 entries of workers, 0, 2, 1, 3, 2, 1, 0, 0 …]: row 0 has 2 values in
columns 1 and 3, row 2 has 1 in column 0. Values are in the order (0, 1), (0, 3), (2, 0).

Offsets are not scaled by the dense columns here, as the machine's vertices have them: one bucket then serves tiles of
different widths. The planner keeps to what 16 bits could hold if they were.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.poplibs.popsparse.dynamic.costs import WORKERS
from abele.poplibs.popsparse.dynamic.plan import DynamicPlan

ID, X, Y, COUNT, LINK, COLUMNS, ROWS = range(7)
"""Entries of a sub-group's header."""

FIRST_ROW, NUM_WORKERS = 7, 8
"""Further ones of elements."""


@dataclass(frozen=True)
class PlacedBlocks:
    """Blocks of a matrix in buckets, sorted by bucket, sub-group, row and column; arrays [blocks].

    Attributes:
        bucket: Tile of the bucket.
        cell: Cell of the group that the block belongs to, x · py + y.
        row: Block row in the cell.
        column: Block column in the cell.
        source: Place of the block among those that were given.
    """

    bucket: Int64
    cell: Int64
    row: Int64
    column: Int64
    source: Int64


@dataclass(frozen=True)
class SubGroups:
    """Sub-groups of all buckets, in order; arrays [sub-groups] but where said.

    Attributes:
        bucket: Tile of the bucket.
        cell: Cell that the values belong to.
        first: First block.
        count: Blocks.
        first_row: First row.
        rows: Rows.
        row_first: First block of each row [rows], and the number of blocks at the end.
        row_group: Sub-group of each row [rows].
    """

    bucket: Int64
    cell: Int64
    first: Int64
    count: Int64
    first_row: Int64
    rows: Int64
    row_first: Int64
    row_group: Int64


def sub_groups_of(bucket: Int64, cell: Int64, row: Int64) -> SubGroups:
    """Sub-groups and rows of blocks that are sorted by bucket, cell and row."""
    count = len(bucket)
    change = np.ones(count, bool)
    change[1:] = (bucket[1:] != bucket[:-1]) | (cell[1:] != cell[:-1])
    row_change = change.copy()
    row_change[1:] |= row[1:] != row[:-1]
    first, row_first = np.flatnonzero(change), np.flatnonzero(row_change)
    row_group = np.cumsum(change)[row_first] - 1
    first_row = np.searchsorted(row_first, first)
    return SubGroups(
        bucket[first],
        cell[first],
        first,
        np.diff(np.append(first, count)),
        first_row,
        np.diff(np.append(first_row, len(row_first))),
        row_first=np.append(row_first, count),
        row_group=row_group,
    )


def starts_in_buckets(bucket: Int64, sizes: Int64) -> Int64:
    """Begin of each item in its bucket, items being in the order of buckets."""
    ends = np.cumsum(sizes)
    begins = ends - sizes
    of_bucket = np.flatnonzero(np.append(True, bucket[1:] != bucket[:-1])) if len(bucket) else np.zeros(0, np.int64)
    spread = np.repeat(of_bucket, np.diff(np.append(of_bucket, len(bucket))))
    return begins - begins[spread]


def value_slots(plan: DynamicPlan, placed: PlacedBlocks) -> Int64:
    """Slot of each block in the values of all tiles, in blocks."""
    return placed.bucket * plan.nz_slots + starts_in_buckets(placed.bucket, np.ones_like(placed.bucket))


def write_meta(plan: DynamicPlan, placed: PlacedBlocks, info: Int64) -> npt.NDArray[np.uint16]:
    """The meta-info of a placed matrix, u16[plan.num_meta]."""
    meta = np.zeros(plan.num_meta, np.int64)
    meta[: len(info)] = info
    groups = sub_groups_of(placed.bucket, placed.cell, placed.row)
    sizes = plan.header + 2 * groups.rows + groups.count
    begin = plan.info_slots + groups.bucket * plan.meta_slots + starts_in_buckets(groups.bucket, sizes)
    _write_header(plan, meta, groups, begin, sizes)
    row_at = _write_rows(plan, meta, groups, begin, placed)
    if not plan.by_block:
        meta[begin + FIRST_ROW] = placed.row[groups.first]
        meta[begin + NUM_WORKERS] = WORKERS
        _write_workers(plan, meta, groups, begin, row_at)
    if plan.options.grad_w:
        _write_grad_w_workers(plan, meta, groups, begin, row_at)
    if plan.grad_a_slots:
        _write_columns(plan, meta, groups, placed)
    return meta.astype(np.uint16)


def _write_header(plan: DynamicPlan, meta: Int64, groups: SubGroups, begin: Int64, sizes: Int64) -> None:
    x, y = np.divmod(groups.cell, plan.parts[1])
    fields = {
        ID: groups.cell + 1,
        X: x,
        Y: y,
        COUNT: groups.count,
        LINK: sizes,
        COLUMNS: np.full_like(x, plan.columns),
        ROWS: groups.rows,
    }
    for entry, values in fields.items():
        meta[begin + entry] = values


def _write_rows(plan: DynamicPlan, meta: Int64, groups: SubGroups, begin: Int64, placed: PlacedBlocks) -> Int64:
    """Write the rows; returns the entry of each in its sub-group."""
    starts, counts = groups.row_first[:-1], np.diff(groups.row_first)
    number = np.arange(len(starts)) - groups.first_row[groups.row_group]
    row_at = plan.header + 2 * number + starts - groups.first[groups.row_group]
    at = begin[groups.row_group] + row_at
    meta[at] = placed.row[starts]
    meta[at + 1] = counts
    inside = np.arange(len(placed.row)) - np.repeat(starts, counts)
    meta[np.repeat(at, counts) + 2 + inside] = placed.column
    return row_at


def _write_workers(plan: DynamicPlan, meta: Int64, groups: SubGroups, begin: Int64, row_at: Int64) -> None:
    """Records of the workers: rows in equal numbers, or by their values where actual costs are asked for."""
    w = np.arange(WORKERS + 1)
    if plan.options.actual_costs:
        wanted = groups.first[:, None] + groups.count[:, None] * w // WORKERS
        cuts = np.searchsorted(groups.row_first[:-1], wanted.reshape(-1)).reshape(wanted.shape)
        cuts = np.minimum(cuts, (groups.first_row + groups.rows)[:, None])
    else:
        cuts = groups.first_row[:, None] + groups.rows[:, None] * w // WORKERS
    first, rows = cuts[:, :-1], np.diff(cuts, axis=1)
    last = np.minimum(first, max(len(row_at) - 1, 0))
    base = begin[:, None] + 9 + 5 * np.arange(WORKERS)
    meta[base] = np.where(rows > 0, row_at[last] if len(row_at) else 0, 0)
    meta[base + 1] = rows
    meta[base + 2] = np.where(rows > 0, groups.row_first[first] - groups.first[:, None], 0)
    meta[base + 4] = np.where(rows > 0, plan.columns, 0)


def _write_grad_w_workers(plan: DynamicPlan, meta: Int64, groups: SubGroups, begin: Int64, row_at: Int64) -> None:
    """Records of the workers of the gradient of the values: equal numbers of values."""
    w = np.arange(WORKERS + 1)
    cuts = groups.first[:, None] + groups.count[:, None] * w // WORKERS
    first, count = cuts[:, :-1], np.diff(cuts, axis=1)
    row = np.searchsorted(groups.row_first[:-1], first.reshape(-1), side="right").reshape(first.shape) - 1
    last = np.searchsorted(groups.row_first[:-1], np.maximum(cuts[:, 1:] - 1, first).reshape(-1), side="right")
    each = 4 if plan.by_block else 5
    base = begin[:, None] + (7 if plan.by_block else 9 + 5 * WORKERS) + each * np.arange(WORKERS)
    some = count > 0
    meta[base] = np.where(some, row_at[row], 0)
    meta[base + 1] = np.where(some, first - groups.row_first[row], 0)
    meta[base + 2] = np.where(some, first - groups.first[:, None], 0)
    meta[base + 3] = count
    if not plan.by_block:
        meta[base + 4] = np.where(some, last.reshape(first.shape) - row, 0)


def grad_a_header(plan: DynamicPlan) -> int:
    """Entries of a sub-group of a list of columns before its first column."""
    return 7 if plan.by_block else 9 + 5 * WORKERS


def _write_columns(plan: DynamicPlan, meta: Int64, groups: SubGroups, placed: PlacedBlocks) -> None:
    """Write the lists of columns."""
    group = np.repeat(np.arange(len(groups.first)), groups.count)
    order = np.lexsort((placed.row, placed.column, group))
    turned = sub_groups_of(group[order], placed.cell[order], placed.column[order])
    header = grad_a_header(plan)
    sizes = header + 2 * turned.rows + 2 * turned.count
    begin = plan.info_slots + plan.num_tiles * plan.meta_slots + groups.bucket * plan.grad_a_slots
    begin = begin + starts_in_buckets(groups.bucket, sizes)
    _write_header(plan, meta, SubGroups(**{**vars(turned), "bucket": groups.bucket}), begin, sizes)
    starts, counts = turned.row_first[:-1], np.diff(turned.row_first)
    number = np.arange(len(starts)) - turned.first_row[turned.row_group]
    at = begin[turned.row_group] + header + 2 * (number + starts - turned.first[turned.row_group])
    meta[at] = placed.column[order][starts]
    meta[at + 1] = counts
    inside = np.repeat(at, counts) + 2 + 2 * (np.arange(len(order)) - np.repeat(starts, counts))
    meta[inside] = placed.row[order]
    meta[inside + 1] = order - groups.first[group[order]]


def overflow_info(plan: DynamicPlan, passes: tuple[int, int], flags: Int64) -> Int64:
    """The overflow info: passes along x and y, steps along z, and which distances along x are used."""
    return np.concatenate([np.array([*passes, plan.parts[2]]), flags.astype(np.int64)])
