"""Elements of a view: runs of variables, repeated elements, elements that two views share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from abele.arrays import Int64
from abele.graph.content import Content
from abele.graph.interval_set import EMPTY, IntervalSet
from abele.graph.intervals import Interval, cut_at, order_of
from abele.graph.variable import Variable

if TYPE_CHECKING:
    from abele.graph.program import End
    from abele.graph.tensor import Strided, Tensor


def variable_runs(tensor: Tensor) -> tuple[Int64, Int64]:
    """Global begins and lengths of a view's contiguous pieces, cut where one variable ends and its neighbour begins."""
    bases = np.array(sorted({v.base for v in tensor.variables if v.size}), dtype=np.int64)
    begin, length, _ = cut_at(bases, *tensor.intervals())
    return begin, length


def contiguous_regions(tensor: Tensor) -> list[Interval]:
    """Intervals of the flattened view, in order, that are contiguous in one variable each."""
    _, length = variable_runs(tensor)
    end = np.cumsum(length)
    return [Interval(int(e - n), int(e)) for e, n in zip(end, length, strict=True)]


def var_regions(tensor: Tensor) -> list[tuple[Variable, Interval]]:
    """Variable and interval of its elements for each contiguous piece of the flattened view, in order."""
    begin, length = variable_runs(tensor)
    found = []
    for low, count in zip(begin.tolist(), length.tolist(), strict=True):
        variable, element = tensor.graph.locate(low)
        found.append((variable, Interval(element, element + count)))
    return found


def has_repeats(content: Content, size: int) -> bool:
    """True if an element appears more than once in a view of ``size`` elements."""
    if content.is_surely_distinct:
        return False
    low, high = content.bounds
    if size > high - low:
        return True
    begin, length, repeated = content.footprint()
    order = order_of(begin)
    return repeated or bool((begin[order][1:] < (begin + length)[order][:-1]).any())


def overlap(first: Tensor, second: Tensor) -> bool:
    """True if the two views share an element.

    The intervals of one, sorted by their begin, get the furthest end of all before them. An interval ``[s, e)`` of the
    other meets one of them exactly if, of those that begin before ``e``, the furthest end is after ``s``; so one binary
    search for each interval is enough, also where intervals of one view lie inside each other.
    """
    (low, high), (other_low, other_high) = first.content.bounds, second.content.bounds
    if not first.size or not second.size or high <= other_low or other_high <= low:
        return False
    begin, length, _ = first.content.footprint()
    order = order_of(begin)
    begin, end = begin[order], np.maximum.accumulate((begin + length)[order])
    start, size, _ = second.content.footprint()
    slot = np.searchsorted(begin, start + size, side="left") - 1
    return bool(((slot >= 0) & (end[np.maximum(slot, 0)] > start)).any())


def same_view(first: Tensor, second: Tensor) -> bool:
    """True if both views have the same shape and type and show the same elements in the same order."""
    if first is second:
        return True
    if first.shape != second.shape or first.dtype != second.dtype or first.content.bounds != second.content.bounds:
        return False
    mine, theirs = first.strided(), second.strided()
    if mine is not None and mine == theirs:
        return True
    return all(np.array_equal(a, b) for a, b in zip(first.intervals(), second.intervals(), strict=True))


def elements_of(tensor: End) -> IntervalSet:
    """The elements that a view shows; none for a stream or remote buffer."""
    from abele.graph.tensor import Tensor

    if not isinstance(tensor, Tensor):
        return EMPTY
    strided = tensor.strided()
    interval = _dense_interval(strided) if strided is not None else None
    if interval is None:
        return IntervalSet.of(*tensor.intervals())
    begin, size = interval
    return IntervalSet.of(np.array([begin]), np.array([size]))


def _dense_interval(strided: Strided) -> tuple[int, int] | None:
    """First address and size of the one interval that a permuted or reversed view fills, without listing elements."""
    factors = [f for dim in strided.factors for f in dim if f[0] != 1]
    size = 1
    for extent, stride in sorted(factors, key=lambda f: abs(f[1])):
        # Factors by rising stride must each step over exactly what the smaller ones fill.
        if abs(stride) != size:
            return None
        size *= extent
    lowest = sum(min(0, (extent - 1) * stride) for extent, stride in factors)
    return strided.variable.base + strided.offset + lowest, size
