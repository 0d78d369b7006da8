"""Rows picked by the number of the replica: all replicas run one program, yet each sends another part of its data.

A working tensor [rows, columns] has its columns spread over the tiles, all rows of a column on one tile. A vertex there
puts rows in the order that a small table tells, which one vertex looks up by the number of the replica.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from abele.arrays import Int64
from abele.graph import Graph, Tensor, boxes
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
    """out[j] ← source[picked[j]], each worker a range of columns, or of rows where columns are few.

    Args:
        graph: Graph in which vertices are made.
        source: [rows, width].
        picked: Rows, u32 [n].
        out: [n, width], its columns spread as by :func:`columns`.
        prog: Sequence that the step is appended to.
        name: Name of the step.
    """
    pieces = _pieces(graph, out)
    every = np.arange(source.shape[0], dtype=np.int64)
    step = graph.compute_set(name)
    step.vertices(
        pick_rows_codelet(out.dtype),
        tile=np.concatenate([piece.tile for piece in pieces]),
        rows=_edge(source, [(every, piece) for piece in pieces]),
        picked=_chosen(picked, pieces),
        out=_edge(out, [(piece.rows, piece) for piece in pieces]),
    )
    prog.add(Execute(step))


class _Piece(NamedTuple):
    """Work of several vertices: the same rows, other columns for each.

    Attributes:
        rows: Rows of the output, int64[n].
        start: First column of each vertex, int64[k].
        size: Columns of each vertex, int64[k].
        tile: Tile of each vertex.
    """

    rows: Int64
    start: Int64
    size: Int64
    tile: Int64


def _pieces(graph: Graph, out: Tensor) -> list[_Piece]:
    one = linear_mapping(graph, out.shape[1], out.dtype)
    workers, grain = graph.system.ipu.num_workers, vector_grain(graph, out.dtype)
    each = -(-one.length // (workers * grain)) * grain
    start = one.begin[:, None] + np.arange(workers) * each[:, None]
    size = np.minimum(each[:, None], (one.begin + one.length)[:, None] - start)
    used = size > 0
    tile = np.broadcast_to(one.tile[:, None], size.shape)
    columns = start[used], size[used], tile[used].astype(np.int64)
    busiest = int(used.sum(axis=1).max(initial=1))
    rows = np.array_split(np.arange(out.shape[0], dtype=np.int64), min(workers // busiest, out.shape[0]))
    return [_Piece(some, *columns) for some in rows]


def _chosen(picked: Tensor, pieces: list[_Piece]) -> tuple[Any, Int64]:
    """The entries of ``picked`` for the rows of each piece."""
    begin = np.array([[piece.rows[0]] for piece in pieces], dtype=np.int64)
    count = np.array([[len(piece.rows)] for piece in pieces], dtype=np.int64)
    return boxes(picked, begin, count), np.repeat(np.arange(len(pieces)), [len(piece.tile) for piece in pieces])


def _edge(tensor: Tensor, pieces: list[tuple[Int64, _Piece]]) -> tuple[Any, Int64, Int64]:
    """Some rows of the columns of each worker."""
    at, shape, counts = [], [], []
    for rows, piece in pieces:
        workers, count = len(piece.start), len(rows)
        at.append(np.stack([np.tile(rows, workers), np.repeat(piece.start, count)], axis=1))
        shape.append(np.stack([np.ones(workers * count, np.int64), np.repeat(piece.size, count)], axis=1))
        counts.append(np.full(workers, count, dtype=np.int64))
    ends = np.cumsum(np.concatenate(counts))
    number = np.arange(int(ends[-1]), dtype=np.int64)
    return boxes(tensor, np.concatenate(at), np.concatenate(shape)), number, np.concatenate([[0], ends])
