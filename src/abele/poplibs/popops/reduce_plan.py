"""Planning a reduction: which tile reduces what, in as many steps as it takes.

The first step reduces on each tile what it holds. Then partial results of one output that lie on the same tile are
combined, then those of different tiles: in two steps where one tile would otherwise receive too many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from abele.graph.intervals import distinct
from abele.graph.mapping import TileMapping
from abele.poplibs.poputil.grid import Cells, Grid
from abele.poplibs.poputil.regions import count_up

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

Direction = Literal["rows", "columns"]

MIN_ELEMENTS_PER_WORKER = 32
"""Elements below which a tile's share is not worth another worker and a step to combine what they give. Guessed."""
MAX_DEPTH = 32
"""Partial results of one output above which a step in between pays: exchange and additions of one tile grow with the
depth, a superstep costs a few hundred cycles. Guessed."""


@dataclass(frozen=True)
class Partials:
    """Intermediate results: ranges of the outputs, each on one tile, stored one after the other.

    Attributes:
        begin: First output of each range, int64[n].
        length: Outputs of each, int64[n].
        tile: Where each lies, int32[n].
    """

    begin: Int64
    length: Int64
    tile: Int32

    @property
    def num(self) -> int:
        """Number of ranges."""
        return len(self.begin)

    @property
    def offset(self) -> Int64:
        """Where each range starts in storage, int64[n]."""
        return np.cumsum(self.length) - self.length

    @property
    def size(self) -> int:
        """Elements of storage."""
        return int(self.length.sum())

    @property
    def mapping(self) -> TileMapping:
        """Tile of each element of storage."""
        return TileMapping(self.size, self.offset, self.tile)


@dataclass(frozen=True)
class Slices:
    """Rectangles that the first step reduces, one a worker.

    Attributes:
        start: Block, row and column of the first element, int64[n, 3].
        size: Blocks (1), rows and columns, int64[n, 3].
        column: First column of the cell that each is cut from, int64[n].
        width: Columns of that cell, int64[n].
        partials: What each gives.
    """

    start: Int64
    size: Int64
    column: Int64
    width: Int64
    partials: Partials

    def strips(self) -> tuple[Int64, Int64, Int64]:
        """The same rows of whole cells, which lie in one piece where a slice of some columns does not.

        Returns:
            Start and size of each strip, int64[k, 3]; strip that each slice lies in, int64[n].
        """
        is_first = self.start[:, 2] == self.column
        first = np.flatnonzero(is_first)
        size = self.size[first]
        size[:, 2] = self.width[first]
        return self.start[first], size, np.cumsum(is_first) - 1


@dataclass(frozen=True)
class Combination:
    """Ranges combined by one vertex each: a step after the first.

    Attributes:
        partials: What each vertex gives.
        source: Element of the partials' storage where each row starts, int64[rows].
        length: Elements of each row, int64[rows]; those of one vertex are equal.
        row_begin: Rows of vertex i are ``row_begin[i]`` to ``row_begin[i + 1]``, int64[n + 1].
    """

    partials: Partials
    source: Int64
    length: Int64
    row_begin: Int64


def output_position(grid: Grid, kept: tuple[bool, ...], block: Int64) -> Int64:
    """Flattened output index of each block, with its rows and columns, where kept, at 0."""
    kept_extents = [n if k else 1 for n, k in zip(grid.extents, kept, strict=True)]
    position = np.zeros(len(block), dtype=np.int64)
    if grid.blocks > 1:
        outer = len(grid.extents) - 2
        coordinates = np.unravel_index(block, grid.extents[:outer])
        for d, coordinate in enumerate(coordinates):
            if kept[d]:
                position = position + coordinate * int(np.prod(kept_extents[d + 1 :], dtype=np.int64))
    return position


