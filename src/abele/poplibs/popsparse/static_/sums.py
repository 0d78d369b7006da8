"""Sums of a static product's partials over bands, rows without values, and the final order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64
from abele.graph import ComputeSet, Copy, Execute, Graph, Regions, Tensor, boxes
from abele.graph.gather import gathered
from abele.graph.program import Steps
from abele.poplibs.popsparse.static_ import costs
from abele.poplibs.popsparse.static_.codelets import order_codelet, sum_codelet, zero_codelet
from abele.poplibs.popsparse.static_.layout import StaticLayout, in_columns


@dataclass(frozen=True)
class BandPartials:
    """Sums of a tile's rows over its band.

    Attributes:
        tensor: Variable with all of them.
        begin: First address of each share of each part, int64[parts, shares].
        size: Elements of each, int64[parts, shares].
        are_sums: True if each row is on one tile, so that nothing is left to add.
    """

    tensor: Tensor
    begin: Int64
    size: Int64
    are_sums: bool

    @staticmethod
    def create(graph: Graph, layout: StaticLayout, sums: Tensor) -> BandPartials:
        """Space on each tile; in ``sums`` itself where each row is on one tile."""
        cut = layout.cut
        size = np.diff(cut.entry_ptr) * (layout.side * layout.widths)[:, None]
        # Entries in order of rows, each row once: a share is a stretch of the sums.
        if np.array_equal(cut.entry_row, np.arange(cut.held_rows)):
            parts = np.cumsum(layout.widths) - layout.widths
            begin = (
                parts[:, None] * layout.pattern.shape[0] + cut.entry_ptr[:-1] * (layout.side * layout.widths)[:, None]
            )
            found = BandPartials(sums, begin + sums.variables[0].base, size, are_sums=True)
        else:
            tensor = graph.variable(layout.result, int(size.sum()), name="partials")
            begin = (np.cumsum(size) - size.reshape(-1)).reshape(size.shape) + tensor.variables[0].base
            found = BandPartials(tensor, begin, size, are_sums=False)
        graph.map_regions(found.regions(), layout.tile)
        return found

    def regions(self) -> Regions:
        """One region for each share of each part."""
        return Regions(np.arange(self.size.size + 1), self.begin.reshape(-1), self.size.reshape(-1), self.tensor)


@dataclass(frozen=True)
class SumPieces:
    """Stretches of rows of a part's result that the same tiles have partials of.

    Rows follow each other in a tile's partials, so neighbours with the same tiles are summed as one.

    Attributes:
        first_row: Rank of the first row of each stretch, int64[stretches].
        entry: Entries of the first rows, stretch by stretch.
        ptr: First place of each stretch's entries, int64[stretches + 1].
    """

    first_row: Int64
    entry: Int64
    ptr: Int64

    @staticmethod
    def of(layout: StaticLayout) -> SumPieces:
        """The longest stretches."""
        cut = layout.cut
        share = np.repeat(np.arange(cut.shares), np.diff(cut.entry_ptr))
        entry = np.argsort(cut.entry_row, kind="stable")
        depth = np.bincount(cut.entry_row, minlength=cut.held_rows)
        ptr = np.append(0, np.cumsum(depth))
        before = np.repeat(np.append(0, depth)[:-1], depth)
        place = np.maximum(np.arange(len(entry)) - before, 0)
        follows = (entry == entry[place] + 1) & (share[entry] == share[entry[place]])
        alike = np.append(False, depth[1:] == depth[:-1])[: len(depth)]
        if len(depth):
            alike &= np.logical_and.reduceat(follows, ptr[:-1])
        first = np.flatnonzero(~alike)
        taken = np.repeat(~alike, depth)
        return SumPieces(first, entry[taken], np.append(0, np.cumsum(depth[first])))


def _grain(layout: StaticLayout, width: int) -> tuple[int, int]:
    """Elements of a worker's stretch of a part's result, and of a tile's."""
    total, at_once = layout.pattern.shape[0] * width, 2 * costs.GRAIN[layout.result.bits]
    of_tile = int(costs.ceil_div(total, layout.plan.tiles))
    chunk = int(costs.ceil_div(of_tile, costs.WORKERS * at_once)) * at_once
    return chunk, int(costs.ceil_div(of_tile, chunk)) * chunk


