"""Arranging an operand: writing it anew in the order that the vertices read, by permuting blocks on the tiles.

Vertices sum over channels that follow each other in memory. Where an operand comes in another order (activations whose
samples are summed over, weights whose channels are exchanged, plain row-major matrices), its blocks are permuted once,
spread over all tiles, before they are sent to where they are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

import numpy as np
import numpy.typing as npt

from abele.graph import Execute, Graph
from abele.graph.program import Sequence as Program
from abele.poplibs.poplin import vertices
from abele.poplibs.poplin.axis import Int64
from abele.poplibs.poplin.operand import Operand, allocate

_TILE_SIDE = 16
_WORKERS = 6


def arrange(graph: Graph, body: Program, source: Operand, order: Sequence[tuple[str, int]], name: str) -> Operand:
    """``source`` copied into a new variable of another storage order.

    Args:
        graph: The graph.
        body: Where the compute set is appended.
        source: What to copy.
        order: The new storage order, as for :func:`~abele.poplibs.poplin.operand.allocate`.
        name: Name of the new variable.
    """
    target = allocate(graph, source.tensor.dtype, source.extents, order, name)
    chunks = _chunks(source, target, graph.system.ipu.num_tiles * _WORKERS)
    start, size = _boxes(source, chunks)
    num = len(next(iter(start.values())))
    tiles = (np.arange(num, dtype=np.int64) * min(num, graph.system.ipu.num_tiles) // num).astype(np.int32)
    written = target.regions(start, size)
    graph.map_regions(written, tiles)
    compute_set = graph.compute_set(f"arrange_{name}")
    rows, columns = _matrix(source, target, size)
    compute_set.vertices(
        vertices.permute(source.tensor.dtype),
        tile=tiles,
        x=source.regions(start, size),
        out=written,
        shape=_walk(source, target, size),
        rows=rows,
        columns=columns,
    )
    body.add(Execute(compute_set))
    return target


def _chunks(source: Operand, target: Operand, wanted: int) -> dict[str, int]:
    """Extent of a box along every dimension: small blocks where the order changes, and one longer run."""
    chunks: dict[str, int] = {}
    for dim, extent in source.extents.items():
        blocks = [b for op in (source, target) if (b := op.block(dim)) is not None]
        inner = dim in (source.innermost, target.innermost)
        chunks[dim] = gcd(*blocks) if blocks else min(_TILE_SIDE, extent) if inner else 1
    free = [d for d, n in chunks.items() if n == 1 and source.extents[d] > 1]
    if free:
        run = max(free, key=lambda d: source.extents[d])
        boxes = prod(-(-n // chunks[d]) for d, n in source.extents.items())
        chunks[run] = max(1, min(source.extents[run], boxes // wanted))
    return chunks


def _boxes(source: Operand, chunks: dict[str, int]) -> tuple[dict[str, Int64], dict[str, Int64]]:
    """Start and size of every box, by dimension name."""
    counts = [-(-n // chunks[d]) for d, n in source.extents.items()]
    index = np.unravel_index(np.arange(prod(counts), dtype=np.int64), counts)
    start = {d: np.asarray(i * chunks[d], dtype=np.int64) for d, i in zip(source.dims, index, strict=True)}
    size = {d: np.minimum(chunks[d], n - start[d]) for d, n in source.extents.items()}
    return start, size


def _walk(source: Operand, target: Operand, size: dict[str, Int64]) -> npt.NDArray[np.int32]:
    """Extents of every box in the target's order, then the source's strides along them, int32[n, 8]."""
    strides = source.local_strides(size)
    dims = list(dict.fromkeys(e.dim for e in target.entries if int(size[e.dim].max()) > 1))
    assert len(dims) <= 4, "a box varies along the two innermost dimensions, a run and a block"
    ones = np.ones(len(next(iter(size.values()))), dtype=np.int64)
    extents, steps = [ones] * (4 - len(dims)), [ones] * (4 - len(dims))
    for dim in sorted(dims, key=lambda d: _position(target, d)):
        extents.append(size[dim])
        steps.append(strides.get((dim, False), ones))
    return np.stack(extents + steps, axis=1).astype(np.int32)


def _position(target: Operand, dim: str) -> int:
    """Place of a dimension's innermost level in the storage order."""
    return max(i for i, e in enumerate(target.entries) if e.dim == dim)


def _matrix(source: Operand, target: Operand, size: dict[str, Int64]) -> tuple[Int64, Int64]:
    """Rows and columns of the matrices that every box turns around."""
    ones = np.ones_like(next(iter(size.values())))
    inner = [op.innermost for op in (target, source)]
    rows = size[inner[0]] if inner[0] else ones
    return rows, ones if inner[0] == inner[1] or not inner[1] else size[inner[1]]