def slice_cells(cells: Cells, kept: tuple[bool, ...], direction: Direction, workers: int, grain: int) -> Slices:
    """Cut each cell into slices for the workers of its tile.

    Args:
        cells: What each tile holds of the tensor.
        kept: For each group of the grid, whether it is kept.
        direction: What is reduced within a cell; the other is kept.
        workers: Workers of a tile.
        grain: Columns of a slice are multiples of this where columns are kept.
    """
    reduce_rows = direction == "rows"
    per_tile = np.bincount(cells.tile)[cells.tile]
    wanted = np.clip(cells.size // MIN_ELEMENTS_PER_WORKER, 1, -(-workers // per_tile))
    kept_count = -(-cells.num_columns // grain) if reduce_rows else cells.num_rows
    along_kept = np.minimum(wanted, kept_count)
    along_reduced = np.where(along_kept * 2 > wanted, 1, np.minimum(wanted // along_kept, _reduced(cells, reduce_rows)))
    along_rows, along_columns = (along_reduced, along_kept) if reduce_rows else (along_kept, along_reduced)
    cell, number = count_up(along_rows * along_columns)
    row_part, column_part = number // along_columns[cell], number % along_columns[cell]
    row, rows = _share(cells.num_rows[cell], along_rows[cell], row_part, 1)
    column, columns = _share(cells.num_columns[cell], along_columns[cell], column_part, grain if reduce_rows else 1)
    start = np.stack([cells.block[cell], cells.row[cell] + row, cells.column[cell] + column], axis=1)
    size = np.stack([np.ones_like(rows), rows, columns], axis=1)
    first = output_position(cells.grid, kept, start[:, 0])
    is_kept = kept[-1] if reduce_rows else (len(kept) > 1 and kept[-2])
    if is_kept:
        first = first + (start[:, 2] if reduce_rows else start[:, 1])
    length = (columns if reduce_rows else rows) if is_kept else np.ones_like(rows)
    given = Partials(first, length, cells.tile[cell])
    return Slices(start, size, cells.column[cell], cells.num_columns[cell], given)


def _reduced(cells: Cells, reduce_rows: bool) -> Int64:
    return cells.num_rows if reduce_rows else cells.num_columns


def _share(total: Int64, parts: Int64, part: Int64, grain: int) -> tuple[Int64, Int64]:
    """Begin and length of one of ``parts`` equal parts of whole grains."""
    grains = -(-total // grain)
    low = part * grains // parts * grain
    high = np.minimum((part + 1) * grains // parts * grain, total)
    return low, high - low


def _pieces(key: Int64, length: Int64, extra_cuts: Int64) -> tuple[Int64, Int64, Int64, Int64]:
    """Ranges cut where any of them begins or ends: cuts, and for each piece its segment, range and offset in it."""
    cuts = distinct(np.concatenate([key, key + length, extra_cuts]))
    first = np.searchsorted(cuts, key)
    last = np.searchsorted(cuts, key + length)
    entry, number = count_up(last - first)
    segment = first[entry] + number
    return cuts, segment, entry, cuts[segment] - key[entry]


def depth(partials: Partials) -> int:
    """Most partial results that one output has."""
    _, segment, _, _ = _pieces(partials.begin, partials.length, partials.begin[:0])
    return int(np.bincount(segment).max(initial=0))


def combine_on_tiles(partials: Partials, outputs: int) -> Combination:
    """Combine ranges of the same outputs that lie on the same tile."""
    key = partials.tile.astype(np.int64) * outputs + partials.begin
    cuts, segment, entry, offset = _pieces(key, partials.length, key[:0])
    return _combination(partials, cuts, segment, entry, offset, segment, outputs)


def combine_in_groups(partials: Partials, outputs: int, group: int) -> Combination:
    """Combine up to ``group`` ranges of the same outputs, on a tile of one of them."""
    cuts, segment, entry, offset = _pieces(partials.begin, partials.length, partials.begin[:0])
    order = np.lexsort((partials.tile[entry], segment))
    rank = np.empty(len(segment), dtype=np.int64)
    starts = np.searchsorted(segment[order], segment[order], side="left")
    rank[order] = np.arange(len(segment)) - starts
    groups = int(rank.max(initial=0)) // group + 1
    return _combination(partials, cuts, segment, entry, offset, segment * groups + rank // group, outputs)


def combine_on(partials: Partials, mapping: TileMapping) -> Combination:
    """Combine all ranges of each output on the tile that ``mapping`` gives it."""
    cuts, segment, entry, offset = _pieces(partials.begin, partials.length, mapping.begin)
    result = _combination(partials, cuts, segment, entry, offset, segment, mapping.size)
    there = Partials(result.partials.begin, result.partials.length, mapping.tiles_of(result.partials.begin))
    return Combination(there, result.source, result.length, result.row_begin)


def _combination(
    partials: Partials, cuts: Int64, segment: Int64, entry: Int64, offset: Int64, group: Int64, outputs: int
) -> Combination:
    """One vertex for each distinct value of ``group``, on the tile of one of its pieces, a different one each."""
    order = np.lexsort((partials.tile[entry], group))
    segment, entry, offset, group = segment[order], entry[order], offset[order], group[order]
    first = np.flatnonzero(np.append(True, group[1:] != group[:-1])) if len(group) else group
    rows = np.diff(np.append(first, len(group)))
    host = first + np.arange(len(first)) % np.maximum(rows, 1)
    lengths = np.diff(cuts)[segment]
    given = Partials(cuts[segment[first]] % max(outputs, 1), lengths[first], partials.tile[entry[host]])
    return Combination(given, (partials.offset[entry] + offset), lengths, np.append(first, len(group)).astype(np.int64))


@dataclass(frozen=True)
class Steps:
    """The steps that depend on the operand alone.

    Attributes:
        combinations: The steps after the first.
        partials: What the last of them, or the first step, gives.
        results: Tile of each result when they are complete now; None when another step must join them.
    """

    combinations: tuple[Combination, ...]
    partials: Partials
    results: TileMapping | None


def plan_steps(partials: Partials, outputs: int) -> Steps:
    """The steps that combine what the first one gives, but for the last.

    Args:
        partials: What the first step gives.
        outputs: Number of results.
    """
    steps: list[Combination] = []
    local = combine_on_tiles(partials, outputs)
    if len(local.length) > local.partials.num:
        steps.append(local)
        partials = local.partials
    deepest = depth(partials)
    if deepest > MAX_DEPTH:
        between = combine_in_groups(partials, outputs, math.ceil(math.sqrt(deepest)))
        steps.append(between)
        partials = between.partials
    return Steps(tuple(steps), partials, _mapping_of_results(partials, outputs) if deepest == 1 else None)


def last_combination(steps: Steps, wanted: TileMapping) -> tuple[Combination, ...]:
    """All steps after the first when the results are wanted where ``wanted`` says."""
    there = steps.results
    if there is not None and np.array_equal(there.begin, wanted.begin) and np.array_equal(there.tile, wanted.tile):
        return steps.combinations
    return (*steps.combinations, combine_on(steps.partials, wanted))


def _mapping_of_results(partials: Partials, outputs: int) -> TileMapping:
    """Where results lie when each has one range."""
    order = np.argsort(partials.begin, kind="stable")
    begin, tile = partials.begin[order], partials.tile[order]
    change = np.append(True, tile[1:] != tile[:-1]) if len(tile) else np.zeros(0, bool)
    return TileMapping(outputs, begin[change], tile[change])
