"""Placing operands where a plan reads them: every tile gets a share of the data that it and others need.

A slice of an operand is read by a group of tiles (those that differ only in dimensions which the operand lacks). Each
of them holds an equal share of it and receives the rest. That balances memory, spreads sending over all tiles, and no
tile receives what it holds; leaving a slice whole on one reader would make that tile send everything, one after the
other. Slices of the input overlap where kernels do (halos): an input that several parts reach belongs to the last of
them.
"""

from __future__ import annotations

import numpy as np

from abele.arrays import Int64
from abele.graph import Graph
from abele.poplibs.poplin.contraction.operand import Operand
from abele.poplibs.poplin.conv_params.axis import Axis
from abele.poplibs.poplin.lowering.grid import VertexGrid, cut_regions
from abele.poplibs.poplin.planner.plan import ContractionPlan
from abele.poplibs.poplin.planner.schedule import PlanSeries
from abele.poplibs.poputil.mapping import DEFAULT_MIN_BYTES_PER_TILE
from abele.poplibs.poputil.regions import split_evenly

_GRAIN_BYTES = 32
"""Shares are multiples of this: a group of in-channels, so that shares of large operands are as even as these allow."""


def place_input(graph: Graph, operand: Operand, schedule: PlanSeries) -> None:
    """Map the input of a contraction by its plans."""
    _place(graph, operand, schedule, "co")


def place_weights(graph: Graph, operand: Operand, schedule: PlanSeries) -> None:
    """Map the weights of a contraction by its plans."""
    _place(graph, operand, schedule, "bo")


def _place(graph: Graph, operand: Operand, schedule: PlanSeries, absent: str) -> None:
    serial = schedule.dim in operand.dims
    for plan, begin, size in schedule.parts():
        part = operand.slice(schedule.dim, begin, size) if serial else operand
        _place_part(graph, part, plan, absent)
        if not serial:
            return


def _place_part(graph: Graph, operand: Operand, plan: ContractionPlan, absent: str) -> None:
    """Share every piece of ``operand`` that the same tiles read among them."""
    grid, dims = VertexGrid(plan), plan.problem.split_dims
    own = [d for d in dims if d not in _shared_dims(plan, absent)]
    cuts = [_cut(plan, dim) for dim in own]
    index = np.indices([len(begins) for _, begins, _ in cuts], dtype=np.int64).reshape(len(cuts), -1)
    start = {name: begins[i] for (name, begins, _), i in zip(cuts, index, strict=True)}
    size = {name: lengths[i] for (name, _, lengths), i in zip(cuts, index, strict=True)}
    for dim, extent in operand.extents.items():
        if dim not in start:
            start[dim] = np.zeros(index.shape[1], dtype=np.int64)
            size[dim] = np.full(index.shape[1], extent, dtype=np.int64)
    tiles = np.moveaxis(grid.tiles.reshape(plan.parts), [dims.index(d) for d in own], range(len(own)))
    readers = tiles.reshape(index.shape[1], -1)
    keep = np.flatnonzero(np.all([s > 0 for s in size.values()], axis=0))
    regions = operand.regions({d: s[keep] for d, s in start.items()}, {d: s[keep] for d, s in size.items()})
    size_bytes = operand.tensor.dtype.bytes
    shares = np.clip(regions.sizes * size_bytes // DEFAULT_MIN_BYTES_PER_TILE, 1, readers.shape[1])
    region, low, length = split_evenly(regions.sizes, shares, max(1, _GRAIN_BYTES // size_bytes))
    first = np.searchsorted(region, np.arange(len(keep)))
    tile = readers[keep[region], np.arange(len(region)) - first[region]]
    graph.map_regions(cut_regions(regions, region, low, length), tile)


def _shared_dims(plan: ContractionPlan, absent: str) -> tuple[str, ...]:
    """Split dimensions whose parts read the same of an operand: those that it lacks."""
    dims = plan.problem.split_dims
    if absent == "co":
        return tuple(d for d in dims if d == "co" or d[0] == "k")
    return tuple(d for d in dims if d == "b" or d[0] == "o")


def _cut(plan: ContractionPlan, dim: str) -> tuple[str, Int64, Int64]:
    """An operand's dimension, and where its pieces begin and how long they are, for the parts of ``dim``."""
    start, size = plan.pieces(dim)
    if dim[0] != "o":
        return dim, start, size
    axis = plan.problem.axes[int(dim[1:])]
    start = _first_inputs(axis, start, size)
    return f"i{dim[1:]}", start, np.diff(start, append=axis.inputs)


def _first_inputs(axis: Axis, start: Int64, size: Int64) -> Int64:
    """First input of every part of the outputs, ascending, so that together the parts cover all inputs."""
    whole = np.full_like(start, axis.kernel)
    first = axis.input_range(start, size, np.zeros_like(start), whole)[0]
    first[0] = 0
    return np.asarray(np.maximum.accumulate(first), dtype=np.int64)
