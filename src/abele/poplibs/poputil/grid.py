"""Cells: the elements of a tensor on each tile, cut into rectangles of a [blocks, rows, columns] grid.

Operands that are repeated along some dimensions, or reduced over them, have a simple form within a rectangle: one
element, one per row, one per column, or all. Every element-wise, reducing and random operation is placed by these
cells.

Why rectangles: a tile's share of a tensor is a few stretches of its storage order, and each is at most three
rectangles (the end of a row, whole rows, the beginning of a row). Within a rectangle each operand has one stride per
direction, so one vertex with two loops covers it, whatever the shapes broadcast to.

Example: elements 3 to 20 of a tensor [4, 8] are three rectangles: 5 elements at the end of row 0, row 1, and 5 elements
at the beginning of row 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from abele.arrays import Int32, Int64
from abele.graph.intervals import order_of
from abele.graph.mapping import TileMapping
from abele.poplibs.poputil.regions import count_up


@dataclass(frozen=True)
class BlockGrid:
    """Extents of a collapsed tensor: blocks (an index space of their own), rows and columns.

    Attributes:
        groups: Runs of dimensions ``[begin, end)`` that were joined, in order; the last is the columns, the one
            before it the rows, those before are the blocks'.
        extents: Extent of each group.
    """

    groups: tuple[tuple[int, int], ...]
    extents: tuple[int, ...]

    @property
    def columns(self) -> int:
        """Columns of a block."""
        return self.extents[-1] if self.extents else 1

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.extents[-2] if len(self.extents) > 1 else 1

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return math.prod(self.extents[:-2])


def collapse(extents: Sequence[int], patterns: Sequence[Sequence[object]]) -> BlockGrid:
    """The grid of a tensor in storage order, neighbouring dimensions joined where every pattern is the same on both.

    Args:
        extents: Extents of the dimensions, outermost first; those of one index join anything.
        patterns: For each operand one value per dimension; dimensions with equal values may be joined.
    """
    keys = [tuple(p[d] for p in patterns) for d in range(len(extents))]
    groups: list[tuple[int, int]] = []
    key: tuple[object, ...] | None = None
    # Extents of 1 join anything and have no say in the key: it is that of the first real dimension of a group.
    for dim, extent in enumerate(extents):
        if groups and (extent == 1 or key is None or keys[dim] == key):
            groups[-1] = (groups[-1][0], dim + 1)
        else:
            groups.append((dim, dim + 1))
        if extent != 1 and (key is None or keys[dim] != key):
            key = keys[dim]
    return BlockGrid(tuple(groups), tuple(math.prod(extents[a:b]) for a, b in groups))


@dataclass(frozen=True)
class Cells:
    """Rectangles of a grid, each on one tile.

    Attributes:
        grid: The grid that they are cut from.
        tile: Tile of each, int32[n].
        block: Block of each, int64[n].
        row: First row, int64[n].
        column: First column, int64[n].
        num_rows: Rows, int64[n].
        num_columns: Columns, int64[n].
    """

    grid: BlockGrid
    tile: Int32
    block: Int64
    row: Int64
    column: Int64
    num_rows: Int64
    num_columns: Int64

    @property
    def num(self) -> int:
        """Number of cells."""
        return len(self.tile)

    @property
    def size(self) -> Int64:
        """Elements of each cell, int64[n]."""
        return self.num_rows * self.num_columns

    @property
    def position(self) -> Int64:
        """First element of each cell in the flattened grid, int64[n]."""
        return (self.block * self.grid.rows + self.row) * self.grid.columns + self.column

    def taken(self, chosen: Int64) -> Cells:
        """The cells of these numbers, in this order."""
        columns = (self.block, self.row, self.column, self.num_rows, self.num_columns)
        return Cells(self.grid, self.tile[chosen], *(a[chosen] for a in columns))

    def runs(self) -> tuple[Int64, Int64, Int64]:
        """Stretches of the flattened grid in each cell, cell by cell.

        Returns:
            Cell, first element and elements of each stretch, int64[k] each; a stretch is as many rows as lie together.
        """
        is_whole = self.num_columns == self.grid.columns
        cell, number = count_up(np.where(is_whole, 1, self.num_rows))
        length = np.where(is_whole, self.size, self.num_columns)
        return cell, self.position[cell] + number * self.grid.columns, length[cell]


def cells_of(grid: BlockGrid, mapping: TileMapping) -> Cells:
    """Cut the elements of each tile into cells that lie together: whole rows, or one row or a part of it.

    Args:
        grid: The collapsed tensor.
        mapping: Tile of each element of the flattened tensor.
    """
    begin, length, tile = mapping.begin, mapping.length, mapping.tile
    begin, length, tile = _cut_at_multiples(begin, length, tile, grid.rows * grid.columns)
    columns = grid.columns
    offset = begin % columns
    # A stretch is the end of a row, whole rows, and the beginning of a row; those that are empty go out below.
    head = np.minimum(length, (columns - offset) % columns)
    body = (length - head) // columns * columns
    parts = ((begin, head), (begin + head, body), (begin + head + body, length - head - body))
    begin = np.concatenate([b for b, _ in parts])
    length = np.concatenate([n for _, n in parts])
    tile = np.tile(tile, 3)
    keep = np.flatnonzero(length > 0)
    keep = keep[order_of(begin[keep])]
    begin, length, tile = begin[keep], length[keep], tile[keep]
    num_rows = np.maximum(length // columns, 1)
    row = begin // columns
    return Cells(
        grid=grid,
        tile=tile,
        block=row // grid.rows,
        row=row % grid.rows,
        column=begin % columns,
        num_rows=num_rows,
        num_columns=np.minimum(length, columns),
    )


def rectangles_of(grid: BlockGrid, mapping: TileMapping) -> Cells:
    """As :func:`cells_of`, with parts of successive rows joined where they have the same columns and tile.

    So rows that are split over tiles give each tile one rectangle rather than one cell per row.
    """
    cells = cells_of(grid, mapping)
    # Sorted so that what may be joined lies next to each other: by tile, block, column, then row.
    cells = cells.taken(np.lexsort((cells.row, cells.column, cells.block, cells.tile)))
    end = cells.row + cells.num_rows
    goes_on = cells.row[1:] == end[:-1]
    for same in (cells.tile, cells.block, cells.column, cells.num_columns):
        goes_on &= same[1:] == same[:-1]
    first = np.flatnonzero(np.append(True, ~goes_on))[: cells.num]
    last = np.append(first[1:], cells.num) - 1
    joined = replace(cells.taken(first), num_rows=end[last] - cells.row[first])
    return joined.taken(np.argsort(joined.position))


def _cut_at_multiples(begin: Int64, length: Int64, tile: Int32, multiple: int) -> tuple[Int64, Int64, Int32]:
    first = begin // multiple
    entry, number = count_up((begin + length - 1) // multiple - first + 1)
    edge = (first[entry] + number) * multiple
    low = np.maximum(edge, begin[entry])
    high = np.minimum(edge + multiple, (begin + length)[entry])
    return low, high - low, tile[entry]


def split_for_workers(cells: Cells, workers: int, grain: int) -> Cells:
    """Cells cut so that the workers of each tile have one each, as far as rows or grains of columns go.

    Args:
        cells: Cells of any number per tile, those of several rows as wide as the grid.
        workers: Workers of a tile.
        grain: Columns of a cut row are multiples of this.
    """
    # A tile's cells share its workers, at least one each.
    parts = -(-workers // np.bincount(cells.tile)[cells.tile])
    by_row = cells.num_rows > 1
    units = np.where(by_row, cells.num_rows, -(-cells.num_columns // grain))
    parts = np.minimum(parts, units)
    # Part k of n has units k·u // n to (k + 1)·u // n: sizes differ by one at most.
    cell, number = count_up(parts)
    low = number * units[cell] // parts[cell]
    high = (number + 1) * units[cell] // parts[cell]
    rows, wide = by_row[cell], cells.num_columns[cell]
    column = np.where(rows, 0, low * grain)
    last = np.minimum(high * grain, wide)
    return Cells(
        grid=cells.grid,
        tile=cells.tile[cell],
        block=cells.block[cell],
        row=cells.row[cell] + np.where(rows, low, 0),
        column=cells.column[cell] + column,
        num_rows=np.where(rows, high - low, 1),
        num_columns=np.where(rows, wide, last - column),
    )
