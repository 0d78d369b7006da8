"""Body of a static sparse product, in three supersteps: products, sums of each row's partials, and the final move.

A dense operand whose rows are in short pieces, such as one that is stored turned round, is copied before: each of its
elements goes to many tiles, which would all put the pieces together. 4,096 x 4,096 in blocks of 16 at density 1/16 by
512 columns takes 62,000 cycles so in f16, and 315,000 otherwise; 43,000 with a dense operand in rows.
"""

from __future__ import annotations

import numpy as np

from abele.arrays import Array, Int64
from abele.graph import ComputeSet, Copy, Execute, Graph, SparseNote, Tensor
from abele.graph.program import Steps
from abele.graph.vertices import StateData
from abele.numerics import ElementType
from abele.poplibs.poplin.contraction.host_kernel import UNSCALED, Scaling
from abele.poplibs.popsparse.static_ import costs
from abele.poplibs.popsparse.static_.codelets import partials_codelet
from abele.poplibs.popsparse.static_.cut import Cut
from abele.poplibs.popsparse.static_.layout import StaticLayout, new_dense
from abele.poplibs.popsparse.static_.sums import BandPartials, SumPieces, add_partials, clear_rows, put_in_order


def build(
    graph: Graph,
    body: Steps,
    layout: StaticLayout,
    values: Tensor,
    dense: Tensor,
    out: Tensor,
    *,
    scaling: Scaling = UNSCALED,
) -> None:
    """Append the steps of ``out`` [m, n] = values · ``dense`` [k, n] · the factor of ``scaling``."""
    _note(graph, layout, values)
    sums = graph.variable(layout.result, layout.pattern.shape[0] * layout.dense, name="sums")
    partials = BandPartials.create(graph, layout, sums)
    products = graph.compute_set("partials")
    dense = _in_long_pieces(graph, body, layout, dense)
    _multiply(products, layout, partials, values, dense, scaling)
    pieces = SumPieces.of(layout)
    clear_rows(graph, products, layout, pieces, sums)
    body.add(Execute(products))
    if not partials.are_sums:
        reduce = graph.compute_set("reduce")
        add_partials(graph, reduce, layout, pieces, partials, sums)
        body.add(Execute(reduce))
    put_in_order(graph, body, layout, sums, out)


def _note(graph: Graph, layout: StaticLayout, values: Tensor) -> None:
    """Note the sparse operand for reports: each share is worked on by a tile of each part."""
    cut, plan, pattern = layout.cut, layout.plan, layout.pattern
    each = np.zeros((plan.splits, plan.tiles), np.int64)
    each[:, cut.tile] = np.diff(cut.ptr) * layout.side**2
    variables = values.variables
    operand = SparseNote(
        name=variables[0].name if variables else "sparse",
        library="static",
        dtype=layout.dtype.name,
        shape=pattern.shape,
        block=pattern.block,
        blocks=pattern.num_blocks,
        tile=np.arange(each.size, dtype=np.int32),
        values=each.reshape(-1),
    )
    graph.note_sparse(operand)


def _multiply(
    step: ComputeSet, layout: StaticLayout, partials: BandPartials, values: Tensor, dense: Tensor, scaling: Scaling
) -> None:
    cut, parts = layout.cut, layout.plan.splits
    if not cut.shares:
        return
    own = np.arange(parts * cut.shares) % cut.shares
    step.vertices(
        partials_codelet(values.dtype, dense.dtype, layout.result, layout.side, scaling.kind),
        tile=layout.tile,
        cycles=_cycles(layout),
        values=(layout.value_regions(values, cut.ptr), own),
        dense=layout.dense_regions(dense),
        out=partials.regions(),
        counts=repeated(cut.entry_count.astype(np.uint16), cut.entry_ptr, parts),
        places=repeated(cut.place.astype(np.uint16), cut.ptr, parts),
        width=np.repeat(layout.widths, cut.shares),
        **scaling.fields(len(layout.tile)),
    )


def repeated(values: Array, ptr: Int64, times: int) -> StateData:
    """Vectors of some vertices as state, the same ``times`` over; vector i is from ``ptr[i]`` on."""
    starts = (np.arange(times)[:, None] * ptr[-1] + ptr[:-1]).reshape(-1)
    return StateData(np.tile(values, times), np.append(starts, times * ptr[-1]))


def _cycles(layout: StaticLayout) -> Int64:
    """Tile cycles of each share of each part, int64[parts · shares]."""
    cut, dtype = layout.cut, layout.dtype
    rows = np.diff(cut.entry_ptr)
    loads = np.add.reduceat(costs.ceil_div(cut.entry_count, costs.AT_ONCE[dtype.bits]), cut.entry_ptr[:-1])
    of_width = {
        width: _element_cycles(cut, dtype, width)
        if layout.side == 1
        else costs.block_cycles(dtype, layout.side, rows, loads, width)
        for width in set(layout.widths.tolist())
    }
    return np.concatenate([of_width[width] for width in layout.widths.tolist()])


def _element_cycles(cut: Cut, dtype: ElementType, width: int) -> Int64:
    """The same for elements: workers have whole rows, one after the other, of about as much work each."""
    slots = costs.element_slots(dtype, width)
    share = np.repeat(np.arange(cut.shares), np.diff(cut.entry_ptr))
    work = slots.row + slots.value * (cut.entry_count - 1)
    total = np.bincount(share, weights=work, minlength=cut.shares)
    before = np.cumsum(work) - work
    middle = before - before[cut.entry_ptr[:-1]][share] + work / 2
    worker = np.minimum((middle * costs.WORKERS / total[share]).astype(np.int64), costs.WORKERS - 1)
    load = np.bincount(share * costs.WORKERS + worker, weights=work, minlength=cut.shares * costs.WORKERS)
    most = slots.start + load.reshape(-1, costs.WORKERS).max(axis=1)
    if width % 8 == 0:
        # Up to three rows are shared by two workers each, half of the columns to one.
        half = costs.element_slots(dtype, width // 2)
        row = np.maximum.reduceat(half.row + half.value * (cut.entry_count - 1), cut.entry_ptr[:-1])
        few = np.diff(cut.entry_ptr) <= costs.WORKERS // 2
        most = np.where(few, np.minimum(most, half.start + row), most)
    return np.asarray(costs.WORKERS * most, np.int64)


MOST_PIECES = 4
"""Pieces of a part's dense row from which on the operand is copied first. Chosen."""


def _in_long_pieces(graph: Graph, body: Steps, layout: StaticLayout, dense: Tensor) -> Tensor:
    """The dense operand, or a copy of it where the library lays it out."""
    pieces = len(dense.intervals()[0])
    if pieces <= MOST_PIECES * layout.pattern.shape[1] * layout.plan.splits:
        return dense
    rows = new_dense(graph, layout, "rows", dense.dtype)
    body.add(Copy(dense, rows, name="rows"))
    return rows
