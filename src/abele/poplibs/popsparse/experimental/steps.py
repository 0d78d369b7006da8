"""Supersteps of a product of blocks: products on the matrix units, then sums of partial products.

Of each pass: operands are permuted where they must be; one superstep multiplies, each vertex what its tile has of one
output or of one column of weights; one sums outputs of which several vertices have parts, on the tiles that have them,
or converts. Outputs that no held block adds to are filled with zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.graph import Execute, Graph, Regions, Tensor
from abele.graph.program import Steps
from abele.poplibs.poplin.contraction.host_kernel import UNSCALED, Scaling
from abele.poplibs.poplin.lowering.contraction_steps import OutputPartials
from abele.poplibs.poplin.lowering.grid import PIECE_BYTES, cut_regions
from abele.poplibs.poplin.vertices import geometry_fields as at
from abele.poplibs.poplin.vertices import sums
from abele.poplibs.poplin.vertices.field_table import field_table
from abele.poplibs.poplin.vertices.partial_products import pointwise_partial
from abele.poplibs.popsparse.experimental.codelets import zero_codelet
from abele.poplibs.popsparse.experimental.operands import joined, left_regions, right_regions
from abele.poplibs.popsparse.experimental.params import BSMatMulParams
from abele.poplibs.popsparse.experimental.plan import BlockPlan, ProductPass, pieces_of
from abele.poplibs.popsparse.experimental.units import BlockUnits
from abele.poplibs.poputil.regions import count_up, split_evenly


def emit_product(
    graph: Graph,
    body: Steps,
    plan: BlockPlan,
    lhs: Tensor,
    rhs: Tensor,
    storage: Tensor,
    *,
    scaling: Scaling = UNSCALED,
) -> None:
    """Append the supersteps that fill a result.

    Args:
        graph: The graph.
        body: Program that the steps are appended to.
        plan: The plan of the product.
        lhs: Left operand [groups · m, k].
        rhs: Right operand, sparse or dense.
        storage: The result as it is stored, not mapped yet.
        scaling: Factor of the products.
    """
    for one in plan.passes:
        if one.units.num:
            _emit_pass(graph, body, plan, one, lhs=lhs, rhs=rhs, storage=storage, scaling=scaling)
    if not plan.params.isResultSparse:
        _fill_empty(graph, body, plan, storage)


def _emit_pass(
    graph: Graph,
    body: Steps,
    plan: BlockPlan,
    one: ProductPass,
    lhs: Tensor,
    rhs: Tensor,
    *,
    storage: Tensor,
    scaling: Scaling,
) -> None:
    x = left_regions(graph, body, one.units, lhs)
    w = right_regions(graph, body, one.units, rhs)
    out, elements, tile = pieces_of(one)
    targets, index, depth = np.unique(out, return_inverse=True, return_counts=True)
    index = index.reshape(-1)
    whole = _out_regions(one.units, targets, storage)
    params = plan.params
    # Pieces that are the whole of their output are written where it lies, if vertices write its type.
    alone = depth[index] == 1
    if params.partialDataType != params.outDataType:
        alone[:] = False
    compute_set = graph.compute_set("partials")
    body.add(Execute(compute_set))
    written = whole.take(index[alone])
    graph.map_regions(written, tile[alone])
    _emit_vertices(compute_set, plan, one, x, w, _WrittenPieces(alone, written), scaling=scaling)
    if alone.all():
        return
    # Parts of one output follow each other, in the order of their vertices.
    parts = np.flatnonzero(~alone)
    parts = parts[np.argsort(index[parts], kind="stable")]
    made = OutputPartials.create(graph, params.partialDataType, elements[parts], 1, interleaved=True)
    regions = made.regions()
    graph.map_regions(regions, tile[parts])
    place = np.argsort(parts)
    _emit_vertices(compute_set, plan, one, x, w, _WrittenPieces(~alone, regions.take(place)), scaling=scaling)
    kept = np.unique(index[parts])
    _emit_sums(graph, body, params, regions, depth=depth[kept], out=whole.take(kept), tile=tile[parts])


class _WrittenPieces:
    """Pieces of outputs that some vertices write: which of all they are, and a region for each of these."""

    def __init__(self, chosen: npt.NDArray[np.bool_], regions: Regions) -> None:
        self.chosen, self.regions = chosen, regions


def _emit_vertices(
    compute_set: Any,
    plan: BlockPlan,
    one: ProductPass,
    x: tuple[Regions, Int64],
    w: tuple[Regions, Int64],
    pieces: _WrittenPieces,
    *,
    scaling: Scaling,
) -> None:
    """Add the vertices that write ``pieces``: those of a vertex are all chosen, or none is."""
    vertices, params = one.vertices, plan.params
    number = np.repeat(np.arange(len(vertices.tile)), vertices.counts)
    # A vertex writes one piece of a dense result, or one for each of its units.
    per_unit = pieces.chosen if params.isResultSparse else pieces.chosen[number]
    own = np.flatnonzero(np.bincount(number, per_unit, minlength=len(vertices.tile)))
    if not len(own):
        return
    renumbered = np.cumsum(np.isin(np.arange(len(vertices.tile)), own)) - 1
    vertex, order = renumbered[number[per_unit]], vertices.order[per_unit]
    first = vertices.order[vertices.begin[:-1]][own]
    read = joined(x[0], x[1][order], vertex, len(own))
    if params.isResultSparse:
        weights: Any = (w[0], w[1][first])
        written = joined(pieces.regions, np.arange(pieces.regions.num), vertex, len(own))
    else:
        weights = joined(w[0], w[1][order], vertex, len(own))
        written = pieces.regions
    work = one.work.at(own)
    compute_set.vertices(
        pointwise_partial(plan.method, x[0].tensor.dtype, w[0].tensor.dtype, params.partialDataType, scaling.kind),
        tile=vertices.tile[own],
        x=read,
        w=weights,
        out=written,
        geometry=_geometry(params, work.positions, work.in_channels),
        **{name: getattr(work, name) for name in _WORK_FIELDS},
        **scaling.fields(len(own)),
    )


_WORK_FIELDS = (
    "groups",
    "in_channels",
    "out_channels",
    "positions",
    "outputs",
    "run",
    "kernel_outer",
    "kernel_inner",
)


def _geometry(params: BSMatMulParams, positions: Int64, inner: Int64) -> npt.NDArray[np.int32]:
    """Walk of each vertex: rows of x are positions, and pieces of a sum follow each other as blocks of channels."""
    _, bk, bn = params.blockSize
    fields: dict[int, Int64 | int] = dict.fromkeys(range(at.NUM_FIELDS), 0)
    ones = (
        at.NUM_G,
        at.NUM_B1,
        at.NUM_CO1,
        *at.NUM_O,
        *at.NUM_K,
        *at.NUM_I,
        *at.IN_STEP,
        *at.OUT_STEP,
        *at.KERNEL_STEP,
    )
    fields |= dict.fromkeys(ones, 1)
    fields |= {at.NUM_B0: positions, at.NUM_CO0: bn, at.Y_B0: bn, at.Y_CO0: 1}
    if params.isResultSparse:
        fields |= {at.NUM_CI1: 1, at.NUM_CI0: inner, at.X_B0: inner, at.W_CO0: inner}
    else:
        fields |= {at.NUM_CI1: inner // bk, at.NUM_CI0: bk, at.X_B0: bk, at.X_CI1: positions * bk}
        fields |= {at.W_CO0: bk, at.W_CI1: bn * bk}
    return field_table(fields, at.NUM_FIELDS, len(positions))


def _out_regions(units: BlockUnits, out: Int64, storage: Tensor) -> Regions:
    """Each output ``out`` as it is stored: an interval."""
    base, params = storage.variables[0].base, units.params
    (m, _, _), (bm, _, bn) = params.dim, params.blockSize
    if params.isResultSparse:
        begin, length = out * (bm * bn), np.full(len(out), bm * bn, np.int64)
    else:
        column, part = out // units.parts, out % units.parts
        group, across = column // units.grid[2], column % units.grid[2]
        row = group * m + units.bounds[part] * bm
        begin = (across * (params.numGroups * m) + row) * bn
        length = np.diff(units.bounds)[part] * bm * bn
    return Regions(np.arange(len(out) + 1, dtype=np.int64), base + begin, length, storage)


def _emit_sums(
    graph: Graph,
    body: Steps,
    params: BSMatMulParams,
    partials: Regions,
    depth: Int64,
    out: Regions,
    tile: npt.NDArray[np.int32],
) -> None:
    """Sum the parts of each output, each tile that has one a share of it.

    Args:
        graph: The graph.
        body: Program that the superstep is appended to.
        params: The product.
        partials: A region for each part, those of one output after each other.
        depth: Parts of each output, int64[n].
        out: Region of each output.
        tile: Tile of each part.
    """
    first = np.cumsum(depth) - depth
    grain = max(1, PIECE_BYTES // params.partialDataType.bytes)
    share, low, length = split_evenly(out.sizes, depth, grain)
    number = np.arange(len(share)) - np.searchsorted(share, share)
    on = tile[first[share] + number]
    written = cut_regions(out, share, low, length)
    graph.map_regions(written, on)
    compute_set = graph.compute_set("reduce")
    kinds, count = (params.partialDataType, params.outDataType), depth[share]
    alone, several = np.flatnonzero(count == 1), np.flatnonzero(count > 1)
    if len(alone):
        # One vertex converts all that a tile has.
        order = alone[np.argsort(on[alone], kind="stable")]
        tiles, vertex = np.unique(on[order], return_inverse=True)
        source = _merged(partials.take(first[share[order]]), vertex, len(tiles))
        target = _merged(written.take(order), vertex, len(tiles))
        compute_set.vertices(sums.cast(*kinds, interleaved=True), tile=tiles, x=source, out=target)
    if len(several):
        entry, row = count_up(count[several])
        at_share = several[entry]
        begin = partials.begin[first[share[at_share]] + row] + low[at_share]
        rows = Regions(np.arange(len(begin) + 1, dtype=np.int64), begin, length[at_share], partials.tensor)
        row_begin = np.concatenate([[0], np.cumsum(count[several])])
        x = (rows, np.arange(rows.num, dtype=np.int64), row_begin)
        compute_set.vertices(sums.reduce_add_list(*kinds), tile=on[several], x=x, out=written.take(several))
    body.add(Execute(compute_set))


def _merged(regions: Regions, vertex: Int64, num: int) -> Regions:
    """Regions of ascending vertices, those of each after each other."""
    return Regions.from_intervals(regions.tensor, vertex.reshape(-1)[regions.row], regions.begin, regions.length, num)


def emit_zeros(graph: Graph, body: Steps, regions: Regions, tile: npt.NDArray[np.int32]) -> None:
    """Append a superstep that fills regions with zeros, each on its tile."""
    compute_set = graph.compute_set("zero")
    compute_set.vertices(zero_codelet(regions.tensor.dtype), tile=tile, out=regions)
    body.add(Execute(compute_set))


def _fill_empty(graph: Graph, body: Steps, plan: BlockPlan, storage: Tensor) -> None:
    """Zeros in the outputs of a dense result that no block adds to, spread evenly over the tiles."""
    params = plan.params
    whole = BlockUnits.of(params, 1)
    outputs = params.numGroups * whole.grid[2]
    empty = np.setdiff1d(np.arange(outputs, dtype=np.int64), whole.out)
    if not len(empty):
        return
    regions = _out_regions(whole, empty, storage)
    tile = (np.arange(len(empty), dtype=np.int64) * graph.num_tiles // len(empty)).astype(np.int32)
    graph.map_regions(regions, tile)
    emit_zeros(graph, body, regions, tile)
