"""Tiles whose workers share one vertex in a step of a reduction.

A tile's rectangles of one shape are a vertex of all its workers, whatever their number: 6 shares each of 4 groups of
channels are one vertex with a list of 4 rows rather than 24 vertices. Tiles with rectangles of several shapes have a
vertex for each share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.poplibs.popops.reductions.first_step import Rectangles
from abele.poplibs.popops.reductions.partials import Combination


@dataclass(frozen=True)
class SharedVertices:
    """Vertices that all workers of a tile share.

    Attributes:
        head: First rectangle of the first step on each tile, int64[n].
        cell: First rectangle of each of their cells, int64[cells], tile by tile.
        count: Cells of each, int64[n].
        rows: Rows of their cells, int64[n].
        columns: Columns of their cells, int64[n].
        kept: Parts that outputs are cut into, int64[n].
        reduced: Parts that what is reduced is cut into, int64[n].
        length: Results of each, int64[n].
        rest: True for the rectangles that have vertices of their own, bool[rectangles].
    """

    head: Int64
    cell: Int64
    count: Int64
    rows: Int64
    columns: Int64
    kept: Int64
    reduced: Int64
    length: Int64
    rest: npt.NDArray[np.bool_]

    @staticmethod
    def of(first: Rectangles, *, joined: bool, least: int, width: int = 0) -> SharedVertices | None:
        """The vertices of tiles with ``least`` shares or more; None where cells were joined to vertices already.

        Args:
            first: Rectangles of the first step.
            joined: True if the results of a tile must be neighbours among the outputs.
            least: Shares below which a tile's rectangles have vertices of their own.
            width: Columns of cells that one vertex can read without a copy; 0 for any.
        """
        if first.shares is None or not first.partials.num:
            return None
        kept, reduced, base = first.shares
        tile, parts = first.partials.tile[base], kept * reduced
        end = base + parts - 1
        rows = first.row[end] + first.num_rows[end] - first.row[base]
        columns = first.width[base]
        apart = tile[1:] != tile[:-1]
        start = np.flatnonzero(np.append(True, apart))
        count = np.diff(np.append(start, len(base)))
        own = np.repeat(start, count)
        alike = columns == width if width else np.ones(len(base), dtype=bool)
        for column in (rows, columns, kept, reduced):
            alike &= column == column[own]
        begin, length = first.partials.begin, first.partials.length
        if joined:
            follows = np.append(False, begin[1:] == (begin + length)[:-1])
            # The first rectangle of a tile follows nothing.
            follows[base[start]] = True
            alike &= np.logical_and.reduceat(follows, base)
        taken = np.logical_and.reduceat(alike, start) & (count * parts[start] >= least)
        start, count = start[taken], count[taken]
        cells = np.repeat(taken, np.diff(np.append(np.flatnonzero(np.append(True, apart)), len(base))))
        rest = np.repeat(~cells, parts)
        sums = np.append(0, np.cumsum(length))
        total = sums[base[start] + count * parts[start]] - sums[base[start]]
        return SharedVertices(
            head=base[start],
            cell=base[cells],
            count=count,
            rows=rows[start],
            columns=columns[start],
            kept=kept[start],
            reduced=reduced[start],
            length=total,
            rest=rest,
        )


@dataclass(frozen=True)
class SharedRows:
    """Vertices of a step after the first whose columns all workers of a tile share.

    Attributes:
        vertex: Vertices of the step that each takes over, int64[m], tile by tile.
        count: Vertices of the step in each, int64[n].
        kept: Parts that columns are cut into, int64[n].
        rest: Vertices of the step that stay a worker's, int64[k].
    """

    vertex: Int64
    count: Int64
    kept: Int64
    rest: Int64

    @staticmethod
    def of(step: Combination, rows: Int64, to: Int64, *, workers: int, least: int) -> SharedRows:
        """The vertices of tiles with few of them, of one shape, and with neighbouring results.

        Args:
            step: The step.
            rows: Rows that each vertex combines, int64[vertices].
            to: First result of each in what is written, int64[vertices].
            workers: Workers of a tile.
            least: Columns that are worth a worker.
        """
        length, tile = step.partials.length, step.partials.tile
        order = np.lexsort((to, tile))
        start = np.flatnonzero(np.append(True, np.diff(tile[order]) != 0)[: len(order)])
        count = np.diff(np.append(start, len(order)))
        own = order[np.repeat(start, count)]
        follows = np.append(True, (to + length)[order][:-1] == to[order][1:])[: len(order)]
        follows[start] = True
        alike = follows & (rows[order] == rows[own]) & (length[order] == length[own])
        kept = np.minimum(workers // count, length[order[start]] // least)
        taken = (kept > 1) & np.logical_and.reduceat(alike, start) if len(start) else kept > 1
        every = np.repeat(taken, count)
        return SharedRows(order[every], count[taken], kept[taken], np.sort(order[~every]))
