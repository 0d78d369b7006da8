"""Two views of one shape side by side: runs that are contiguous in both, in the order of the longest runs.

A copy's elements may be taken in any order, so the order of the longest runs is chosen. Both blocks are written as one
list of *modes* (an extent with a stride on either side). Modes are sorted by the destination's stride, and neighbours
that step on in both without a gap are joined. Without that, the copy between two transposed views of equal storage
would come out element by element. Where the two blocks cannot be cut into common modes (extents that do not divide
each other), the order of the views is right for everything, only with shorter runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from abele.arrays import Int64
from abele.graph.block import Factor, StridedBlock
from abele.graph.intervals import cut_alike
from abele.layout import RefinementError, coalesce, offsets, refine, split

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
        steps = None if other is None else _steps(block, other)
        if other is None or steps is None:
            return _in_view_order(source, destination)
        parts.append(_runs(block, other, steps))
    if not parts:
        return _in_view_order(source, destination)
    return PairedRuns(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _in_view_order(source: Tensor, destination: Tensor) -> PairedRuns:
    (begin, length), (other_begin, other_length) = source.intervals(), destination.intervals()
    size, mine, theirs = cut_alike(length, other_length)
    return PairedRuns(begin[mine.interval] + mine.offset, other_begin[theirs.interval] + theirs.offset, size)


def _steps(block: StridedBlock, other: StridedBlock) -> list[Factor] | None:
    """Modes with the strides of both blocks, the fewest that serve both; None where none do."""
    if not (block.is_box and other.is_box) or block.extents != other.extents:
        return None
    found: list[Factor] = []
    for mine, theirs in zip(block.factors, other.factors, strict=True):
        try:
            pieces, others = refine([f[0] for f in mine], [f[0] for f in theirs])
        except RefinementError:
            return None
        found += [(n, a, b) for (n, _, a), (_, _, b) in zip(split(mine, pieces), split(theirs, others), strict=True)]
    return found


def _runs(block: StridedBlock, other: StridedBlock, steps: list[Factor]) -> PairedRuns:
    """The runs of two blocks, in the order of the second one's memory."""
    modes = list(coalesce(sorted(steps, key=lambda m: (-abs(m[2]), -abs(m[1])))))
    length = modes.pop()[0] if modes and modes[-1][1:] == (1, 1) else 1
    source = block.variable.base + block.offset + offsets((n, a) for n, a, _ in modes)
    destination = other.variable.base + other.offset + offsets((n, b) for n, _, b in modes)
    return PairedRuns(source, destination, np.full(len(source), length, dtype=np.int64))
