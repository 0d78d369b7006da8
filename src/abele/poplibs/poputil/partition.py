"""Cutting intervals into parts: for workers, for tiles, into whole grains.

Parts are dealt by grains: with g grains and p parts, part i ends at grain ⌊(i + 1)·g / p⌋. Parts then differ by at most
one grain, in any order of the intervals, and the last grain alone may be short.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from abele.errors import TensorError
from abele.graph import Graph, Interval
from abele.words import counted

Regions = Sequence[Interval | tuple[int, int]]


def merge_adjacent_regions(regions: Regions) -> list[Interval]:
    """The intervals in ascending order, those that touch or overlap joined and empty ones left out."""
    merged: list[Interval] = []
    for begin, end in sorted(r for r in regions if r[1] > r[0]):
        if merged and begin <= merged[-1].end:
            merged[-1] = Interval(merged[-1].begin, max(merged[-1].end, end))
        else:
            merged.append(Interval(begin, end))
    return merged


def interval_sequence_num_elements(regions: Regions) -> int:
    """Elements of all intervals together."""
    return sum(end - begin for begin, end in regions)


def split_regions(
    regions: Regions, grain: int, max_parts: int, min_elements: int = 0, max_elements: int | None = None
) -> list[list[Interval]]:
    """Deal the elements of ``regions``, in order, to parts of nearly the same number of grains.

    Args:
        regions: Intervals.
        grain: Elements of a part are a multiple of this, but for the last part.
        max_parts: Parts at the most, unless ``max_elements`` asks for more.
        min_elements: Fewer parts are made rather than parts of fewer elements.
        max_elements: More parts are made rather than parts of more elements.

    Raises:
        TensorError: A grain or number of parts below 1, or parts that cannot hold a grain.
    """
    if grain < 1 or max_parts < 1:
        raise TensorError(f"regions cannot be split into {max_parts} parts of grains of {grain}")
    if max_elements is not None and max_elements < grain:
        raise TensorError(f"parts of {counted(max_elements, 'element')} at the most do not hold a grain of {grain}")
    total = interval_sequence_num_elements(regions)
    grains = -(-total // grain)
    parts = min(max_parts, max(1, grains // max(1, -(-min_elements // grain))))
    if max_elements is not None:
        parts = max(parts, -(-grains // (max_elements // grain)))
    parts = min(parts, grains)
    if parts == 0:
        return []
    cuts = np.minimum(np.arange(parts + 1) * grains // parts * grain, total)
    starts = [0, *accumulate(end - begin for begin, end in regions)][:-1]
    return [_between(regions, starts, int(low), int(high)) for low, high in pairwise(cuts)]


def _between(regions: Regions, starts: Sequence[int], low: int, high: int) -> list[Interval]:
    """Intervals of the regions, put after each other, within [low, high)."""
    found = []
    for (begin, end), start in zip(regions, starts, strict=True):
        first, last = max(low - start, 0), min(high - start, end - begin)
        if first < last:
            found.append(Interval(begin + first, begin + last))
    return found


def split_regions_between_workers(
    graph: Graph,
    regions: Regions,
    grain: int,
    min_elements: int = 0,
    max_elements: int | None = None,
) -> list[list[Interval]]:
    """:func:`split_regions` into as many parts as a tile has workers.

    Raises:
        TensorError: A grain below 1, or parts that cannot hold a grain.
    """
    return split_regions(regions, grain, graph.system.ipu.num_workers, min_elements, max_elements)


def balanced_partition(total: int, parts: int) -> tuple[int, int]:
    """Elements of the fuller parts of a range cut as evenly as can be, and how many parts are that full.

    >>> balanced_partition(10, 4)
    (3, 2)

    Raises:
        TensorError: No part.
    """
    if parts < 1:
        raise TensorError(f"{counted(total, 'element')} cannot be cut into {parts} parts")
    fuller = -(-total // parts)
    return fuller, total - (fuller - 1) * parts if fuller else parts


def flatten_index(shape: Sequence[int], indices: Sequence[int]) -> int:
    """The row-major number of an element.

    Raises:
        TensorError: Not one index per dimension, or one out of range.
    """
    if len(shape) != len(indices):
        raise TensorError(f"{counted(len(indices), 'index')} for shape {list(shape)}")
    flat = 0
    for extent, index in zip(shape, indices, strict=True):
        if not 0 <= index < extent:
            raise TensorError(f"index {list(indices)} is not in shape {list(shape)}")
        flat = flat * extent + index
    return flat


def unflatten_index(shape: Sequence[int], index: int) -> tuple[int, ...]:
    """The indices of the element of row-major number ``index``.

    Raises:
        TensorError: There is no such element.
    """
    if not 0 <= index < math.prod(shape):
        raise TensorError(f"element {index} is not in shape {list(shape)}")
    found = []
    for extent in reversed(shape):
        index, at = divmod(index, extent)
        found.append(at)
    return tuple(reversed(found))


def flatten_intervals(regions: Sequence[Regions]) -> list[Interval]:
    """The intervals of all ``regions``, one after the other."""
    return [Interval(*interval) for intervals in regions for interval in intervals]


def calculate_unshuffling_intervals(regions: Regions) -> list[Interval]:
    """Intervals of the elements of ``regions``, put after each other, that give them in ascending order.

    Taking ``regions`` of a tensor and then these intervals of the result gives the tensor again.

    >>> [tuple(i) for i in calculate_unshuffling_intervals([(4, 6), (0, 4)])]
    [(2, 6), (0, 2)]

    Raises:
        TensorError: The regions overlap, or leave out elements.
    """
    sizes = [end - begin for begin, end in regions]
    starts = [0, *accumulate(sizes)][:-1]
    found, at = [], 0
    for begin, start, size in sorted((r[0], s, n) for r, s, n in zip(regions, starts, sizes, strict=True) if n):
        if begin != at:
            raise TensorError(
                f"regions {[tuple(r) for r in regions]} are no order of elements", because=f"they break off at {at}"
            )
        found.append(Interval(start, start + size))
        at += size
    return found
