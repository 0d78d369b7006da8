"""Tiles that reduce elements of many appearances.

A reduction works where its operand lies, for moving an element costs more than adding it. That fails for views that
show one element many times, such as the zeros around a slice: all of them lie on the tile of that element, which would
receive a copy of each for its vertices and reduce nearly the whole tensor alone. Sending one element to other tiles
costs nothing beside that. So where a tile has much more than its part, its repeated elements are dealt to all tiles in
rectangles. These are narrow if columns are kept, so that few partial results of each output are left to combine.
Elements that a tile really holds stay where they are.
"""

from __future__ import annotations

import numpy as np

from abele.arrays import Int64
from abele.graph import Tensor
from abele.graph.mapping import TileMapping
from abele.poplibs.poputil.grid import BlockGrid

MOST_OF_MEAN = 2
"""Multiple of the tiles' mean that one tile may have before repeated elements are dealt out."""
WORTH_SPREADING = 1024
"""Elements of one tile below which it is left alone: another exchange would cost more. Guessed."""


def without_crowds(view: Tensor, mapping: TileMapping, grid: BlockGrid, num_tiles: int, width: int) -> TileMapping:
    """The tile that reduces each element of ``view``.

    Args:
        view: The operand in storage order.
        mapping: The tile on which each of its elements lies.
        grid: Its blocks, rows and columns.
        num_tiles: Tiles of the machine.
        width: Columns of a rectangle that is dealt out.
    """
    load = np.bincount(mapping.tile, weights=mapping.length, minlength=num_tiles)
    limit = max(MOST_OF_MEAN * -(-mapping.size // num_tiles), WORTH_SPREADING)
    if load.max(initial=0) <= limit or not view.contains_aliases:
        return mapping
    begin, length = view.intervals()
    first = np.cumsum(length) - length
    address = np.repeat(begin - first, length) + np.arange(mapping.size)
    tile = np.repeat(mapping.tile, mapping.length)
    crowded = np.flatnonzero((load > limit)[tile])
    _, kind, times = np.unique(address[crowded], return_inverse=True, return_counts=True)
    moved = crowded[times[kind] > 1]
    tile[moved] = _dealt(moved, grid, num_tiles, width)
    change = np.flatnonzero(np.append(True, tile[1:] != tile[:-1]))
    return TileMapping(mapping.size, change, tile[change])


def _dealt(element: Int64, grid: BlockGrid, num_tiles: int, width: int) -> Int64:
    """A tile for each of some elements: rectangles of ``width`` columns, and of as many rows as deal out the grid."""
    size = grid.blocks * grid.rows * grid.columns
    width = min(width, grid.columns)
    strips = -(-grid.columns // width)
    height = max(-(-size // (num_tiles * width)), 1)
    row, column = element // grid.columns, element % grid.columns
    return np.asarray((row // height * strips + column // width) % num_tiles, np.int64)
