"""A window of one dimension between a tensor and a slice: every tile's share of it stays on the tile.

A tensor is walked in its storage order, where the sliced dimension stands between outer dimensions, whose points are
*cells*, and inner ones. A tile holds, of each index, whole cells or a part of one. What it holds of one cell is a
*region* of the vertices; where a tile has one region, all six workers share it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.graph import Execute, Graph, Regions, Tensor, TileMapping
from abele.graph.program import Sequence
from abele.machine import Ipu
from abele.numerics import ElementType
from abele.poplibs.popops.slicing.step_codelets import Remap, regions_codelet, stretch_codelet
from abele.poplibs.popops.slicing.step_cost import START_2D_SLOTS, region_slots, stretch_cycles
from abele.poplibs.poputil.mapping import linear_mapping, set_mapping, vector_grain
from abele.poplibs.poputil.order import StorageOrder, row_major_order, storage_order
from abele.poplibs.poputil.regions import count_up, flat_regions

# Windows of one dimension as the host moves them: all memory is near, so a few large vertices do.

HOST_VERTICES = 32
"""Vertices that the host shares out between its threads. Guessed: a few for each of up to eight threads."""
HOST_ELEMENTS = 4096
"""Elements of a slice below which a further vertex is not worth its while. Guessed."""


def host_window(
    graph: Graph, whole: Tensor, part: Tensor, at: Tensor, name: str, remap: Remap, *, is_update: bool
) -> Execute | None:
    """The window of the first dimension, in vertices of whole cells; None where a tensor is not one stretch of memory.

    Args:
        graph: Graph in which vertices are made.
        whole: [extent, ...].
        part: [size, ...].
        at: First index of the window.
        name: Name of the compute set.
        remap: Treatment of offsets out of range.
        is_update: True if the window of ``whole`` is written.
    """
    order = storage_order(whole)
    dims = order.dims()
    if dims.count(0) != 1:
        return None
    views = [order.apply(whole).flatten(), with_extent(order, part.shape[0]).apply(part).flatten()]
    if any(len(v.intervals()[0]) != 1 for v in views):
        return None
    cell = math.prod(order.extents[dims.index(0) + 1 :])
    cells = part[0].size // cell
    num = max(1, min(cells, HOST_VERTICES, part.size // HOST_ELEMENTS))
    cuts = np.arange(num + 1, dtype=np.int64) * cells // num
    numbering = np.arange(num + 1, dtype=np.int64)
    edges = []
    for view, extent in zip(views, (whole.shape[0], part.shape[0]), strict=True):
        ends = cuts * extent * cell
        edges.append((flat_regions(view, ends[:-1], np.diff(ends)), numbering[:-1], numbering))
    step = graph.compute_set(f"{name}/host")
    step.vertices(
        regions_codelet(whole.dtype, at.dtype, remap, is_update=is_update),
        tile=np.zeros(num, np.int32),
        cycles=np.zeros(num, np.int64),
        whole=edges[0],
        part=edges[1],
        width=np.full((num, 1), cell, np.uint32),
        at=[at.reshape(())] * num,
        size=part.shape[0],
        extent=whole.shape[0],
    )
    return Execute(step)


def with_extent(order: StorageOrder, extent: int) -> StorageOrder:
    """``order`` of a tensor with another extent along its first dimension."""
    fine = tuple(extent if d == 0 else f for d, f in zip(order.of_dim, order.fine, strict=True))
    return StorageOrder((extent, *order.shape[1:]), fine, order.of_dim, order.order)


WORKERS = 6


def emit_window(
    graph: Graph,
    body: Sequence,
    whole: Tensor,
    part: Tensor,
    at: Tensor,
    dim: int,
    name: str,
    *,
    remap: Remap = "",
    is_update: bool = False,
) -> Execute:
    """Append part ← whole[at : at + size] along ``dim``, or the update that goes the other way.

    Args:
        graph: Graph in which vertices are made.
        body: Program that the step is appended to.
        whole: Any shape.
        part: That shape, with the extent of the window along ``dim``.
        at: First index of the window, u32 or i32 of one element.
        dim: Dimension of the window.
        name: Name of the compute set.
        remap: Treatment of offsets out of range.
        is_update: True if the window of ``whole`` is written.

    Returns:
        Step that the host may run instead.
    """
    front, other = _to_front(whole, dim), _to_front(part, dim)
    layout = _Layout.of(graph, front)
    units = _units(layout)
    step = graph.compute_set(name)
    ipu = graph.system.ipu
    alone, cells, slots = _rows(units, other.shape[0], whole, ipu)
    state = {"size": other.shape[0], "extent": front.shape[0]}
    if len(alone):
        one = np.ones_like(alone)
        step.vertices(
            stretch_codelet(whole.dtype, at.dtype, remap, is_update=is_update),
            tile=units.tile[alone],
            whole=layout.regions(front, units, alone, 0 * one, one),
            part=layout.regions(other, units, alone, 0 * one, one),
            at=[at.reshape(())] * len(alone),
            **state,
        )
    if len(cells.unit):
        begin, vertex_tile = cells.vertices(units)
        rows = np.arange(len(cells.unit), dtype=np.int64)
        ends = np.append(begin, len(rows))
        widths = units.width[cells.unit]
        step.vertices(
            regions_codelet(whole.dtype, at.dtype, remap, is_update=is_update),
            tile=vertex_tile,
            cycles=START_2D_SLOTS + np.add.reduceat(slots, begin),
            whole=(layout.regions(front, units, cells.unit, cells.first, cells.num), rows, ends),
            part=(layout.regions(other, units, cells.unit, cells.first, cells.num), rows, ends),
            width=[w.astype(np.uint32) for w in np.split(widths, begin[1:])],
            at=[at.reshape(())] * len(vertex_tile),
            **state,
        )
    execute = Execute(step)
    body.add(execute)
    return host_window(graph, front, other, at, name, remap, is_update=is_update) or execute


def create_like_window(
    graph: Graph, tensor: Tensor, dims: tuple[int, ...], extents: tuple[int, ...], name: str
) -> Tensor:
    """A new tensor of the shape of ``tensor``, ``extents`` along ``dims``, each index of which lies as it does there.

    What belongs to one point of the other dimensions is on one tile, in the storage order of ``tensor``.
    """
    size = dict(zip(dims, extents, strict=True))
    order = storage_order(tensor)
    if any(order.of_dim.count(d) != 1 for d in dims):
        order = row_major_order(tensor.shape)
    shape = tuple(size.get(d, extent) for d, extent in enumerate(tensor.shape))
    fine = tuple(size.get(d, extent) for d, extent in zip(order.of_dim, order.fine, strict=True))
    sample = _sample(graph, tensor, dims)
    if sample is not None:
        made = StorageOrder(shape, fine, order.of_dim, order.order)
        variable = graph.variable(tensor.dtype, made.extents, name=name)
        set_mapping(graph, variable, graph.mapping_of(made.apply(sample.broadcast_to(shape))))
        return made.undo(variable)
    rest = [d for d in order.order if order.of_dim[d] not in size]
    walk = (*rest, *(d for d in order.order if order.of_dim[d] in size))
    made = StorageOrder(shape, fine, order.of_dim, walk)
    variable = graph.variable(tensor.dtype, made.extents, name=name)
    window = math.prod(extents)
    linear = _linear(graph, variable.size // window, tensor.dtype)
    set_mapping(graph, variable, TileMapping(variable.size, linear.begin * window, linear.tile))
    return made.undo(variable)


def _sample(graph: Graph, tensor: Tensor, dims: tuple[int, ...]) -> Tensor | None:
    """One index along each of ``dims``, if its elements lie as those of the others do."""
    for dim in dims:
        at = _held_at(graph, _to_front(tensor, dim))
        # Indices are spread over tiles: each point of the other dimensions brings all its indices to one tile.
        if at is None:
            return None
        tensor = tensor[(*[slice(None)] * dim, slice(at, at + 1))]
    return tensor


def _to_front(tensor: Tensor, dim: int) -> Tensor:
    return tensor.transpose((dim, *(d for d in range(tensor.ndim) if d != dim)))


def _linear(graph: Graph, size: int, dtype: ElementType) -> TileMapping:
    """``size`` points, each with all its indices, over as many tiles as there can be: much comes along with each."""
    grain = vector_grain(graph, dtype)
    return linear_mapping(graph, size, dtype, 1, grain if size >= grain * graph.system.num_tiles else 1)


def is_held_along(graph: Graph, tensor: Tensor, dim: int) -> bool:
    """True if windows along ``dim`` can be cut where the tensor lies: each tile has all indices of what it has."""
    return _held_at(graph, _to_front(tensor, dim)) is not None


def _held_at(graph: Graph, whole: Tensor) -> int | None:
    """An index whose elements lie where those of the others do; None where indices are on different tiles."""
    last = whole.shape[0] - 1
    middle = whole.shape[0] // 2
    found = graph.mapping_of(whole[middle])
    for other in {0, last} - {middle}:
        if _is_same(found, graph.mapping_of(whole[other])):
            return middle
    return middle if last == 0 else None


def _is_same(one: TileMapping, other: TileMapping) -> bool:
    return np.array_equal(one.begin, other.begin) and np.array_equal(one.tile, other.tile)


@dataclass(frozen=True)
class _Units:
    """Elements of one index on each tile: parts of a cell, or several cells.

    Attributes:
        tile: int32[n].
        width: Elements of one cell, int64[n].
        cells: Cells, int64[n].
        piece: First piece of each, int64[n].
        pieces: Pieces of each, int64[n].
    """

    tile: npt.NDArray[np.int32]
    width: Int64
    cells: Int64
    piece: Int64
    pieces: Int64


@dataclass(frozen=True)
class _Layout:
    """Storage order and tiles of one index of the tensor.

    Attributes:
        order: Storage order of the tensor, the sliced dimension in front.
        cell: Elements of an index that follow each other in storage.
        tile: Tile of each piece, int32[n], ascending.
        begin: First element of each in the storage order of one index, int64[n].
        size: Elements of each, int64[n].
        is_whole: True where it is made of whole cells, bool[n].
    """

    order: StorageOrder
    cell: int
    tile: npt.NDArray[np.int32]
    begin: Int64
    size: Int64
    is_whole: npt.NDArray[np.bool_]

    @staticmethod
    def of(graph: Graph, whole: Tensor) -> _Layout:
        """The layout of ``whole`` [extent, ...]."""
        order = storage_order(whole)
        if order.of_dim.count(0) != 1:
            order = row_major_order(whole.shape)
        dims = order.dims()
        cell = math.prod(order.extents[dims.index(0) + 1 :])
        at = _held_at(graph, whole)
        if at is None:
            mapping = _linear(graph, whole[0].size, whole.dtype)
        else:
            mapping = graph.mapping_of(with_extent(order, 1).apply(whole[at : at + 1]))
        tile, begin, size, is_whole = _pieces(mapping, cell)
        by_tile = np.argsort(tile, kind="stable")
        return _Layout(order, cell, tile[by_tile], begin[by_tile], size[by_tile], is_whole[by_tile])

    def regions(self, tensor: Tensor, units: _Units, unit: Int64, first: Int64, num: Int64) -> Regions:
        """``num`` cells of each of ``unit`` from ``first`` on, as ``tensor`` [indices, ...] holds them."""
        indices = tensor.shape[0]
        flat = with_extent(self.order, indices).apply(tensor).flatten()
        piece = units.piece[unit]
        is_whole = self.is_whole[piece]
        row, number = count_up(np.where(is_whole, 1, indices * units.pieces[unit]))
        pieces = units.pieces[unit][row]
        at = piece[row] + np.where(is_whole[row], 0, number % pieces)
        index = np.where(is_whole[row], 0, number // pieces)
        begin = self.begin[at] + first[row] * self.cell
        # In storage an index stands between the cell's number and its elements.
        low = (begin // self.cell * indices + index) * self.cell + begin % self.cell
        length = np.where(is_whole[row], num[row] * self.cell * indices, self.size[at])
        return flat_regions(flat, low, length, row, len(unit))


def _pieces(mapping: TileMapping, cell: int) -> tuple[npt.NDArray[np.int32], Int64, Int64, npt.NDArray[np.bool_]]:
    """Tile, begin and size of stretches of whole cells, or within a cell, and which of the two they are."""
    begin, end = mapping.begin, mapping.begin + mapping.length
    is_whole = (begin % cell == 0) & (end % cell == 0)
    run, number = count_up(np.where(is_whole, 1, (end - 1) // cell - begin // cell + 1))
    # Stretches that begin or end within a cell are cut at the borders of cells.
    edge = (begin // cell)[run] + number
    low = np.where(is_whole[run], begin[run], np.maximum(begin[run], edge * cell))
    high = np.where(is_whole[run], end[run], np.minimum(end[run], (edge + 1) * cell))
    return mapping.tile[run], low, high - low, is_whole[run]


def _units(layout: _Layout) -> _Units:
    tile, cell, whole = layout.tile, layout.begin // layout.cell, layout.is_whole
    is_first = np.ones(len(tile), bool)
    is_first[1:] = (tile[1:] != tile[:-1]) | (cell[1:] != cell[:-1]) | whole[1:] | whole[:-1]
    piece = np.flatnonzero(is_first)
    # Pieces of one cell on one tile make one unit; whole cells are units by themselves.
    total = np.add.reduceat(layout.size, piece)
    cells = np.where(whole[piece], total // layout.cell, 1)
    return _Units(tile[piece], total // cells, cells, piece, np.diff(np.append(piece, len(tile))))


@dataclass(frozen=True)
class _UnitRows:
    """Rows of the 2D vertices: some cells of a unit each.

    Attributes:
        unit: Unit of each, int64[n].
        worker: Worker of its tile, int64[n].
        first: First of the unit's cells, int64[n].
        num: Cells, int64[n].
    """

    unit: Int64
    worker: Int64
    first: Int64
    num: Int64

    def vertices(self, units: _Units) -> tuple[Int64, npt.NDArray[np.int32]]:
        """First row and tile of each vertex: the rows of one worker of a tile."""
        tile = units.tile[self.unit]
        is_first = np.ones(len(tile), bool)
        is_first[1:] = (tile[1:] != tile[:-1]) | (self.worker[1:] != self.worker[:-1])
        begin = np.flatnonzero(is_first)
        return begin, tile[begin]


def _rows(units: _Units, size: int, whole: Tensor, ipu: Ipu) -> tuple[Int64, _UnitRows, Int64]:
    """Units that all workers of a tile share, and rows of workers for the others, with the slots of each row.

    A tile whose regions are few takes whichever costs it less.
    """
    tiles, of_tile = np.unique(units.tile, return_inverse=True)
    regions = np.bincount(of_tile, weights=units.cells, minlength=len(tiles)).astype(np.int64)
    before = np.cumsum(units.cells) - units.cells
    start = before - before[np.searchsorted(units.tile, tiles)][of_tile]
    total = regions[of_tile]
    # Regions of a tile are dealt to its workers in order; a unit may reach over several of them.
    low, high = _worker(start, total), _worker(start + units.cells - 1, total)
    unit, number = count_up(high - low + 1)
    worker = low[unit] + number
    begin = np.maximum(start[unit], worker * total[unit] // WORKERS)
    end = np.minimum((start + units.cells)[unit], (worker + 1) * total[unit] // WORKERS)
    keep = end > begin
    rows = _UnitRows(unit[keep], worker[keep], (begin - start[unit])[keep], (end - begin)[keep])
    slots = region_slots(units.width, size, whole.dtype, ipu)[rows.unit] * rows.num
    busiest = np.zeros((len(tiles), WORKERS), np.int64)
    np.add.at(busiest, (of_tile[rows.unit], rows.worker), slots)
    apart = WORKERS * (START_2D_SLOTS + busiest.max(axis=1))
    together = np.zeros(len(tiles), np.int64)
    np.add.at(together, of_tile, stretch_cycles(units.width, size, whole.dtype, ipu) * units.cells)
    # Only where every unit of the tile is a single region: the shared vertex has no list of them.
    is_shared = ((together <= apart) & (np.bincount(of_tile) == regions))[of_tile]
    chosen = ~is_shared[rows.unit]
    return np.flatnonzero(is_shared), _UnitRows(*(a[chosen] for a in vars(rows).values())), slots[chosen]


def _worker(region: Int64, total: Int64) -> Int64:
    """Number of the worker, of six that share ``total`` regions evenly, for ``region``."""
    return (WORKERS * (region + 1) - 1) // total


@dataclass(frozen=True)
class TileIndices:
    """Regions of some tensors by tile, over all indices; one vertex per tile.

    Attributes:
        tile: Tile of each vertex, int32[n].
        begin: First region of each, int64[n + 1].
        width: Elements of a cell of each region, int64[k].
        regions: For each tensor its k regions, [cells, indices, width] each.
    """

    tile: npt.NDArray[np.int32]
    begin: Int64
    width: Int64
    regions: list[Regions]


def tile_rows(graph: Graph, like: Tensor, tensors: list[Tensor]) -> TileIndices:
    """Regions of ``tensors`` [indices, ...] for the tiles that have ``like`` [other indices, ...]."""
    layout = _Layout.of(graph, like)
    units = _units(layout)
    every = np.arange(len(units.tile), dtype=np.int64)
    tile, begin = np.unique(units.tile, return_index=True)
    regions = [layout.regions(t, units, every, 0 * every, units.cells) for t in tensors]
    return TileIndices(tile, np.append(begin, len(every)).astype(np.int64), units.width, regions)
