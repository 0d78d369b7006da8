"""Triangles of blocks: which elements of held blocks a mask leaves, row by row, and zeros in the others."""

from __future__ import annotations

import numpy as np

from abele.arrays import Int64
from abele.graph import Graph, Regions, Tensor
from abele.graph.program import Steps
from abele.poplibs.popsparse.experimental.params import SubBlockMask
from abele.poplibs.popsparse.experimental.steps import emit_zeros
from abele.sparsity import Pattern


def live_columns(pattern: Pattern, groups: int, mask: SubBlockMask) -> tuple[Int64, Int64]:
    """First column, and the end, of what a mask leaves of each row of each held block, int64[blocks, block rows]."""
    height, width = pattern.block
    per_group = pattern.grid[0] // groups
    row = (pattern.rows % per_group * height)[:, None] + np.arange(height)
    column = (pattern.columns * width)[:, None]
    low, high = np.zeros_like(row), np.full_like(row, width)
    if mask is SubBlockMask.ZeroUpperTriangle:
        high = np.clip(row + 1 - column, 0, width)
    elif mask is SubBlockMask.ZeroLowerTriangle:
        low = np.clip(row - column, 0, width)
    return low, high


def hidden_ranges(pattern: Pattern, groups: int, mask: SubBlockMask) -> tuple[Int64, Int64]:
    """First element and length of each stretch of [blocks, area] that a mask hides, in order."""
    low, high = live_columns(pattern, groups, mask)
    width = pattern.block[1]
    begin = np.arange(low.size, dtype=np.int64).reshape(low.shape) * width
    first = np.concatenate([begin[..., None], (begin + high)[..., None]], -1).reshape(-1)
    length = np.concatenate([low[..., None], (width - high)[..., None]], -1).reshape(-1)
    some = length > 0
    return first[some], length[some]


def emit_triangle(graph: Graph, body: Steps, pattern: Pattern, groups: int, mask: SubBlockMask, blocks: Tensor) -> None:
    """Append zeros in the elements of a variable ``blocks`` [blocks, area] that a mask hides; on their own tiles."""
    begin, length = hidden_ranges(pattern, groups, mask)
    if not len(begin):
        return
    base = blocks.variables[0].base
    address, pieces, tile, _ = graph.interval_map(blocks.variables).split(base + begin, length)
    # A vertex for each tile: its stretches, one after the other.
    order = np.argsort(tile, kind="stable")
    tiles, row = np.unique(tile[order], return_inverse=True)
    regions = Regions.from_intervals(blocks, row.reshape(-1), address[order], pieces[order], len(tiles))
    emit_zeros(graph, body, regions, tiles.astype(np.int32))
