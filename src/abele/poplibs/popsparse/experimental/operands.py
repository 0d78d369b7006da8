"""Operands of products of blocks: the order in which vertices read them, new variables, and copies in that order.

Vertices sum over elements of the inner dimension that follow each other. A dense left operand lies in strips of block
columns, [k / bk, rows, bk], so that a piece is one interval; a block of the right operand as [bn, bk]. An operand whose
inner dimension is not innermost where it lies is permuted first, by the vertices that poplin's products use for that.

Example: keys [512, 64] of an attention are the right operand as a view of their transpose: the inner dimension, 64, is
innermost in memory, and nothing is permuted. Values [512, 64] are summed over their rows: they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.arrays import Int64
from abele.graph import Execute, Graph, Regions, Tensor, boxes
from abele.graph.program import Steps
from abele.poplibs.poplin.contraction.operand import allocate, operand
from abele.poplibs.poplin.lowering.arrange import arrange
from abele.poplibs.popsparse.experimental.params import BSMatMulParams
from abele.poplibs.popsparse.experimental.plan import BlockPlan
from abele.poplibs.popsparse.experimental.units import BlockUnits
from abele.poplibs.poputil.mapping import map_tensor_linearly

Order = Sequence[tuple[str, int]]


def left_order(params: BSMatMulParams) -> Order:
    """Storage order of a dense left operand with dimensions ``b`` and ``ci``."""
    bk = params.blockSize[1]
    if params.isResultSparse or bk == params.dim[1]:
        return [("b", 1), ("ci", 1)]
    return [("ci", bk), ("b", 1), ("ci", 1)]


def new_left(graph: Graph, params: BSMatMulParams, name: str) -> Tensor:
    """A dense left operand [groups · m, k], spread evenly over the tiles by pieces of a block's rows."""
    rows, inner = params.lhs_shape
    made = allocate(graph, params.inDataType, {"b": rows, "ci": inner}, left_order(params), name)
    grain = params.blockSize[0] * params.blockSize[1]
    map_tensor_linearly(graph, made.storage, grain=grain)
    return made.tensor


def new_right(graph: Graph, plan: BlockPlan, name: str) -> Tensor:
    """A right operand: dense ones spread evenly, blocks each on the first tile that multiplies it."""
    params = plan.params
    _, k, n = params.dim
    _, bk, bn = params.blockSize
    if params.isResultSparse:
        made = graph.variable(params.inDataType, (params.numGroups, n, k), name=name)
        map_tensor_linearly(graph, made, grain=bn * bk)
        return made.transpose((0, 2, 1)).reshape(params.rhs_shape)
    blocks = params.pattern.num_blocks
    made = graph.variable(params.inDataType, (blocks, bn, bk), name=name)
    tile = np.zeros(blocks, np.int32)
    for one in reversed(plan.passes):
        tile[one.units.block[::-1]] = one.tile[::-1]
    graph.map_rows(made, tile.tolist())
    return (made if params.rhsNeedTranspose else made.transpose((0, 2, 1))).reshape((blocks, bk * bn))


def new_result(graph: Graph, params: BSMatMulParams, name: str) -> tuple[Tensor, Tensor]:
    """An unmapped result: its storage, and as callers see it.

    Dense results are stored [n / bn, rows, bn], so that a strip of a block column is one interval.
    """
    rows, columns = params.out_shape
    if params.isResultSparse:
        made = graph.variable(params.outDataType, (rows, columns), name=name)
        return made, made
    bn = params.blockSize[2]
    made = graph.variable(params.outDataType, (columns // bn, rows, bn), name=name)
    return made, made.transpose((1, 0, 2)).reshape((rows, columns))


def right_view(params: BSMatMulParams, rhs: Tensor) -> Tensor:
    """The right operand with the inner dimension last: [blocks, bn, bk], or [groups · n, k] of a dense one."""
    (_, k, n), (_, bk, bn) = params.dim, params.blockSize
    if params.isResultSparse:
        return rhs.reshape((params.numGroups, k, n)).transpose((0, 2, 1)).reshape((params.numGroups * n, k))
    if params.rhsNeedTranspose:
        return rhs.reshape((-1, bn, bk))
    return rhs.reshape((-1, bk, bn)).transpose((0, 2, 1))


def left_regions(graph: Graph, body: Steps, units: BlockUnits, lhs: Tensor) -> tuple[Regions, Int64]:
    """Pieces of the left operand that units read, each once, and the piece of every unit."""
    params = units.params
    numbers, first, index = np.unique(units.x, return_index=True, return_inverse=True)
    m, (bm, bk, _) = params.dim[0], params.blockSize
    start = np.empty((len(numbers), 2), np.int64)
    size = np.empty_like(start)
    group, down, part, extent = (c[first] for c in (units.group, units.down, units.part, units.extent))
    if params.isResultSparse:
        start[:, 0], size[:, 0] = group * m + down * bm, bm
        start[:, 1], size[:, 1] = units.bounds[part] * bk, extent
    else:
        start[:, 0], size[:, 0] = group * m + units.bounds[part] * bm, extent
        start[:, 1], size[:, 1] = down * bk, bk
    order = left_order(params)
    return _pieces(graph, body, lhs, ("b", "ci"), order, start=start, size=size), index.reshape(-1)


def right_regions(graph: Graph, body: Steps, units: BlockUnits, rhs: Tensor) -> tuple[Regions, Int64]:
    """Pieces of the right operand that units read, each once, and the piece of every unit."""
    params, view = units.params, right_view(units.params, rhs)
    numbers, first, index = np.unique(units.w, return_index=True, return_inverse=True)
    (_, bk, bn), n = params.blockSize, params.dim[2]
    if params.isResultSparse:
        group, across, part = (c[first] for c in (units.group, units.across, units.part))
        start = np.stack([group * n + across * bn, units.bounds[part] * bk], axis=1)
        size = np.stack([np.full(len(first), bn, np.int64), units.extent[first]], axis=1)
        dims: tuple[str, ...] = ("b", "ci")
    else:
        start = np.zeros((len(numbers), 3), np.int64)
        start[:, 0] = numbers
        size = np.broadcast_to(np.array([1, bn, bk], np.int64), start.shape)
        dims = ("g", "co", "ci")
    return _pieces(graph, body, view, dims, [(d, 1) for d in dims], start=start, size=size), index.reshape(-1)


def _pieces(
    graph: Graph, body: Steps, view: Tensor, dims: tuple[str, ...], order: Order, start: Int64, size: Int64
) -> Regions:
    """Boxes of a view, which is permuted first if rows of the inner dimension are scattered in memory."""
    if not len(start):
        return boxes(view, start, size)
    # One box is enough to see: all boxes of an operand lie alike.
    probe = boxes(view, start[:1], size[:1])
    if len(probe.begin) > int(np.prod(size[0, :-1])):
        source = operand(view, dims)
        target = allocate(graph, view.dtype, source.extents, order, "arranged")
        compute_set = graph.compute_set("arrange")
        arrange(graph, compute_set, source, target)
        body.add(Execute(compute_set))
        view = target.tensor
    return boxes(view, start, size)


def joined(regions: Regions, index: Int64, vertex: Int64, num: int) -> Regions:
    """One region per vertex: those of its units, after each other.

    Args:
        regions: Regions of pieces.
        index: Piece of each unit, units of a vertex after each other.
        vertex: Vertex of each unit, ascending.
        num: Vertices.
    """
    taken = regions.take(index)
    return Regions.from_intervals(regions.tensor, vertex[taken.row], taken.begin, taken.length, num)
