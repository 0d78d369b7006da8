"""Placement of a pattern in the buckets of a plan, and where what overflows goes.

Each cell's blocks are dealt to its z buckets in equal parts, in the order of rows. A bucket that they do not fit, by
values or by meta-info, loses rows from its end. These are placed cell by cell: in the cell's own buckets first, then in
those of the same x, the nearest cell along y first, then anywhere; in each cell whole rows first, then rows that are
cut, since the farthest block decides. With ``optimiseForSpeed`` off the emptiest buckets of each of these three come
first instead of the nearest, and whole rows try all of them before any row is cut.

Why it serves every pattern: buckets can be carried round the whole grid, so that any bucket reaches any cell. How far
they must go is in the overflow info, and decides how often the program's loop runs.

Example: cells of a 2 × 2 grid with 90, 60, 60 and 60 values and buckets of 78: 12 values of cell (0, 0) go to the
bucket of cell (0, 1), one step along y. The overflow info is [1, 2, 1, 1, 0]: two passes along y, one along x.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abele.arrays import Bool, Int64
from abele.errors import SparseOverflowError
from abele.poplibs.popsparse.dynamic.buckets import PlacedBlocks, grad_a_header, overflow_info
from abele.poplibs.popsparse.dynamic.plan import DynamicPlan
from abele.sparsity import Pattern


@dataclass
class _RowStretches:
    """Rows of buckets: stretches of blocks of one row, in the order of cells and rows; arrays [pieces]."""

    cell: Int64
    row: Int64
    first: Int64
    count: Int64
    bucket: Int64

    def take(self, which: Bool | Int64) -> _RowStretches:
        return _RowStretches(*(values[which] for values in vars(self).values()))


@dataclass
class _FreeSlots:
    """Free slots and entries of each bucket of a group."""

    values: Int64
    entries: Int64
    columns: Int64
    headers: dict[int, set[int]]


def place_pattern(plan: DynamicPlan, patterns: list[Pattern]) -> tuple[PlacedBlocks, Int64]:
    """Buckets of the blocks of each group's matrix, and the overflow info.

    Args:
        plan: The plan.
        patterns: A pattern for each group, in the plan's block.

    Returns:
        The blocks, ``source`` counting those of all groups one after the other; and the overflow info.

    Raises:
        SparseOverflowError: Buckets do not hold it.
    """
    placed, far_x, far_y, before = [], np.zeros(plan.parts[0], bool), 1, 0
    far_x[0] = True
    for group, pattern in enumerate(patterns):
        one = _place(plan, pattern, group)
        px, py = plan.parts[:2]
        home = one.bucket // plan.parts[2] % plan.num_cells
        dx, dy = (home // py - one.cell // py) % px, (home % py - one.cell % py) % py
        far_x[np.unique(dx)] = True
        far_y = max(far_y, int(dy.max(initial=0)) + 1)
        placed.append(PlacedBlocks(one.bucket, one.cell, one.row, one.column, one.source + before))
        before += pattern.num_blocks
    num_x = int(np.flatnonzero(far_x)[-1]) + 1
    passes = num_x, plan.parts[1] if num_x > 1 else far_y
    whole = PlacedBlocks(*(np.concatenate([getattr(p, name) for p in placed]) for name in vars(placed[0])))
    return whole, overflow_info(plan, passes, far_x)


def _place(plan: DynamicPlan, pattern: Pattern, group: int) -> PlacedBlocks:
    """Buckets of one group's blocks."""
    py, pz = plan.parts[1:]
    x, row = np.divmod(pattern.rows, plan.cell[0])
    y, column = np.divmod(pattern.columns, plan.cell[1])
    cell = x * py + y
    # Blocks are sorted by row and column already, so that a stable sort by cell leaves them so within cells.
    order = np.argsort(cell, kind="stable")
    cell, row, column = cell[order], row[order], column[order]
    pieces, spilt = _deal(plan, cell, row, column)
    if len(spilt.cell):
        pieces = _spill(plan, pieces, spilt, group)
    index = np.repeat(pieces.first - np.cumsum(pieces.count) + pieces.count, pieces.count)
    index = index + np.arange(len(index))
    bucket = np.repeat(pieces.bucket, pieces.count)
    own = cell[index] != bucket // pz  # a bucket's own cell comes first
    sort = np.lexsort((index, cell[index], own, bucket))
    index, bucket = index[sort], bucket[sort]
    return PlacedBlocks(bucket + group * plan.group_tiles, cell[index], row[index], column[index], order[index])


