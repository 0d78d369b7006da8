"""Arranging a tensor: writing it anew in another storage order, by permuting blocks on the tiles.

Vertices sum over channels that follow each other in memory. Where an operand comes in another order (activations whose
samples are summed over, weights whose channels are exchanged, plain row-major matrices), its blocks are permuted once,
spread over all tiles, before they are sent to where they are used.

The work is cut into boxes, about one for each tile. A box is a square along the two dimensions that are innermost in
source and target: then both the pieces that are read and those that are written are at least a vector long. A box that
is long in one of the two only would read or write single elements, each with the fixed cost of a piece. Where squares
of 16 leave tiles idle they become strips, which stay long in the target: the readers of the result send those pieces
on. A box lies within one block of either storage, so that it has one stride per dimension.

A target that is longer than its source ends in zeros, as where 980 channels become 62 groups of 16: a box of zeros
beside each box that ends where the source does, by the same vertex, from a constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.graph import ComputeSet, Graph, Regions, StateData
from abele.graph.intervals import distinct
from abele.numerics import ElementType
from abele.poplibs.poplin.contraction.operand import Operand
from abele.poplibs.poplin.planner.target import PlanningTarget
from abele.poplibs.poplin.vertices import cost
from abele.poplibs.poplin.vertices.permute import permute, permute_run
from abele.poplibs.poputil.regions import count_up

_WIDEST = 16
_NARROWEST = 4
_STRIDED_DIMS = 4


def arrange(
    graph: Graph,
    compute_set: ComputeSet,
    source: Operand,
    target: Operand,
    edges: Mapping[str, Int64] = MappingProxyType({}),
) -> Operand:
    """Add the vertices that copy ``source`` into ``target``, of another storage order.

    Args:
        graph: The graph.
        compute_set: Compute set that the vertices are added to.
        source: Operand to copy.
        target: Operand to fill. If it is not mapped yet, it is spread over all tiles; else its owners do the work. It
            may be longer than the source along one dimension that it stores in blocks, by less than a block.
        edges: Indices of dimensions at which ``target`` may change tile, ascending: boxes end there.

    Returns:
        The target.
    """
    start, size = _boxes(source, target, graph.system.ipu.num_tiles, edges)
    written = target.regions(start, size)
    tile = _owners(graph, written)
    is_new = tile is None
    # A new target: boxes are dealt to the tiles in order, as evenly as their number allows.
    if tile is None:
        vector, num = _vectors(target, start)
        tile = (vector * min(num, graph.system.ipu.num_tiles) // num).astype(np.int32)
        graph.map_regions(written, tile)
    moves = _Moves(source.regions(start, size), written, tile, _work(source, target, size), _walk(source, target, size))
    if target.extents != source.extents:
        moves = moves.with_more(_tail(graph, source, target, _Boxes(start, size, tile)))
    moves = moves.sorted()
    first = np.flatnonzero(np.diff(moves.tile, prepend=-1))
    # What a vertex finds on its own tile would be copied beside what arrives, to be read in one piece.
    runs = moves.follow_each_other(first) & ~moves.are_at_home(graph, first) & is_new
    for chosen, add in ((~runs, _add_boxes), (runs, _add_runs)):
        if chosen.any():
            add(compute_set, moves.of_tiles(first, chosen), source.tensor.dtype)
    return target


def _add_boxes(compute_set: ComputeSet, moves: _Moves, dtype: ElementType) -> None:
    """Add one vertex per tile, with a list of its boxes."""
    first = np.flatnonzero(np.diff(moves.tile, prepend=-1))
    index, row_begin = np.arange(len(moves.tile), dtype=np.int64), np.append(first, len(moves.tile))
    matrices, blocks = (np.add.reduceat(n, first) for n in moves.work)
    compute_set.vertices(
        permute(dtype),
        tile=moves.tile[first],
        x=(moves.read, index, row_begin),
        out=(moves.written, index, row_begin),
        shape=StateData(moves.walk.reshape(-1), row_begin * moves.walk.shape[1]),
        matrices=matrices,
        blocks=blocks,
    )


def _add_runs(compute_set: ComputeSet, moves: _Moves, dtype: ElementType) -> None:
    """Add one vertex per tile, of boxes that follow each other there."""
    first = np.flatnonzero(np.diff(moves.tile, prepend=-1))
    number = np.repeat(np.arange(len(first), dtype=np.int64), np.diff(np.append(first, len(moves.tile))))
    matrices, blocks = (np.add.reduceat(n, first) for n in moves.work)

    def one_each(regions: Regions) -> Regions:
        row = number[regions.row]
        return Regions.from_intervals(regions.tensor, row, regions.begin, regions.length, len(first))

    width = moves.walk.shape[1]
    compute_set.vertices(
        permute_run(dtype),
        tile=moves.tile[first],
        x=one_each(moves.read),
        out=one_each(moves.written),
        shape=StateData(moves.walk[first].reshape(-1), width * np.arange(len(first) + 1, dtype=np.int64)),
        boxes=np.bincount(number),
        matrices=matrices,
        blocks=blocks,
    )


class _Moves(NamedTuple):
    """Boxes that are copied: regions read and written, tile, matrices and blocks, and walk of each."""

    read: Regions
    written: Regions
    tile: npt.NDArray[np.int32]
    work: tuple[Int64, Int64]
    walk: npt.NDArray[np.int32]

    def with_more(self, more: _Moves) -> _Moves:
        """These boxes, and others."""
        return _Moves(
            Regions.concat([self.read, more.read]),
            Regions.concat([self.written, more.written]),
            np.concatenate([self.tile, more.tile]),
            (np.concatenate([self.work[0], more.work[0]]), np.concatenate([self.work[1], more.work[1]])),
            np.concatenate([self.walk, more.walk]),
        )

    def at(self, chosen: Int64) -> _Moves:
        """Some boxes."""
        work = self.work[0][chosen], self.work[1][chosen]
        return _Moves(self.read.take(chosen), self.written.take(chosen), self.tile[chosen], work, self.walk[chosen])

    def sorted(self) -> _Moves:
        """The boxes tile by tile, as they lie there."""
        return self.at(np.lexsort((self.written.begin[self.written.ptr[:-1]], self.tile)))

    def of_tiles(self, first: Int64, chosen: npt.NDArray[np.bool_]) -> _Moves:
        """The boxes of some tiles; ``first`` is the first box of each tile."""
        if chosen.all():
            return self
        return self.at(np.flatnonzero(np.repeat(chosen, np.diff(np.append(first, len(self.tile))))))

    def follow_each_other(self, first: Int64) -> npt.NDArray[np.bool_]:
        """True for tiles whose boxes are alike and lie there one after the other; these hold nothing else.

        Args:
            first: First box of each tile.
        """
        count = np.diff(np.append(first, len(self.tile)))
        alike = (self.walk == np.repeat(self.walk[first], count, axis=0)).all(axis=1)
        alike &= np.repeat(self.read.sizes[first], count) == self.read.sizes
        # Intervals in ascending order are one piece of a tile's share of the target.
        interval = self.written.begin
        ascends = np.append(True, np.diff(interval) > 0)
        ascends[self.written.ptr[first]] = True
        alike &= np.logical_and.reduceat(ascends, self.written.ptr[:-1])
        return np.asarray(np.logical_and.reduceat(alike, first) & (count > 1))

    def are_at_home(self, graph: Graph, first: Int64) -> npt.NDArray[np.bool_]:
        """True for tiles that hold some of what their boxes are made of; ``first`` is the first box of each tile."""
        # By numbers of the whole graph: a source may lie outside of a virtual one.
        whole = graph.top_level
        begin = self.written.begin[self.written.ptr[:-1]]
        tile = whole.interval_map(self.written.tensor.variables).split(begin, np.ones_like(begin))[2]
        tiles = whole.interval_map(self.read.tensor.variables)
        _, _, holder, interval = tiles.split(self.read.begin, self.read.length)
        own = holder == tile[self.read.row[interval]]
        box = np.bincount(self.read.row[interval], weights=own, minlength=len(self.tile))
        return np.asarray(np.add.reduceat(box, first) > 0)


class _Boxes(NamedTuple):
    """Boxes of a tensor, and the tile that each is on: first index and size by dimension, int64[n] each."""

    start: dict[str, Int64]
    size: dict[str, Int64]
    tile: npt.NDArray[np.int32]


def _tail(graph: Graph, source: Operand, target: Operand, boxes: _Boxes) -> _Moves:
    """Boxes of zeros at the end of a longer target, each on the tile of the box that ends where the source does."""
    (dim,) = (d for d in target.extents if target.extents[d] != source.extents[d])
    begin, count = source.extents[dim], target.extents[dim] - source.extents[dim]
    last = np.flatnonzero(boxes.start[dim] + boxes.size[dim] == begin)
    start = {d: n[last] for d, n in boxes.start.items()} | {dim: np.full(len(last), begin)}
    size = {d: n[last] for d, n in boxes.size.items()} | {dim: np.full(len(last), count)}
    tile, elements = boxes.tile[last], np.prod(list(size.values()), axis=0)
    written = target.regions(start, size)
    graph.map_regions(written, tile)
    zeros = graph.constant(source.tensor.dtype, (int(elements.max()),), 0, name="zeros")
    graph.map(zeros, int(tile[0]))
    # Zeros are read in order, so strides are those of the target; the work is that of a box of the source.
    ptr, base = np.arange(len(last) + 1, dtype=np.int64), zeros.variables[0].base
    read = Regions(ptr, np.full(len(last), base, dtype=np.int64), elements, zeros)
    return _Moves(read, written, tile, _work(source, target, size), _walk(target, target, size))


def _vectors(target: Operand, start: dict[str, Int64]) -> tuple[Int64, int]:
    """The number of the target's vectors that each box is part of, and how many there are.

    Boxes that a block of the source cuts short fill a vector of the target together; its readers want it in one piece.
    """
    levels, number = target.levels(target.innermost), np.zeros(1, dtype=np.int64)
    for dim, begin in start.items():
        block = levels[-2].step if dim == target.innermost and len(levels) > 1 else 1
        number = number * (int(begin.max()) // block + 1) + begin // block
    there = distinct(number)
    return np.searchsorted(there, number), len(there)


def arrange_estimate(elements: int, dtype: ElementType, machine: PlanningTarget) -> int:
    """Cycles that arranging ``elements`` is expected to take: a superstep, their exchange and permutation."""
    share = -(-elements // machine.tiles)
    matrices = np.asarray(-(-share // (_WIDEST * _WIDEST)), dtype=np.int64)
    received = int(share * dtype.bytes / machine.exchange_bytes_per_cycle)
    blocks = matrices * (_WIDEST // cost.turned_side(dtype)) ** 2
    return machine.superstep_cycles + received + int(cost.permute(matrices, blocks, dtype))


def _owners(graph: Graph, written: Regions) -> npt.NDArray[np.int32] | None:
    """The tile that holds the first element of every region, or None where there is no mapping yet."""
    first = written.begin[written.ptr[:-1]]
    tile = graph.interval_map(written.tensor.variables).split(first, np.ones_like(first))[2]
    return None if len(tile) == 0 or int(tile.min()) < 0 else tile


def _boxes(
    source: Operand, target: Operand, wanted: int, edges: Mapping[str, Int64]
) -> tuple[dict[str, Int64], dict[str, Int64]]:
    """Start and size of every box, by dimension name: about ``wanted`` boxes."""
    cuts = _cuts(source, target, wanted)
    # a box that begins between two cuts ends at the next edge or cut
    cuts |= {dim: np.union1d(cuts[dim], more) for dim, more in edges.items()}
    index = np.unravel_index(np.arange(prod(map(len, cuts.values())), dtype=np.int64), [len(c) for c in cuts.values()])
    sizes = {d: np.diff(c, append=source.extents[d]) for d, c in cuts.items()}
    start = {d: cuts[d][i] for d, i in zip(cuts, index, strict=True)}
    return start, {d: sizes[d][i] for d, i in zip(cuts, index, strict=True)}


def _cuts(source: Operand, target: Operand, wanted: int) -> dict[str, Int64]:
    """Box boundaries along every dimension: squares in the two innermost dimensions, runs along the others.

    Too many squares for the tiles: they and the runs grow until there is about one box for each of the ``wanted``
    tiles, as evenly as that goes. Too few: they become strips, long along the target's innermost dimension, so that its
    readers find long pieces.
    """
    extents = source.extents
    blocks = {d: _blocks(d, source, target) for d in extents}
    turned = tuple(dict.fromkeys((source.innermost, target.innermost)))
    sides = dict.fromkeys(extents, 1) | dict.fromkeys(turned, _WIDEST)
    while True:
        cuts = {d: _cut(n, blocks[d], sides[d]) for d, n in extents.items()}
        boxes = prod(map(len, cuts.values()))
        # About one box per tile is enough; narrower squares would read or write single elements.
        if boxes * 2 > wanted or sides[source.innermost] == _NARROWEST:
            break
        sides[source.innermost] //= 2
    runs = [e.dim for e in reversed(source.entries) if e.step == 1 and e.dim not in turned]
    for dim in (*turned, *runs[: _STRIDED_DIMS - len(turned)]):
        boxes = prod(map(len, cuts.values()))
        if boxes < 2 * wanted:
            break
        within = min(*blocks[dim], extents[dim], extents[dim])
        size = _even_run(-(-within // sides[dim]), boxes, wanted) * sides[dim]
        cuts[dim] = _cut(extents[dim], blocks[dim], size)
    return cuts


def _even_run(steps: int, boxes: int, wanted: int) -> int:
    """Boxes along a dimension that are best joined to one, of ``steps`` in a row and ``boxes`` in all.

    So many that the fullest of the ``wanted`` tiles has least: joined boxes that are a few more than the tiles would
    leave some tiles with two of them, and most with one. Of equal numbers the largest is taken.
    """
    runs = np.arange(1, 2 * (boxes // wanted) + 1, dtype=np.int64)
    fullest = cost.ceil_div(boxes // steps * cost.ceil_div(steps, runs), wanted) * np.minimum(runs, steps)
    return int(runs[np.lexsort((-runs, fullest))[0]])


def _cut(extent: int, blocks: list[int], size: int) -> Int64:
    """Starts of pieces of at most ``size`` indices, each of which lies within one block of every operand."""
    edges = distinct(np.concatenate([np.arange(0, extent, step, dtype=np.int64) for step in (*blocks, extent)]))
    piece, number = count_up(-(-np.diff(edges, append=extent) // size))
    return np.asarray(edges[piece] + number * size, dtype=np.int64)


def _blocks(dim: str, source: Operand, target: Operand) -> list[int]:
    """Sizes of the smallest blocks in which the operands store a dimension; a box must lie within one."""
    return [levels[-2].step for op in (source, target) if len(levels := op.levels(dim)) > 1]


def _walk(source: Operand, target: Operand, size: dict[str, Int64]) -> npt.NDArray[np.int32]:
    """Extents of every box in the target's order, then the source's strides along them, int32[n, 8]."""
    strides = source.local_strides(size)
    varied = {e.dim: place for place, e in enumerate(target.entries) if int(size[e.dim].max()) > 1}
    ones = np.ones(len(next(iter(size.values()))), dtype=np.int64)
    # Vertices walk a fixed number of dimensions; those that no box varies in are left out, and ones fill up.
    fill = [ones] * (_STRIDED_DIMS - len(varied))
    dims = sorted(varied, key=lambda d: varied[d])
    extents = [size[d] for d in dims]
    steps = [strides.get((d, False), ones) for d in dims]
    return np.stack([*fill, *extents, *fill, *steps], axis=1).astype(np.int32)


def _work(source: Operand, target: Operand, size: dict[str, Int64]) -> tuple[Int64, Int64]:
    """Matrices that every box transposes, and their blocks.

    Where the same dimension is innermost in both, nothing is turned: vectors are loaded and stored, as many as a block
    has rows in the time of a block, and a matrix is a run of them along another dimension.
    """
    rows, columns = target.innermost, source.innermost
    heights, elements = size[rows], np.prod(list(size.values()), axis=0)
    side = cost.turned_side(source.tensor.dtype)
    if rows == columns:
        run = np.max([n for dim, n in size.items() if dim != rows] or [np.ones_like(heights)], axis=0)
        matrices = elements // (heights * run)
        return matrices, cost.ceil_div(matrices * run * cost.ceil_div(heights, side), side)
    widths = size[columns]
    matrices = elements // (heights * widths)
    return matrices, matrices * cost.ceil_div(heights, side) * cost.ceil_div(widths, side)
