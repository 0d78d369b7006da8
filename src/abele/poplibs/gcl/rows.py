"""Rows picked by the number of the replica: all replicas run one program, yet each sends another part of its data.

A working tensor [rows, columns] has its columns spread over the tiles, all rows of a column on one tile. A vertex there
puts rows in the order that a small table tells, which one vertex looks up by the number of the replica.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from abele.graph import Graph, Tensor, boxes
from abele.graph.mapping import TileMapping
from abele.graph.program import Execute, Sequence
from abele.numerics import ElementType
from abele.poplibs.gcl.row_vertices import look_up_codelet, pick_rows_codelet
from abele.poplibs.poputil.mapping import linear_mapping, vector_grain

Int64 = npt.NDArray[np.int64]


def columns(graph: Graph, dtype: ElementType, rows: int, width: int, name: str) -> Tensor:
    """A variable [rows, width] whose columns are spread over the tiles."""
    made = graph.variable(dtype, (rows, width), name=name)
    one = linear_mapping(graph, width, dtype)
    begin = (np.arange(rows, dtype=np.int64)[:, None] * width + one.begin).ravel()
    return graph.map(made, TileMapping(rows * width, begin, np.tile(one.tile, rows)))


def look_up(graph: Graph, table: Int64, prog: Sequence, name: str) -> Tensor:
    """The row of ``table``, int64[replicas, n], that belongs to the replica: u32 [n]."""
    picked = graph.map(graph.variable("u32", (table.shape[1],), name=name), 0)
    replica = graph.replica_index(f"{name}/replica")
    graph.map(replica, 0)
    step = graph.compute_set(name)
    step.vertex(look_up_codelet(), tile=0, replica=replica, table=table.ravel().astype(np.uint32), picked=picked)
    prog.add(Execute(step))
    return picked


def pick_rows(graph: Graph, source: Tensor, picked: Tensor, out: Tensor, prog: Sequence, name: str) -> None:
    """out[j] ← source[picked[j]], each worker a range of columns.

    Args:
        graph: Where vertices are made.
        source: [rows, width].
        picked: Rows, u32 [n].
        out: [n, width], its columns spread as by :func:`columns`.
        prog: Sequence that the step is appended to.
        name: Name of the step.
    """
    start, size, tile = _pieces(graph, out)
    step = graph.compute_set(name)
    step.vertices(
        pick_rows_codelet(out.dtype),
        tile=tile,
        rows=_edge(source, start, size),
        picked=(boxes(picked, np.zeros((1, 1), np.int64), np.array([picked.size])), np.zeros(len(tile), np.int64)),
        out=_edge(out, start, size),
    )
    prog.add(Execute(step))


def _pieces(graph: Graph, out: Tensor) -> tuple[Int64, Int64, Int64]:
    """First column, columns and tile of each worker's part."""
    one = linear_mapping(graph, out.shape[1], out.dtype)
    workers, grain = graph.system.ipu.num_workers, vector_grain(graph, out.dtype)
    each = -(-one.length // (workers * grain)) * grain
    start = one.begin[:, None] + np.arange(workers) * each[:, None]
    size = np.minimum(each[:, None], (one.begin + one.length)[:, None] - start)
    used = size > 0
    tile = np.broadcast_to(one.tile[:, None], size.shape)
    return start[used], size[used], tile[used].astype(np.int64)


def _edge(tensor: Tensor, start: Int64, size: Int64) -> tuple[Any, Int64, Int64]:
    rows, parts = tensor.shape[0], len(start)
    at = np.stack([np.tile(np.arange(rows, dtype=np.int64), parts), np.repeat(start, rows)], axis=1)
    shape = np.stack([np.ones(parts * rows, np.int64), np.repeat(size, rows)], axis=1)
    return boxes(tensor, at, shape), np.arange(parts * rows), np.arange(parts + 1, dtype=np.int64) * rows
