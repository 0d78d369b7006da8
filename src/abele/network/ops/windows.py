"""Windows over a field, tap by tap: for each place in a window, a view of the elements that all windows have there.

What pooling with gaps, places of maxima and windows of uneven lengths are made of; front ends share it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.expr import Expr, apply, select
from abele.expr.derivative import arg
from abele.network.ir import BlockBuilder, Value
from abele.network.ops.elementwise import map_
from abele.network.ops.lookup import even_runs, taken_runs
from abele.network.ops.views import expand, pad
from abele.numerics import i32

Taps = Sequence[Sequence[int]]
"""For each tap along a dimension, the index that every window has there; −1 and what is beyond the end are padding."""


def regular_taps(outputs: int, kernel: int, stride: int, dilation: int, before: int) -> Taps:
    """Taps of windows that move on by ``stride`` and begin ``before`` elements before the first."""
    return [[o * stride - before + k * dilation for o in range(outputs)] for k in range(kernel)]


def adaptive_windows(inputs: int, outputs: int) -> list[tuple[int, int]]:
    """Begin and end of each window of an adaptive pooling; neighbours may overlap."""
    return [(o * inputs // outputs, -(-(o + 1) * inputs // outputs)) for o in range(outputs)]


def adaptive_taps(inputs: int, outputs: int) -> Taps:
    """Taps of an adaptive pooling; shorter windows have their last element several times."""
    windows = adaptive_windows(inputs, outputs)
    most = max(end - begin for begin, end in windows)
    return [[min(begin + k, end - 1) for begin, end in windows] for k in range(most)]


def taken(net: BlockBuilder, value: Value, dim: int, numbers: Sequence[int]) -> Value:
    """The indices ``numbers`` of one dimension: slices of it, put together."""
    return taken_runs(net, value, dim, list(even_runs(numbers)))


def _nearest_inside(taps: Taps, extent: int) -> Taps:
    """``taps`` with those outside of ``extent`` at the nearest tap of their window that is inside, or clipped."""
    numbers = np.array(taps)
    inside = (numbers >= 0) & (numbers < extent)
    some = inside.any(axis=0)
    first = np.where(some, np.where(inside, numbers, extent).min(axis=0), 0)
    last = np.where(some, np.where(inside, numbers, -1).max(axis=0), extent - 1)
    nearest = np.clip(numbers, first, last)
    return [[int(n) for n in tap] for tap in nearest]


def best_of_windows(net: BlockBuilder, value: Value, taps: Sequence[Taps]) -> tuple[Value, Value]:
    """The maximum of every window over the last dimensions, and where it is in them, counted row by row.

    Windows are products of those along each dimension, so the maximum along the last comes first, then that of these
    along the one before. Of equal elements the first in row-major order counts, of several NaN the last.
    Padding never is the place: it counts as the nearest element of the window that is inside.

    Args:
        net: The network to extend.
        value: [..., *field].
        taps: Of each field dimension.
    """
    rank = len(taps)
    field = value.shape[value.ndim - rank :]
    places: Value | None = None
    lowest = -np.inf if value.dtype.is_float else np.iinfo(value.dtype.np).min
    for number in reversed(range(rank)):
        dim, along = value.ndim - rank + number, taps[number]
        scale = int(np.prod(field[number + 1 :]))
        # Pad so that every tap exists; the fill never wins.
        before = max(0, -min(map(min, along)))
        after = max(0, max(map(max, along)) - value.shape[dim] + 1)
        low, high = [0] * value.ndim, [0] * value.ndim
        low[dim], high[dim] = before, after
        wide = pad(net, value, low, high, fill=float(lowest))
        under = places
        best: Value | None = None
        for indices, inside in zip(along, _nearest_inside(along, value.shape[dim]), strict=True):
            # One element per window, and its place: that along this dimension plus the places found along later ones.
            one = taken(net, wide, dim, [n + before for n in indices])
            counts = np.asarray(inside, np.int64).reshape(-1, *(1,) * (value.ndim - dim - 1)) * scale
            at = net.constant(counts, i32, "places")
            if under is not None:
                at = map_(net, arg(0) + arg(1), [taken(net, under, dim, inside), at])
            if best is None or places is None:
                best, places = one, expand(net, at, one.shape)
                continue
            # Strictly greater keeps the first of equal elements; x ≠ x lets a later NaN win.
            better: Expr = arg(0) > arg(1)
            if value.dtype.is_float:
                better = apply("or", better, arg(0).ne(arg(0)))
            places = map_(net, select(better, arg(2), arg(3)), [one, best, at, places], i32)
            best = map_(net, select(better, arg(0), arg(1)), [one, best])
        assert best is not None
        value = best
    assert places is not None
    return value, places
