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
from abele.poplibs.popops.reductions.partials import Combination, Partials
from abele.poplibs.poputil.grid import Cells


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
        joins: True if a vertex adds up what its workers leave of the same outputs.
        partials: Results of all vertices, those of the rest too.
        number: The range of ``partials`` that a rectangle's results are in, int64[rectangles].
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
    joins: bool
    partials: Partials
    number: Int64

    @property
    def num_parts(self) -> Int64:
        """Results that the workers of each vertex leave it to add up, int64[n]; 0 where it has nothing to add up."""
        return np.where(self.joins & (self.reduced > 1), self.length * self.reduced, 0)

    def parts(self, each: int) -> Partials:
        """Space for ``each`` result of those workers, one range for each vertex that needs some."""
        size = each * self.num_parts
        tile = self.partials.tile[self.number[self.head]]
        return Partials(np.zeros_like(size[size > 0]), size[size > 0], tile[size > 0])

    @staticmethod
    def of(first: Rectangles, *, joins: bool, last: bool, least: int, width: int = 0) -> SharedVertices | None:
        """The vertices of tiles with ``least`` shares or more; None where cells were joined to vertices already.

        Args:
            first: Rectangles of the first step.
            joins: True if a vertex adds up what its workers leave of the same outputs.
            last: True if the results of a tile must be neighbours among the outputs.
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
        begin, made = first.partials.begin[base], np.add.reduceat(first.partials.length, base)
        made = made // reduced if joins else made
        if last:
            follows = np.append(True, begin[1:] == (begin + made)[:-1])
            follows[start] = True
            alike &= follows if joins else follows & (reduced == 1)
        taken = np.logical_and.reduceat(alike, start) & (count * parts[start] >= least)
        start, count = start[taken], count[taken]
        cells = np.repeat(taken, np.diff(np.append(np.flatnonzero(np.append(True, apart)), len(base))))
        rest = np.repeat(~cells, parts)
        sums = np.append(0, np.cumsum(made))
        partials, number = first.partials, np.arange(first.partials.num)
        if joins:
            # One range for each cell, where it was one for each share.
            ranges, length = rest.copy(), partials.length.copy()
            ranges[base[cells]], length[base[cells]] = True, made[cells]
            partials = Partials(partials.begin[ranges], length[ranges], partials.tile[ranges])
            number = np.cumsum(ranges) - 1
        return SharedVertices(
            head=base[start],
            cell=base[cells],
            count=count,
            rows=rows[start],
            columns=columns[start],
            kept=kept[start],
            reduced=reduced[start],
            length=sums[start + count] - sums[start],
            rest=rest,
            joins=joins,
            partials=partials,
            number=number,
        )


@dataclass(frozen=True)
class SharedRuns:
    """Vertices of tiles whose elements are runs of one output each, of any lengths: one for all workers of a tile.

    A sum of all elements is of this kind, as the norm of a parameter is: 912 and 928 elements of a tile are a vertex
    with a list of two rows.

    Attributes:
        cell: Cells of the vertices, tile by tile, int64[cells].
        count: Cells of each vertex, int64[n].
        partials: Results.
        workers: Workers of a tile.
    """

    cell: Int64
    count: Int64
    partials: Partials
    workers: int

    @property
    def rest(self) -> npt.NDArray[np.bool_]:
        """Nothing is left to other vertices."""
        return np.zeros(0, dtype=bool)

    @staticmethod
    def of(cells: Cells, begin: Int64, *, workers: int, least: int) -> SharedRuns | None:
        """The vertices; None where a tile has elements of several outputs, or no worker has ``least`` elements.

        Args:
            cells: Cells of each tile.
            begin: Output of each, int64[cells].
            workers: Workers of a tile.
            least: Elements that are worth a worker.
        """
        if not cells.num or (cells.num_rows > 1).any():
            return None
        order = np.lexsort((cells.position, cells.tile))
        tile, output = cells.tile[order], begin[order]
        head = np.flatnonzero(np.append(True, tile[1:] != tile[:-1]))
        count = np.diff(np.append(head, len(order)))
        if (output != np.repeat(output[head], count)).any():
            return None
        if np.add.reduceat(cells.size[order], head).max() < least * workers:
            return None
        return SharedRuns(order, count, Partials(output[head], np.ones_like(head), tile[head]), workers)

    def parts(self, each: int) -> Partials:
        """Space for ``each`` result of every worker, one range for each vertex."""
        size = np.full(len(self.count), each * self.workers, dtype=np.int64)
        return Partials(np.zeros_like(size), size, self.partials.tile)


@dataclass(frozen=True)
class SharedRows:
    """Vertices of a step after the first that all workers of a tile share.

    Vertices of a step that follow each other and add to the same outputs, each some of their rows, are a bundle: 44
    rows of 8 columns as 6 vertices of 7 or 8 rows.

    Attributes:
        vertex: First vertex of each bundle, tile by tile, int64[m].
        count: Bundles of each shared vertex, int64[n].
        kept: Parts that columns are cut into, int64[n].
        reduced: Vertices of each of its bundles, int64[n].
        rest: Vertices of the step that stay a worker's, int64[k].
    """

    vertex: Int64
    count: Int64
    kept: Int64
    reduced: Int64
    rest: Int64

    @staticmethod
    def of(step: Combination, rows: Int64, to: Int64, *, workers: int, least: int) -> SharedRows:
        """The vertices of tiles with bundles of one shape, and with neighbouring results.

        Args:
            step: The step.
            rows: Rows that each vertex combines, int64[vertices].
            to: First result of each in what is written, int64[vertices].
            workers: Workers of a tile.
            least: Columns that are worth a worker.
        """
        begin, length, tile = step.partials.begin, step.partials.length, step.partials.tile
        apart = (begin[1:] != begin[:-1]) | (length[1:] != length[:-1]) | (tile[1:] != tile[:-1])
        apart |= to[1:] != (to + length)[:-1]
        head = np.flatnonzero(np.append(True, apart)[: len(tile)])
        bundle = np.diff(np.append(head, len(tile)))
        total = np.add.reduceat(rows, head) if len(head) else rows
        # A bundle's vertices have the rows that its workers are given.
        own = np.repeat(np.arange(len(head)), bundle)
        part = np.arange(len(tile)) - head[own]
        dealt = (part + 1) * total[own] // bundle[own] - part * total[own] // bundle[own]
        regular = np.logical_and.reduceat(rows == dealt, head) if len(head) else head > 0
        order = np.lexsort((to[head], tile[head]))
        start = np.flatnonzero(np.append(True, np.diff(tile[head][order]) != 0)[: len(order)])
        count = np.diff(np.append(start, len(order)))
        first = order[np.repeat(start, count)]
        end = to[head] + length[head] * bundle
        follows = np.append(True, end[order][:-1] == to[head][order][1:])[: len(order)]
        follows[start] = True
        alike = follows & regular[order]
        for shape in (total, length[head], bundle):
            alike &= shape[order] == shape[first]
        reduced = bundle[order[start]]
        kept = np.where(
            reduced > 1, 1, np.maximum(np.minimum(workers // count, length[head][order[start]] // least), 1)
        )
        several = kept * reduced * count > 1
        taken = several & np.logical_and.reduceat(alike, start) if len(start) else several
        every = np.repeat(taken, count)
        left = np.ones(len(head), dtype=bool)
        left[order[every]] = False
        return SharedRows(
            head[order[every]], count[taken], kept[taken], reduced[taken], np.flatnonzero(np.repeat(left, bundle))
        )
