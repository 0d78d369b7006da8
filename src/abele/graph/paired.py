"""Two views of one shape side by side: runs that are contiguous in both, in the order of the longest runs.

A copy's elements may be taken in any order, so the order of the longest runs is chosen. Both blocks are written as one
list of *digits* (an extent with a stride on either side). Digits are sorted by the destination's stride, and neighbours
that step on in both without a gap are joined. Without that, the copy between two transposed views of equal storage
would come out element by element. Where the two blocks cannot be cut into common digits (extents that do not divide
each other), the order of the views is right for everything, only with shorter runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from abele.graph.block import Factors, StridedBlock, lookup
from abele.graph.intervals import Int64, cut_alike

if TYPE_CHECKING:
    from abele.graph.tensor import Tensor


class PairedRuns(NamedTuple):
    """Elements of two views that belong together: element i of a run of one, and element i of that of the other.

    Attributes:
        source: Global address of the first element of each run in one view, int64[k].
        destination: The same in the other, int64[k].
        length: Elements of each run, int64[k].
    """

    source: Int64
    destination: Int64
    length: Int64


class _Digit(NamedTuple):
    """An extent that both views step through, each with its own stride."""

    extent: int
    source: int
    destination: int


def paired_runs(source: Tensor, destination: Tensor) -> PairedRuns:
    """The elements of two views of equal size, in pairs.

    Blocks that are alike are walked in the order of the destination's memory, so that two variables stored in the
    same way come out as one run, however the views turn them; others in the order of the views.
    """
    blocks, others = source.blocks, destination.blocks
    if blocks is None or others is None or len(blocks) != len(others) or source.shape != destination.shape:
        return _in_view_order(source, destination)
    by_origin = {b.origin: b for b in others}
    parts = []
    for block in blocks:
        if block.size == 0:
            continue
        other = by_origin.get(block.origin)
        digits = None if other is None else _digits(block, other)
        if other is None or digits is None:
            return _in_view_order(source, destination)
        parts.append(_runs(block, other, digits))
    if not parts:
        return _in_view_order(source, destination)
    return PairedRuns(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _in_view_order(source: Tensor, destination: Tensor) -> PairedRuns:
    (begin, length), (other_begin, other_length) = source.intervals(), destination.intervals()
    size, mine, theirs = cut_alike(length, other_length)
    return PairedRuns(begin[mine.interval] + mine.offset, other_begin[theirs.interval] + theirs.offset, size)


def _digits(block: StridedBlock, other: StridedBlock) -> list[_Digit] | None:
    """The extents of both blocks, cut so finely that one list serves both; None where none does."""
    if not (block.is_box and other.is_box) or block.extents != other.extents:
        return None
    found: list[_Digit] = []
    for mine, theirs in zip(block.factors, other.factors, strict=True):
        common = _common(mine, theirs)
        if common is None:
            return None
        found += common
    return found


def _common(mine: Factors, theirs: Factors) -> list[_Digit] | None:
    """The digits of one dimension, innermost first."""
    found: list[_Digit] = []
    left, right = ([(n, stride) for n, _, stride in factors] for factors in (mine, theirs))
    while left:
        (n, stride), (m, other) = left.pop(), right.pop()
        extent = min(n, m)
        # 6 beside 4: no list of digits serves both.
        if max(n, m) % extent:
            return None
        found.append(_Digit(extent, stride, other))
        if n > extent:
            left.append((n // extent, stride * extent))
        if m > extent:
            right.append((m // extent, other * extent))
    return found


def _runs(block: StridedBlock, other: StridedBlock, digits: list[_Digit]) -> PairedRuns:
    """The runs of two blocks, in the order of the second one's memory."""
    merged: list[_Digit] = []
    for digit in sorted(digits, key=lambda d: (-abs(d.destination), -abs(d.source))):
        outer = merged[-1] if merged else None
        n = digit.extent
        # One step of the outer digit is a whole round of this one, on both sides: they count on as one.
        if outer is not None and outer[1:] == (digit.source * n, digit.destination * n):
            merged[-1] = _Digit(outer.extent * n, digit.source, digit.destination)
        else:
            merged.append(digit)
    length = merged.pop().extent if merged and merged[-1][1:] == (1, 1) else 1
    source, destination = (
        base + lookup(tuple((d.extent, stride) for d, stride in zip(merged, strides, strict=True)))
        for base, strides in (
            (block.variable.base + block.offset, [d.source for d in merged]),
            (other.variable.base + other.offset, [d.destination for d in merged]),
        )
    )
    return PairedRuns(source, destination, np.full(len(source), length, dtype=np.int64))