def _deal(plan: DynamicPlan, cell: Int64, row: Int64, column: Int64) -> tuple[_RowStretches, _RowStretches]:
    """Pieces as an even deal has them, and those beyond the room of their buckets, which are the last rows."""
    pz = plan.parts[2]
    counts = np.bincount(cell, minlength=plan.num_cells)
    rank = np.arange(len(cell)) - (np.cumsum(counts) - counts)[cell]
    bucket = cell * pz + rank * pz // np.maximum(counts[cell], 1)
    change = np.ones(len(cell), bool)
    change[1:] = (bucket[1:] != bucket[:-1]) | (row[1:] != row[:-1])
    first = np.flatnonzero(change)
    pieces = _RowStretches(cell[first], row[first], first, np.diff(np.append(first, len(cell))), bucket[first])
    limit = plan.nz_slots // 2 if plan.options.force_spills else plan.nz_slots
    stays = _running(pieces.bucket, pieces.count) <= limit
    head, each = plan.meta_slots - plan.header, pieces.count + 2
    stays &= _running(pieces.bucket, each) <= head
    if plan.grad_a_slots:
        # A column takes two entries where it comes first, and each block two.
        new = np.ones(len(cell), np.int64)
        order = np.lexsort((np.arange(len(cell)), column, bucket))
        new[order[1:]] = (np.diff(bucket[order]) != 0) | (np.diff(column[order]) != 0)
        entries = 2 * pieces.count + 2 * (np.add.reduceat(new, first) if len(first) else first)
        stays &= _running(pieces.bucket, entries) <= plan.grad_a_slots - grad_a_header(plan)
    return pieces.take(stays), pieces.take(~stays)


def _column_entries(count: Int64) -> Int64:
    """Entries of a list of columns, at most: a column of its own for each block."""
    return 4 * count


def _running(key: Int64, size: Int64) -> Int64:
    """Sum of sizes up to each item within its run of equal keys."""
    total = np.cumsum(size)
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else np.zeros(0, np.int64)
    before = (total - size)[first]
    return total - np.repeat(before, np.diff(np.append(first, len(key))))


def _spill(plan: DynamicPlan, pieces: _RowStretches, spilt: _RowStretches, group: int) -> _RowStretches:
    """All pieces with a bucket for each."""
    room = _room(plan, pieces)
    placed = [pieces]
    for cell in np.unique(spilt.cell).tolist():
        left = spilt.take(spilt.cell == cell)
        buckets, pz = _order(plan, cell, room), plan.parts[2]
        near = plan.options.nearest and not plan.options.force_spills
        for first in range(0, len(buckets), pz if near else len(buckets)):
            stage = buckets[first : first + pz] if near else buckets
            for whole in (True, False):
                left = _fill(plan, left, cell, stage, room, placed, whole=whole)
            if not len(left.cell):
                break
        if len(left.cell):
            raise _overflow(plan, group, cell, int(left.count.sum()), int(spilt.count.sum()), room)
    return _RowStretches(*(np.concatenate([getattr(p, name) for p in placed]) for name in vars(pieces)))


