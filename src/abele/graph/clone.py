"""Cloning: new variables that are laid out and mapped as the elements of a view are."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from abele.arrays import Int32, Int64
from abele.graph.block import StridedBlock
from abele.graph.block_list import BlockList
from abele.graph.content import AddressList, Content
from abele.graph.gather import content_of_runs
from abele.graph.interval_map import IntervalMap
from abele.graph.intervals import merge_adjacent, order_of
from abele.graph.place import Placement
from abele.graph.variable import Variable
from abele.layout import coalesce
from abele.numerics import ElementType

if TYPE_CHECKING:
    from abele.graph.graph import Graph
    from abele.graph.tensor import Tensor


class TensorCloneMethod(Enum):
    """Order and repetition of elements that a clone keeps, besides shape, type and tile mapping.

    * ``PRESERVE_ORDER_UNLESS_ALIASES``: as ``PRESERVE_ORDER_AND_ALIASES``, or as ``CREATE_NEW_ORDER`` where the view
      shows an element more than once. The clone can always be written. The default.
    * ``PRESERVE_ORDER_AND_ALIASES``: elements follow each other in the new memory as in the old, and an element that is
      shown twice is one element again.
    * ``CREATE_NEW_ORDER``: elements follow each other in the order of the view; nothing is shown twice.
    * ``GATHER_AND_PRESERVE_TILE_ORDER_AND_ALIASES``: as ``PRESERVE_ORDER_AND_ALIASES``, but elements of one tile
      are gathered, so that they are contiguous.
    """

    PRESERVE_ORDER_UNLESS_ALIASES = "preserve order unless aliases"
    PRESERVE_ORDER_AND_ALIASES = "preserve order and aliases"
    CREATE_NEW_ORDER = "create new order"
    GATHER_AND_PRESERVE_TILE_ORDER_AND_ALIASES = "gather and preserve tile order and aliases"


def clone(graph: Graph, tensor: Tensor, element: ElementType, name: str, method: TensorCloneMethod) -> Tensor:
    """A view of a new variable with the shape and mapping of ``tensor``; see :meth:`Graph.clone`."""
    new_order = method is TensorCloneMethod.CREATE_NEW_ORDER or (
        method is TensorCloneMethod.PRESERVE_ORDER_UNLESS_ALIASES and tensor.contains_aliases
    )
    if new_order or tensor.size == 0:
        made = graph.variable(element, tensor.shape, name)
        mapping = graph.mapping_of(tensor)
        _place_known(graph, made, mapping.begin, mapping.length, mapping.tile)
        return made
    tiles = graph.interval_map(tensor.variables)
    gather = method is TensorCloneMethod.GATHER_AND_PRESERVE_TILE_ORDER_AND_ALIASES
    begin, length, tile = _pieces(tensor, tiles, gather)
    stored = graph.variable(element, int(length.sum()), name)
    _place_known(graph, stored, np.cumsum(length) - length, length, tile)
    content, shape = _relocated(graph.top_level, tensor, begin, length, stored.variables[0])
    return graph.tensor(element, shape, content).reshape(tensor.shape)


def _place_known(graph: Graph, tensor: Tensor, begin: Int64, length: Int64, tile: Int32) -> None:
    """Place those intervals of a view that have a tile; the others stay where they are, mapped nowhere."""
    known = tile >= 0
    graph.place(tensor, Placement(begin[known], length[known], tile[known]))


def _pieces(tensor: Tensor, tiles: IntervalMap, gather: bool) -> tuple[Int64, Int64, Int32]:
    """The distinct elements of a view as intervals, in the order that the clone stores them, with their tiles."""
    begin, length, _ = tensor.content.footprint()
    order = order_of(begin)
    begin, end = begin[order], (begin + length)[order]
    reach = np.append(begin[:1], np.maximum.accumulate(end)[:-1])
    begin = np.maximum(begin, reach)
    keep = end > begin
    begin, length, _ = merge_adjacent(begin[keep], (end - begin)[keep])
    begin, length, tile, _ = tiles.split(begin, length)
    if gather:
        order = order_of(tile)
        begin, length, tile = begin[order], length[order], tile[order]
    return begin, length, tile


def _relocated(
    graph: Graph, tensor: Tensor, begin: Int64, length: Int64, stored: Variable
) -> tuple[Content, tuple[int, ...]]:
    """Content of a view whose elements, at the given intervals, have moved to a new variable in order.

    Returns:
        The content, and its shape: that of the view or of the flattened view.
    """
    start = np.cumsum(length) - length
    merged, total, _ = merge_adjacent(begin, length)
    target = np.cumsum(total) - total
    order = order_of(merged)
    merged, total, target = merged[order], total[order], target[order]
    blocks = tensor.content.blocks
    if blocks is not None and len(blocks) <= 64:
        moved = [_shifted(b, merged, total, target, stored) for b in blocks]
        if all(b is not None for b in moved):
            return BlockList(tuple(b for b in moved if b is not None), tensor.content.is_cut), tensor.shape
        in_order = bool((np.diff(begin) > 0).all())
        if len(blocks) == 1 and in_order and tensor.content.is_surely_distinct:
            return BlockList((_dense(blocks[0], stored),)), tensor.shape
    order = order_of(begin)
    begin, length, start = begin[order], length[order], start[order]
    low, size = tensor.intervals()
    if 8 * len(low) > tensor.size:
        table = tensor.addresses()
        piece = np.searchsorted(begin, table, side="right") - 1
        return AddressList(stored.base + start[piece] + table - begin[piece]), tensor.shape
    first, pieces, _, _ = _cut(begin, length, low, size)
    piece = np.searchsorted(begin, first, side="right") - 1
    return content_of_runs(graph, stored.base + start[piece] + first - begin[piece], pieces), (tensor.size,)


def _cut(begin: Int64, length: Int64, low: Int64, size: Int64) -> tuple[Int64, Int64, Int32, Int64]:
    """Intervals ``low``, ``size`` cut where one of the ascending pieces ends."""
    return IntervalMap(begin, np.zeros(len(begin), np.int32), int(begin[-1] + length[-1])).split(low, size)


def _shifted(block: StridedBlock, begin: Int64, length: Int64, target: Int64, stored: Variable) -> StridedBlock | None:
    """A block moved as a whole, if all of it lies in one interval."""
    low, high = BlockList((block,)).bounds
    piece = int(np.searchsorted(begin, low, side="right")) - 1
    if high > begin[piece] + length[piece]:
        return None
    first = block.variable.base + block.offset
    return block._replace(variable=stored, offset=int(target[piece] + first - begin[piece]))


def _dense(block: StridedBlock, stored: Variable) -> StridedBlock:
    """A block whose elements have moved together, in their order."""
    flat = [(abs(s), d, i) for d, factors in enumerate(block.factors) for i, (_, _, s) in enumerate(factors)]
    offset, width, strides = 0, 1, {}
    for _, d, i in sorted(flat):
        extent, _, stride = block.factors[d][i]
        strides[d, i] = width if stride > 0 else -width
        offset += 0 if stride > 0 else (extent - 1) * width
        width *= extent
    factors = tuple(
        coalesce([(n, v, strides[d, i]) for i, (n, v, _) in enumerate(along)]) for d, along in enumerate(block.factors)
    )
    return StridedBlock(stored, offset, block.origin, factors)