def add_partials(
    graph: Graph, step: ComputeSet, layout: StaticLayout, pieces: SumPieces, partials: BandPartials, sums: Tensor
) -> None:
    """Add the vertices that sum the partials of each part, on the part's tiles in turn."""
    cut, depth = layout.cut, np.diff(pieces.ptr)
    share = np.searchsorted(cut.entry_ptr, pieces.entry, side="right") - 1
    within = pieces.entry - cut.entry_ptr[share]
    begins = np.cumsum(layout.widths) - layout.widths
    for width in sorted(set(layout.widths.tolist())):
        parts = np.flatnonzero(layout.widths == width)
        row, (chunk, of_tile) = layout.side * width, _grain(layout, width)
        end = cut.held_rows * row
        start = np.union1d(pieces.first_row * row, np.arange(0, end, chunk))
        length = np.diff(np.append(start, end))
        number = np.searchsorted(pieces.first_row * row, start, side="right") - 1
        rows = depth[number]
        ptr = np.append(0, np.cumsum(rows))
        place = np.repeat(pieces.ptr[number] - ptr[:-1], rows) + np.arange(ptr[-1])
        offset = np.repeat(start - pieces.first_row[number] * row, rows) + within[place] * row
        begin = partials.begin[parts][:, share[place]] + offset
        where = sums.variables[0].base + begins[parts][:, None] * layout.pattern.shape[0] + start
        count = len(start) * len(parts)
        written = Regions(np.arange(count + 1), where.reshape(-1), np.tile(length, len(parts)), sums)
        tile = (parts[:, None] * layout.plan.tiles + start // of_tile).reshape(-1)
        graph.map_regions(written, tile)
        read = Regions(
            np.arange(begin.size + 1), begin.reshape(-1), np.tile(np.repeat(length, rows), len(parts)), partials.tensor
        )
        starts = (np.arange(len(parts))[:, None] * ptr[-1] + ptr[:-1]).reshape(-1)
        step.vertices(
            sum_codelet(layout.result),
            tile=tile,
            x=(read, np.arange(begin.size), np.append(starts, begin.size)),
            out=written,
        )


def clear_rows(graph: Graph, step: ComputeSet, layout: StaticLayout, pieces: SumPieces, sums: Tensor) -> None:
    """Add the vertices that set rows without values to zero; they are the last of each part."""
    begins = np.cumsum(layout.widths) - layout.widths
    for width in sorted(set(layout.widths.tolist())):
        parts = np.flatnonzero(layout.widths == width)
        first, end = layout.cut.held_rows * layout.side * width, layout.pattern.shape[0] * width
        if first == end:
            continue
        of_tile = _grain(layout, width)[1]
        start = np.union1d([first], np.arange(first // of_tile + 1, -(-end // of_tile)) * of_tile)
        length = np.diff(np.append(start, end))
        where = sums.variables[0].base + begins[parts][:, None] * layout.pattern.shape[0] + start
        written = Regions(np.arange(where.size + 1), where.reshape(-1), np.tile(length, len(parts)), sums)
        tile = (parts[:, None] * layout.plan.tiles + start // of_tile).reshape(-1)
        graph.map_regions(written, tile)
        step.vertices(zero_codelet(layout.result), tile=tile, out=written)


def put_in_order(graph: Graph, body: Steps, layout: StaticLayout, sums: Tensor, out: Tensor) -> None:
    """Append the move of sums to ``out`` [m, n], of which each tile holds stretches.

    Rows of elements of a single part in their own order are only copied. Others come in pieces, which vertices put in
    order: PopLibs' units leave the columns of a block row one after the other, and are counted so, though our vertices
    leave its rows.
    """
    order = layout.cut.row_order
    is_ranked = not bool((order == np.arange(len(order))).all())
    if not is_ranked and layout.plan.splits == 1 and layout.side == 1:
        body.add(Copy(in_columns(sums, layout.pattern.shape[0], layout), out))
        return
    ordered = _in_ranks(sums, layout) if is_ranked else in_columns(sums, layout.pattern.shape[0], layout)
    held = graph.mapping_of(out)
    start, size = held.begin[:, None], held.length[:, None]
    step = graph.compute_set("order")
    step.vertices(
        order_codelet(layout.result),
        tile=held.tile,
        x=boxes(ordered.flatten(), start, size),
        out=boxes(out.flatten(), start, size),
    )
    body.add(Execute(step))


def _in_ranks(sums: Tensor, layout: StaticLayout) -> Tensor:
    """Sums of parts, whose rows are ranked, as [m, n]."""
    order, rows = layout.cut.row_order, layout.pattern.shape[0]
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    row = (rank[:, None] * layout.side + np.arange(layout.side)).reshape(-1)
    begin = (np.cumsum(layout.widths) - layout.widths) * rows
    place = begin + row[:, None] * layout.widths
    length = np.broadcast_to(layout.widths, place.shape)
    return gathered(sums, place.reshape(-1), length.reshape(-1)).reshape((rows, layout.dense))