def _room(plan: DynamicPlan, pieces: _RowStretches) -> _FreeSlots:
    used = np.bincount(pieces.bucket, pieces.count, plan.group_tiles).astype(np.int64)
    entries = np.bincount(pieces.bucket, pieces.count + 2, plan.group_tiles).astype(np.int64)
    columns = np.bincount(pieces.bucket, _column_entries(pieces.count), plan.group_tiles).astype(np.int64)
    held = used > 0
    headers = {int(b): {int(b) // plan.parts[2]} for b in np.flatnonzero(held)}
    return _FreeSlots(
        plan.nz_slots - used,
        plan.meta_slots - entries - held * plan.header,
        plan.grad_a_slots - columns - held * grad_a_header(plan) if plan.grad_a_slots else np.full(len(used), 1 << 40),
        headers,
    )


def _order(plan: DynamicPlan, cell: int, room: _FreeSlots) -> Int64:
    """All buckets of a group in the order in which a cell tries them."""
    px, py, pz = plan.parts
    x, y = divmod(cell, py)
    tile = np.arange(plan.group_tiles)
    bx, by = tile // pz // py, tile // pz % py
    dx, dy = (bx - x) % px, (by - y) % py
    if plan.options.force_spills:  # its own buckets are the last resort
        return np.lexsort((tile, dy, dx, (dx == 0) & (dy == 0)))
    if plan.options.nearest:
        return np.lexsort((tile, dy, dx))
    tier = np.where(dx > 0, 2, np.where(dy > 0, 1, 0))
    return np.lexsort((tile, -room.values, tier))


def _fill(
    plan: DynamicPlan,
    left: _RowStretches,
    cell: int,
    buckets: Int64,
    room: _FreeSlots,
    placed: list[_RowStretches],
    *,
    whole: bool,
) -> _RowStretches:
    """Put pieces of one cell into buckets in their order; returns what found no room."""
    for bucket in buckets[room.values[buckets] > 0].tolist():
        if not len(left.cell):
            break
        new = cell not in room.headers.get(bucket, ())
        values = room.values[bucket]
        entries = room.entries[bucket] - (plan.header if new else 0)
        columns = room.columns[bucket] - (grad_a_header(plan) if new and plan.grad_a_slots else 0)
        fits = (np.cumsum(left.count) <= values) & (np.cumsum(left.count + 2) <= entries)
        fits &= np.cumsum(_column_entries(left.count)) <= columns
        some = int(fits.sum())  # the sums grow, so those that fit come first
        taken, left = left.take(np.arange(some)), left.take(np.arange(some, len(left.cell)))
        if not whole and len(left.cell):
            at_most = min(values - taken.count.sum(), entries - (taken.count + 2).sum() - 2)
            at_most = min(at_most, (columns - _column_entries(taken.count).sum()) // 4, left.count[0])
            if at_most > 0:
                taken, left = _cut(taken, left, int(at_most))
        if not len(taken.cell):
            continue
        taken.bucket[:] = bucket
        placed.append(taken)
        room.values[bucket] -= taken.count.sum()
        room.entries[bucket] = entries - (taken.count + 2).sum()
        room.columns[bucket] = columns - _column_entries(taken.count).sum()
        room.headers.setdefault(bucket, set()).add(cell)
    return left


def _cut(taken: _RowStretches, left: _RowStretches, count: int) -> tuple[_RowStretches, _RowStretches]:
    """Move the first blocks of the first piece left over to those taken."""
    piece = left.take(np.array([0]))
    piece.count[0] = count
    left.first[0] += count
    left.count[0] -= count
    if not left.count[0]:
        left = left.take(np.arange(1, len(left.cell)))
    return _RowStretches(*(np.append(getattr(taken, n), getattr(piece, n)) for n in vars(taken))), left


def _overflow(plan: DynamicPlan, group: int, cell: int, left: int, spilt: int, room: _FreeSlots) -> SparseOverflowError:
    x, y = divmod(cell, plan.parts[1])
    return SparseOverflowError(
        f"overflow in buckets: {left:,} blocks of cell ({x}, {y}) of group {group} find no room",
        because=f"{spilt:,} blocks were too many for their own buckets of {plan.nz_slots:,} blocks and "
        f"{plan.meta_slots:,} entries; {int(room.values.sum()):,} blocks are free, with "
        f"{int(np.maximum(room.entries, 0).sum()):,} entries of meta-info",
        remedy="metaInfoBucketOversizeProportion "
        f"{plan.options.oversize:g} → {max(2 * plan.options.oversize, 0.5):g} where the plan is made, more values "
        "declared, or a less skewed pattern",
    )
