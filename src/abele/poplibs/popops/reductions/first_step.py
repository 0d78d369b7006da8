"""First step of a reduction: each tile reduces its own elements, with as many workers as pay.

Nothing moves in it, so its plan is local: what a tile holds is a set of rectangles of the [blocks, rows, columns] grid,
and rectangles that add to the same outputs go to one vertex. A tile with fewer vertices than workers shares its outputs
out first, because those shares need no step afterwards, and only then what is reduced, which leaves several partial
results on the tile. A share must be worth the worker: below two vectors of accumulators, or 32 reduced elements, the
start of a worker costs more than it saves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from abele.arrays import Int64
from abele.graph.intervals import distinct
from abele.layout import offset_at, row_major
from abele.poplibs.popops.reductions.codelets import Direction
from abele.poplibs.popops.reductions.partials import Partials
from abele.poplibs.poputil.grid import BlockGrid, Cells
from abele.poplibs.poputil.regions import count_up

MIN_ELEMENTS_PER_WORKER = 32
"""Elements below which a share of the reduced elements is not worth another worker and a step to combine the results.
Guessed.
"""
MIN_VECTORS_PER_WORKER = 2
"""Vectors of accumulators below which outputs are not shared out to another worker. Guessed; published memory of
reductions to eight columns leaves room for the state of one vertex per tile."""


@dataclass(frozen=True)
class Rectangles:
    """Rectangles that the vertices of the first step reduce, one or several per vertex.

    Attributes:
        vertex: Vertex of each rectangle, int64[n], non-decreasing.
        block: Its block in the grid, int64[n].
        row: Its first row, int64[n].
        column: Its first column, int64[n].
        num_rows: Its rows, int64[n].
        num_columns: Its columns, int64[n].
        strip: First column of the cell that it is cut from, int64[n].
        width: Columns of that cell, int64[n].
        partials: Partial result of each vertex.
        shares: Parts of the outputs and of what is reduced that each cell is cut into, int64[cells] each, and the first
            rectangle of each cell, int64[cells]; None where vertices have several rectangles.
    """

    vertex: Int64
    block: Int64
    row: Int64
    column: Int64
    num_rows: Int64
    num_columns: Int64
    strip: Int64
    width: Int64
    partials: Partials
    shares: tuple[Int64, Int64, Int64] | None = None

    @property
    def is_single(self) -> bool:
        """True if each vertex has one rectangle."""
        return len(self.vertex) == self.partials.num

    def taken(self, chosen: Int64) -> Rectangles:
        """Some rectangles of vertices that have one each."""
        given = self.partials
        return Rectangles(
            vertex=np.arange(len(chosen)),
            block=self.block[chosen],
            row=self.row[chosen],
            column=self.column[chosen],
            num_rows=self.num_rows[chosen],
            num_columns=self.num_columns[chosen],
            strip=self.strip[chosen],
            width=self.width[chosen],
            partials=Partials(given.begin[chosen], given.length[chosen], given.tile[chosen], given.offset[chosen]),
        )


def lies_in_runs(cells: Cells) -> bool:
    """True if the elements of each block on a tile are one stretch of the flattened grid."""
    follows = cells.position[1:] == cells.position[:-1] + cells.size[:-1]
    same = (cells.tile[1:] == cells.tile[:-1]) & (cells.block[1:] == cells.block[:-1])
    key = cells.tile.astype(np.int64) * cells.grid.blocks + cells.block
    whole = (cells.num_columns == cells.grid.columns) | (cells.num_rows == 1)
    return bool(whole.all()) and len(distinct(key)) == cells.num - int((follows & same).sum())


def cut_columns(cells: Cells) -> Cells:
    """The cells of each tile and block cut at each other's columns, pieces of successive rows joined.

    So a stretch that begins and ends within rows is at most three rectangles, each with other columns.
    """
    columns = cells.grid.columns
    group = cells.tile.astype(np.int64) * cells.grid.blocks + cells.block
    key = group * (columns + 1) + cells.column
    # Per tile and block: columns at which any of its cells begins or ends.
    cuts = distinct(np.concatenate([key, key + cells.num_columns]))
    first, last = np.searchsorted(cuts, key), np.searchsorted(cuts, key + cells.num_columns)
    entry, number = count_up(last - first)
    segment = first[entry] + number
    order = np.lexsort((cells.row[entry], segment))
    segment, entry = segment[order], entry[order]
    begin, size = cuts[segment] % (columns + 1), np.append(np.diff(cuts), 0)[segment]
    pieces = replace(cells.taken(entry), column=begin, num_columns=size)
    # Rows that follow each other with the same columns are one rectangle.
    goes_on = (segment[1:] == segment[:-1]) & (pieces.row[1:] == (pieces.row + pieces.num_rows)[:-1])
    head = np.flatnonzero(np.append(True, ~goes_on))[: pieces.num]
    tail = np.append(head[1:], pieces.num) - 1
    merged = replace(pieces.taken(head), num_rows=(pieces.row + pieces.num_rows)[tail] - pieces.row[head])
    return merged.taken(np.argsort(merged.position, kind="stable"))


def output_position(grid: BlockGrid, kept: tuple[bool, ...], block: Int64) -> Int64:
    """Flattened output index of each block, with its rows and columns, where kept, at 0."""
    kept_extents = [n if k else 1 for n, k in zip(grid.extents, kept, strict=True)]
    strides = [s if k else 0 for s, k in zip(row_major(kept_extents), kept, strict=True)]
    return offset_at(list(zip(grid.extents, strides, strict=True))[:-2], block)


def first_step(
    cells: Cells, kept: tuple[bool, ...], direction: Direction, workers: int, vector: int, accumulators: int
) -> Rectangles:
    """Share the elements of each tile between its workers.

    Cells of a tile that add to the same outputs make one vertex. Where a tile has fewer of these than workers, outputs
    are shared out, then the reduced elements.

    Args:
        cells: Cells of the tensor on each tile.
        kept: For each group of the grid, True if it is kept.
        direction: Dimension that is reduced within a cell; the other is kept.
        workers: Workers of a tile.
        vector: Elements that one load gives; shares of columns are multiples.
        accumulators: Outputs that a vertex accumulates at a time.
    """
    by_row = direction == "rows"
    begin = output_position(cells.grid, kept, cells.block)
    keeps_inner = kept[-1] if by_row else len(kept) > 1 and kept[-2]
    if keeps_inner:
        begin = begin + (cells.column if by_row else cells.row)
    outputs = (cells.num_columns if by_row else cells.num_rows) if keeps_inner else np.ones_like(begin)
    # Cells of one tile that add to the same outputs become neighbours, and those are a bundle.
    order = np.lexsort((cells.position, outputs, begin, cells.tile))
    cells, begin, outputs = cells.taken(order), begin[order], outputs[order]
    change = (np.diff(cells.tile) != 0) | (np.diff(begin) != 0) | (np.diff(outputs) != 0)
    bundle = np.cumsum(np.append(False, change))[: cells.num]
    head = np.flatnonzero(np.append(True, change))[: cells.num]
    members = np.bincount(bundle)
    shares = _shares(cells, bundle, head, outputs=outputs, by_row=by_row, workers=workers, accumulators=accumulators)
    return _dealt(
        cells, bundle, head, members=members, shares=shares, begin=begin, outputs=outputs, by_row=by_row, vector=vector
    )


def _shares(
    cells: Cells, bundle: Int64, head: Int64, outputs: Int64, by_row: bool, workers: int, accumulators: int
) -> tuple[Int64, Int64]:
    """Into how many parts the outputs and the reduced elements of each bundle are cut."""
    tile = cells.tile[head]
    # Workers that each bundle of a tile may use.
    spare = -(-workers // np.bincount(tile)[tile])
    members = np.bincount(bundle)
    along_kept = np.minimum(spare, np.maximum(outputs[head] // (MIN_VECTORS_PER_WORKER * accumulators), 1))
    if not by_row:
        along_kept = np.minimum(spare, outputs[head])
    # Several rectangles are added by a vertex that takes whole rows of each.
    along_kept = np.where(by_row & (members > 1), 1, along_kept)
    elements = np.bincount(bundle, weights=cells.size).astype(np.int64)
    reduced = (cells.num_rows if by_row else cells.num_columns)[head]
    worth = (along_kept * 2 <= spare) & (elements >= MIN_ELEMENTS_PER_WORKER * workers)
    along_reduced = np.where(worth, np.minimum(spare // along_kept, np.where(members > 1, members, reduced)), 1)
    return along_kept, along_reduced


def _dealt(
    cells: Cells,
    bundle: Int64,
    head: Int64,
    members: Int64,
    shares: tuple[Int64, Int64],
    begin: Int64,
    outputs: Int64,
    by_row: bool,
    vector: int,
) -> Rectangles:
    """One vertex for each share of the outputs and of the reduced elements of each bundle."""
    kept_parts, reduced_parts = shares
    vertices = kept_parts * reduced_parts
    base = np.cumsum(vertices) - vertices
    several = members > 1
    rank = np.arange(cells.num) - head[bundle]
    repeats = np.where(several, kept_parts, vertices)[bundle]
    cell, number = count_up(repeats)
    own = bundle[cell]
    kept_part = np.where(several[own], number, number // reduced_parts[own])
    dealt = rank[cell] * reduced_parts[own] // members[own]
    reduced_part = np.where(several[own], dealt, number % reduced_parts[own])
    vertex = base[own] + kept_part * reduced_parts[own] + reduced_part
    pieces = np.where(several[own], 1, reduced_parts[own])
    piece = np.where(several[own], 0, reduced_part)
    row_parts, row_part = (pieces, piece) if by_row else (kept_parts[own], kept_part)
    column_parts, column_part = (kept_parts[own], kept_part) if by_row else (pieces, piece)
    row, rows = share(cells.num_rows[cell], row_parts, row_part, 1)
    column, columns = share(cells.num_columns[cell], column_parts, column_part, vector)
    order = np.argsort(vertex, kind="stable")
    one = order[np.flatnonzero(np.append(True, np.diff(vertex[order]) != 0))] if len(order) else order
    made = outputs[cell] > 1
    first = begin[cell] + np.where(made, column if by_row else row, 0)
    length = np.where(made, columns if by_row else rows, 1)
    partials = Partials(first[one], length[one], cells.tile[cell][one])
    return Rectangles(
        vertex=vertex[order],
        block=cells.block[cell][order],
        row=(cells.row[cell] + row)[order],
        column=(cells.column[cell] + column)[order],
        num_rows=rows[order],
        num_columns=columns[order],
        strip=cells.column[cell][order],
        width=cells.num_columns[cell][order],
        partials=partials,
        shares=None if several.any() else (kept_parts, reduced_parts, base),
    )


def share(total: Int64, parts: Int64, part: Int64, grain: int) -> tuple[Int64, Int64]:
    """Begin and length of one of ``parts`` equal parts of whole grains, or of elements where there are too few."""
    unit = np.where(-(-total // grain) < parts, 1, grain)
    grains = -(-total // unit)
    low = part * grains // parts * unit
    high = np.minimum((part + 1) * grains // parts * unit, total)
    return low, high - low
