"""Windows as columns of a matrix, and columns added up to windows, over fields of any number of dimensions.

Each place in a window is a strided view of the padded field, so columns are views put together, and their sum is that
of as many views of the columns, spread out with zeros and moved to where the windows have that place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from abele.expr.derivative import arg
from abele.network.ir import BlockBuilder, Value
from abele.network.ops.constant import full
from abele.network.ops.elementwise import map_
from abele.network.ops.views import concat, pad, placed, reshape, slice_


@dataclass(frozen=True)
class ColumnWindows:
    """Windows over the last dimensions of a value [batch, channels, *field].

    Attributes:
        field: Extents of the field.
        kernel: Window along each dimension.
        dilation: Distance of its places.
        low: Padding before each dimension.
        high: Padding after it.
        stride: Step of the window.
    """

    field: tuple[int, ...]
    kernel: Sequence[int]
    dilation: Sequence[int]
    low: Sequence[int]
    high: Sequence[int]
    stride: Sequence[int]

    @property
    def counts(self) -> tuple[int, ...]:
        """Windows along each dimension."""
        settings = zip(self.field, self.kernel, self.dilation, self.low, self.high, self.stride, strict=True)
        return tuple((n + a + b - d * (k - 1) - 1) // s + 1 for n, k, d, a, b, s in settings)

    def places(self) -> Iterator[tuple[int, ...]]:
        """For each place in a window, where the first window has it in the padded field."""
        for inside in product(*map(range, self.kernel)):
            yield tuple(i * d for i, d in zip(inside, self.dilation, strict=True))


def windows_as_columns(net: BlockBuilder, value: Value, windows: ColumnWindows) -> Value:
    """[batch, channels · kernel, windows] of a value [batch, channels, *field]; the batch may be missing."""
    rank = len(windows.field)
    lead, counts = value.shape[: value.ndim - rank], windows.counts
    none = [0] * len(lead)
    wide = pad(net, value, [*none, *windows.low], [*none, *windows.high])
    views = []
    for place in windows.places():
        view = wide
        for dim, (begin, step, count) in enumerate(zip(place, windows.stride, counts, strict=True), len(lead)):
            view = slice_(net, view, dim, begin, begin + step * (count - 1) + 1, step)
        views.append(reshape(net, view, (*lead, 1, math.prod(counts))))
    made = concat(net, views, len(lead))
    return reshape(net, made, (*lead[:-1], lead[-1] * len(views), math.prod(counts)))


def columns_as_windows(net: BlockBuilder, columns: Value, windows: ColumnWindows, lead: Sequence[int]) -> Value:
    """The value [*lead, *field] in which every window adds its column to its elements."""
    places = list(windows.places())
    apart = reshape(net, columns, (*lead, len(places), *windows.counts))
    terms = []
    for number, place in enumerate(places):
        term = reshape(net, slice_(net, apart, len(lead), number, number + 1), (*lead, *windows.counts))
        settings = zip(place, windows.stride, windows.low, windows.field, strict=True)
        for dim, (begin, step, before, extent) in enumerate(settings, len(lead)):
            term = _moved(net, term, dim, begin - before, step, extent)
        terms.append(term)
    return map_(net, sum((arg(n) for n in range(1, len(terms))), arg(0)), terms)


def _moved(net: BlockBuilder, value: Value, dim: int, begin: int, step: int, extent: int) -> Value:
    """Zeros with ``extent`` indices of ``dim``, and index i at ``begin`` + i · ``step`` where there is such a one."""
    first = max(0, -(begin // step))
    count = min(value.shape[dim], max(first, -((begin - extent) // step)))
    if count <= first:
        return full(net, 0.0, (*value.shape[:dim], extent, *value.shape[dim + 1 :]), value.dtype)
    return placed(net, slice_(net, value, dim, first, count), dim, begin + first * step, step, extent)
