"""Walks: the order in which a host goes over the blocks of a known pattern, and its shares.

A product S·X makes block rows of its result one after the other. For each it needs the blocks of that row: their
columns, and where their values lie. A product Sᵀ·X is the same for the transpose, whose blocks are in another order and
whose rows run down in the blocks as they are stored; both are known beforehand, so no value is moved. Products sampled
at the pattern (G·Xᵀ) go over blocks in the order of their values, so that each thread writes a stretch of its own.

Threads share rows out by the work in them, not by their number.

Example: rows with 6, 1, 1 and 2 blocks, at a cost of 1 a row beside, are 14 units of work. Of two shares the first has
the first row alone (7), the second the other three (7).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from abele.arrays import Int64
from abele.llvm.host import num_threads
from abele.sparsity import Pattern

LEAST_SHARES = 4
"""Shares of one product, on hosts with fewer threads: engines may have more of them than the host that builds."""
ROW_COST = 2
"""Blocks that are as much work as the beginning and the end of a row."""


class BlockSteps(NamedTuple):
    """Distances between neighbours in the values of a block.

    Attributes:
        row: From one of its rows to the next, in values.
        column: From one of its columns to the next.
    """

    row: int
    column: int


@dataclass(frozen=True, eq=False)
class Walk:
    """Block rows of a result, and the blocks that each needs.

    Attributes:
        block: Rows and columns of a block, as the product sees it.
        steps: Distances in its values.
        rows: Block row of each run of blocks [runs].
        starts: First block of each run [runs + 1].
        columns: Block column of each block [blocks].
        places: Place of each block's first value [blocks].
    """

    block: tuple[int, int]
    steps: BlockSteps
    rows: Int64
    starts: Int64
    columns: Int64
    places: Int64

    @property
    def area(self) -> int:
        """Values of a block."""
        return self.block[0] * self.block[1]

    @property
    def depth(self) -> int:
        """Columns of a block."""
        return self.block[1]

    @property
    def num_values(self) -> int:
        """Values of all blocks."""
        return len(self.columns) * self.area

    @cached_property
    def is_plain(self) -> bool:
        """True if each block's values follow those of the one before it, from 0 on."""
        return np.array_equal(self.places, np.arange(len(self.places)) * self.area)


def product_walk(pattern: Pattern, order: Int64 | None, *, transposed: bool) -> Walk:
    """The walk of S·X, or of Sᵀ·X.

    Args:
        pattern: Pattern of S.
        order: Place of each value in the stored ones, of the pattern's values [blocks, *block]; None for their order.
        transposed: True for Sᵀ·X.
    """
    pattern, places = _stored(pattern, order)
    width = pattern.block[1]
    if not transposed:
        return Walk(
            pattern.block, BlockSteps(width, 1), np.arange(pattern.grid[0]), pattern.row_starts, pattern.columns, places
        )
    other, moved = pattern.transposed()
    return Walk(
        other.block, BlockSteps(1, width), np.arange(other.grid[0]), other.row_starts, other.columns, places[moved]
    )


@dataclass(frozen=True, eq=False)
class ScatterShare:
    """Blocks of a pattern that lie in some of its block rows and block columns.

    Attributes:
        row: First of its rows.
        first: First of its columns.
        last: The one after the last.
        starts: First of each row's blocks, counted within the share [rows + 1].
        firsts: Number of each row's first block [rows].
        columns: Column of each block, counted from ``first``.
    """

    row: int
    first: int
    last: int
    starts: Int64
    firsts: Int64
    columns: Int64


def row_shares(pattern: Pattern, shares: int) -> list[ScatterShare]:
    """Block rows of a pattern in shares with about as many blocks each."""
    starts, (rows, columns) = pattern.row_starts, pattern.grid
    cuts = np.searchsorted(starts, np.arange(1, shares) * (pattern.num_blocks / shares))
    found = []
    for first, last in pairwise([0, *np.clip(cuts, 0, rows).tolist(), rows]):
        begin, end = starts[first], starts[last]
        own = np.asarray(starts[first : last + 1] - begin, np.int64)
        found.append(ScatterShare(first, 0, columns, own, starts[first:last], pattern.columns[begin:end]))
    return found


def column_shares(pattern: Pattern, shares: int) -> list[ScatterShare]:
    """Block columns of a pattern in shares with about as many blocks each."""
    columns = pattern.grid[1]
    done = np.cumsum(np.bincount(pattern.columns, minlength=columns))
    cuts = np.searchsorted(done, np.arange(1, shares) * (pattern.num_blocks / shares)) + 1
    bounds = sorted({0, *np.minimum(cuts, columns).tolist(), columns})
    return [_column_share(pattern, first, last) for first, last in pairwise(bounds)]


def _column_share(pattern: Pattern, first: int, last: int) -> ScatterShare:
    inside = (pattern.columns >= first) & (pattern.columns < last)
    rows = pattern.grid[0]
    starts = np.zeros(rows + 1, np.int64)
    np.cumsum(np.bincount(pattern.rows[inside], minlength=rows), out=starts[1:])
    places = np.append(np.flatnonzero(inside), 0)
    return ScatterShare(0, first, last, starts, places[starts[:-1]], pattern.columns[inside] - first)


def sampled_walk(pattern: Pattern, order: Int64 | None) -> Walk:
    """The walk of G·Xᵀ at the places of a pattern: blocks in the order of their values, in runs of one row."""
    pattern, places = _stored(pattern, order)
    sorting = np.argsort(places, kind="stable")
    rows = pattern.rows[sorting]
    first = np.flatnonzero(np.diff(rows, prepend=-1))
    starts = np.append(first, len(rows))
    return Walk(
        pattern.block, BlockSteps(pattern.block[1], 1), rows[first], starts, pattern.columns[sorting], places[sorting]
    )


def shares_of(walk: Walk, shares: int) -> Int64:
    """Runs at which each of ``shares`` begins and ends, about equal in work [shares + 1]; some may have none."""
    runs = len(walk.rows)
    done = walk.starts + ROW_COST * np.arange(runs + 1)
    targets = np.arange(shares + 1) * (done[-1] / shares)
    after = np.searchsorted(done, targets)
    before = np.maximum(after - 1, 0)
    nearer = targets - done[before] < done[np.minimum(after, runs)] - targets
    cuts = np.where(nearer, before, np.minimum(after, runs))
    cuts[0], cuts[-1] = 0, runs
    return np.asarray(cuts, np.int64)


def num_shares(groups: int, least: int = LEAST_SHARES) -> int:
    """Shares of each of ``groups`` products of about the same work, ``least`` or more of all."""
    threads = num_threads()
    wanted = threads * -(-least // threads)
    return -(-wanted // groups)


def _stored(pattern: Pattern, order: Int64 | None) -> tuple[Pattern, Int64]:
    """A pattern whose blocks each lie in one stretch, and the place of each."""
    area = pattern.block[0] * pattern.block[1]
    if order is None:
        return pattern, np.arange(pattern.num_blocks) * area
    places = np.asarray(order, np.int64).reshape((pattern.num_blocks, area))
    if np.array_equal(places, places[:, :1] + np.arange(area)):
        return pattern, places[:, 0]
    finer, index = pattern.recut((1, 1))
    return finer, places.reshape(-1)[index.reshape(-1)]
