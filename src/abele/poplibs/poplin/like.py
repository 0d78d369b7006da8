"""Results that take the storage order and the tile mapping of a given tensor."""

from __future__ import annotations

import numpy as np

from abele.graph import Graph, Tensor
from abele.numerics import ElementType
from abele.poplibs.poplin.operand import Operand
from abele.poplibs.poputil.order import storage_order


def same_storage(graph: Graph, like: Tensor, dtype: ElementType) -> Tensor:
    """A new, unmapped tensor of the shape and storage order of ``like``."""
    order = storage_order(like)
    return order.undo(graph.variable(dtype, order.extents, name="out"))


def blocks_of(operand: Operand) -> dict[str, int]:
    """Blocks in which an operand stores its dimensions, for those stored in blocks."""
    return {dim: block for dim in operand.dims if (block := operand.block(dim)) is not None}


def on_tiles_of(graph: Graph, made: Tensor, like: Tensor) -> Tensor:
    """``made`` if it lies on the tiles of ``like`` already, else a new tensor that does."""
    order = storage_order(like)
    wanted, found = order.apply(like).mapping, order.apply(made).mapping
    if np.array_equal(wanted.begin, found.begin) and np.array_equal(wanted.tile, found.tile):
        return made
    moved = same_storage(graph, like, made.dtype)
    order.apply(moved).map(wanted)
    return moved
