"""Rows picked by the number of the replica: all replicas run one program, yet each sends another part of its data.

A working tensor [rows, columns] has its columns spread over the tiles, all rows of a column on one tile. A vertex there
puts rows in the order that a small table tells, which one vertex looks up by the number of the replica.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.graph import Graph, Regions, Tensor, boxes, shared
from abele.graph.mapping import TileMapping
from abele.graph.program import Execute, Sequence
from abele.numerics import ElementType
from abele.poplibs.gcl.row_vertices import distances_codelet, look_up_codelet, pick_rows_codelet
from abele.poplibs.poputil.mapping import linear_mapping, vector_grain


def columns(graph: Graph, dtype: ElementType, rows: int, width: int, name: str) -> Tensor:
    """A variable [rows, width] whose columns are spread over the tiles."""
    made = graph.variable(dtype, (rows, width), name=name)
    one = linear_mapping(graph, width, dtype)
    begin = (np.arange(rows, dtype=np.int64)[:, None] * width + one.begin).ravel()
    return graph.map(made, TileMapping(rows * width, begin, np.tile(one.tile, rows)))


def column_parts(graph: Graph, dtype: ElementType, width: int, count: int) -> list[slice]:
    """Up to ``count`` ranges of columns: whole vectors of 8 bytes, so that no tile gets half a word."""
    grain = vector_grain(graph, dtype)
    vectors = -(-width // grain)
    cuts = [min(vectors * k // count * grain, width) for k in range(count + 1)]
    return [slice(a, b) for a, b in pairwise(cuts) if b > a]


def look_up(graph: Graph, table: Int64, start: Int64, count: int, prog: Sequence, name: str) -> Tensor:
    """``count`` entries of ``table``, int64[n], from ``start`` of the replica on, int64[replicas]: u32 [count]."""
    return _by_replica(graph, look_up_codelet(), count, prog, name, start=start, table=table)


def look_up_distances(graph: Graph, table: Int64, own: Int64, prog: Sequence, name: str) -> Tensor:
    """(``table`` − ``own`` of the replica) mod n, for int64[n] and int64[replicas] below n: u32 [n]."""
    return _by_replica(graph, distances_codelet(), len(table), prog, name, own=own, table=table)


def _by_replica(graph: Graph, codelet: type, count: int, prog: Sequence, name: str, **tables: Int64) -> Tensor:
    picked = graph.map(graph.variable("u32", (count,), name=name), 0)
    replica = graph.replica_index(f"{name}/replica")
    graph.map(replica, 0)
    step = graph.compute_set(name)
    numbers: dict[str, Any] = {field: table.astype(np.uint32) for field, table in tables.items()}
    step.vertex(codelet, tile=0, replica=replica, picked=picked, **numbers)
    prog.add(Execute(step))
    return picked


def pick_rows(graph: Graph, source: Tensor, picked: Tensor, out: Tensor, prog: Sequence, name: str) -> None:
    """out[j] ← source[picked[j]], a vertex for the columns of each tile.

    Args:
        graph: Graph in which vertices are made.
        source: [rows, width].
        picked: Rows, u32 [n].
        out: [n, width], its columns spread as by :func:`columns`.
        prog: Sequence that the step is appended to.
        name: Name of the step.
    """
    one = linear_mapping(graph, out.shape[1], out.dtype)
    step = graph.compute_set(name)
    step.vertices(
        pick_rows_codelet(out.dtype),
        tile=one.tile,
        rows=_columns_of(source, one),
        picked=shared(picked),
        out=_columns_of(out, one),
        width=one.length,
        grain=vector_grain(graph, out.dtype),
    )
    prog.add(Execute(step))


def _columns_of(tensor: Tensor, mapping: TileMapping) -> Regions:
    """Every row of the columns of each tile, one row after the other."""
    start = np.stack([np.zeros_like(mapping.begin), mapping.begin], axis=1)
    size = np.stack([np.full_like(mapping.length, tensor.shape[0]), mapping.length], axis=1)
    return boxes(tensor, start, size)
