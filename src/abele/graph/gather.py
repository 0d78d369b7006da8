"""Views put together from ranges of other views, and ranges put in memory order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from abele.arrays import Int64
from abele.errors import TensorError, TensorIndexError
from abele.graph.block_list import BlockList
from abele.graph.block_table import BlockTable, compact
from abele.graph.content import Content
from abele.graph.intervals import Interval, cut_at, merge_adjacent, order_of
from abele.graph.regions import cut_runs
from abele.graph.tensor import Tensor
from abele.words import counted

if TYPE_CHECKING:
    from abele.graph.graph import Graph

Intervals = Iterable[tuple[int, int]]


def content_of_runs(graph: Graph, begin: Int64, length: Int64) -> Content:
    """A one-dimensional view of intervals of the global space after each other, int64[k] each."""
    keep = length > 0
    bases = np.array([v.base for v in graph.variables], dtype=np.int64)
    begin, length, _ = merge_adjacent(begin[keep], length[keep])
    begin, length, _ = cut_at(bases, begin, length)
    if len(begin) == 0:
        return BlockList(())
    numbers, owner = np.unique(np.searchsorted(bases, begin, side="right") - 1, return_inverse=True)
    pool = tuple(graph.variables[i] for i in numbers.tolist())
    one = np.ones((len(begin), 1), dtype=np.int64)
    owner = owner.reshape(-1).astype(np.int64)
    offset = begin - bases[numbers][owner]
    return compact(
        BlockTable(
            pool=pool,
            owner=owner,
            offset=offset,
            origin=(np.cumsum(length) - length,),
            extent=(length[:, None],),
            step=(one,),
            stride=(one,),
            is_cut=True,
        )
    )


def gathered(tensor: Tensor, position: Int64, length: Int64) -> Tensor:
    """The one-dimensional view of ranges of a flattened view after each other, int64[k] each."""
    begin, pieces, _, _ = cut_runs(tensor, position, length)
    return tensor.view((int(length.sum()),), content_of_runs(tensor.graph, begin, pieces))


def reorder_to_simplify(tensor: Tensor, others: Sequence[Tensor] = ()) -> tuple[Tensor, list[Tensor]]:
    """One-dimensional views in an order in which ``tensor`` has the fewest regions.

    Args:
        tensor: The view to simplify.
        others: Views of as many elements, whose elements go with those of ``tensor``.

    Returns:
        ``tensor`` in memory order, and ``others`` permuted alike: a copy between them, say, means what it meant.

    Raises:
        TensorError: A view has another number of elements.
    """
    for other in others:
        if other.size != tensor.size:
            raise TensorError(
                f"{other!r} has {counted(other.size, 'element')}, {tensor!r} has {tensor.size}: they cannot be paired"
            )
    begin, length = tensor.intervals()
    order = order_of(begin)
    position = (np.cumsum(length) - length)[order]
    if len(order) < 2 or (np.diff(order) == 1).all():
        return tensor.flatten(), [t.flatten() for t in others]
    simple = tensor.view((tensor.size,), content_of_runs(tensor.graph, begin[order], length[order]))
    return simple, [simple if t.is_same_view(tensor) else gathered(t, position, length[order]) for t in others]


def sorted_contiguous_regions(tensor: Tensor, regions: Sequence[Any], remove_aliased: bool = False) -> list[Any]:
    """Intervals of a flattened view, sorted and grouped so that each group is contiguous in memory.

    Args:
        tensor: The view.
        regions: Intervals ``[begin, end)`` of the flattened view; or a list of such lists, one per tile, say.
        remove_aliased: Leave out what shows an element that an interval before it in memory order shows.

    Returns:
        For one list of intervals: groups, each a list of :class:`Interval` of the view, in memory order. For a list of
        lists: groups for each.

    Raises:
        TensorIndexError: An interval is outside the view.
    """
    nested = bool(regions) and not _is_interval(regions[0])
    lists: Sequence[Sequence[tuple[int, int]]] = regions if nested else [regions]
    table = np.array([(i, a, b) for i, items in enumerate(lists) for a, b in items], dtype=np.int64).reshape(-1, 3)
    wrong = (table[:, 1] < 0) | (table[:, 2] > tensor.size) | (table[:, 2] < table[:, 1])
    if wrong.any():
        _, low, high = table[wrong][0].tolist()
        raise TensorIndexError(
            f"interval [{low}, {high}) is outside {tensor!r}, which has {counted(tensor.size, 'element')}"
        )
    owner, position, length, head = _memory_order(tensor, table, remove_aliased)
    result: list[list[list[Interval]]] = [[] for _ in lists]
    for tile, at, size, is_head in zip(owner.tolist(), position.tolist(), length.tolist(), head.tolist(), strict=True):
        if is_head:
            result[tile].append([])
        result[tile][-1].append(Interval(at, at + size))
    return result if nested else result[0]


def _memory_order(tensor: Tensor, table: Int64, remove_aliased: bool) -> tuple[Int64, Int64, Int64, Any]:
    """Pieces of intervals (list, begin, end) in memory order: list, position, length, and whether a group begins."""
    begin, length, source, position = cut_runs(tensor, table[:, 1], table[:, 2] - table[:, 1])
    bases = np.array(sorted({v.base for v in tensor.variables}), dtype=np.int64)
    cut_begin, length, piece = cut_at(bases, begin, length)
    owner, position, begin = table[source, 0][piece], position[piece] + cut_begin - begin[piece], cut_begin
    order = np.lexsort((position, begin, owner))
    owner, position, begin, length = owner[order], position[order], begin[order], length[order]
    if remove_aliased and len(begin):
        # Lists are kept apart by moving each beyond the addresses of the one before it.
        apart = owner * (int((begin + length).max()) + 1)
        reach = np.append(0, np.maximum.accumulate(apart + begin + length)[:-1]) - apart
        skip = np.clip(reach - begin, 0, length)
        keep = skip < length
        owner, position, begin, length = (
            owner[keep],
            (position + skip)[keep],
            (begin + skip)[keep],
            (length - skip)[keep],
        )
    variable = np.searchsorted(bases, begin, side="right")
    head = np.ones(len(begin), dtype=bool)
    head[1:] = (begin[1:] != (begin + length)[:-1]) | (np.diff(owner) != 0) | (np.diff(variable) != 0)
    # Neighbours in the view that are neighbours in memory are one interval.
    joined = ~head
    joined[1:] &= position[1:] == (position + length)[:-1]
    first = np.flatnonzero(~joined)
    total = np.add.reduceat(length, first) if len(first) else length
    return owner[first], position[first], total, head[first]


def _is_interval(item: Any) -> bool:
    return len(item) == 2 and isinstance(item[0], (int, np.integer))
