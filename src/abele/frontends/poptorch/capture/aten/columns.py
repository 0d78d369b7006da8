"""Windows as columns of a matrix, and columns added up to windows: ``unfold`` and ``fold`` of images.

Each place in a window is a strided view of the padded image, so columns are views put together, and their sum is that
of as many views of the columns, spread out with zeros and moved to where the windows have that place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.network import BlockBuilder, Value
from abele.network.ops import build


@dataclass(frozen=True)
class _Windows:
    """Windows over the last two dimensions of an image [batch, channels, *field]."""

    field: tuple[int, ...]
    kernel: Sequence[int]
    dilation: Sequence[int]
    padding: Sequence[int]
    stride: Sequence[int]

    @property
    def counts(self) -> tuple[int, ...]:
        """Windows along each dimension."""
        settings = zip(self.field, self.kernel, self.dilation, self.padding, self.stride, strict=True)
        return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in settings)

    def places(self) -> Iterator[tuple[int, ...]]:
        """For each place in a window, where the first window has it in the padded field."""
        for inside in product(*map(range, self.kernel)):
            yield tuple(i * d for i, d in zip(inside, self.dilation, strict=True))


@aten("aten.im2col")
def windows_as_columns(
    call: OperatorCall,
    value: Value,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """[batch, channels · kernel, windows] of an image [batch, channels, height, width]."""
    net, lead = call.net, value.shape[:-2]
    windows = _Windows(value.shape[-2:], kernel, dilation, padding, stride)
    around = [0] * len(lead) + list(padding)
    wide = build.pad(net, value, around, around)
    views = []
    for place in windows.places():
        view = wide
        for dim, (begin, step, count) in enumerate(zip(place, stride, windows.counts, strict=True), len(lead)):
            view = build.slice_(net, view, dim, begin, begin + step * (count - 1) + 1, step)
        views.append(build.reshape(net, view, (*lead, 1, call.shape[-1])))
    return build.reshape(net, build.concat(net, views, len(lead)), call.shape)


@aten("aten.col2im")
def columns_as_windows(
    call: OperatorCall,
    value: Value,
    size: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """The image [batch, channels, height, width] in which every window adds its column to its elements."""
    net, lead = call.net, call.shape[:-2]
    windows = _Windows(tuple(size), kernel, dilation, padding, stride)
    places = list(windows.places())
    columns = build.reshape(net, value, (*lead, len(places), *windows.counts))
    terms = []
    for number, place in enumerate(places):
        term = build.reshape(net, build.slice_(net, columns, len(lead), number, number + 1), (*lead, *windows.counts))
        for dim, (begin, step, before, extent) in enumerate(zip(place, stride, padding, size, strict=True), len(lead)):
            term = _moved(net, term, dim, begin - before, step, extent)
        terms.append(term)
    return build.map_(net, sum((arg(n) for n in range(1, len(terms))), arg(0)), terms)


def _moved(net: BlockBuilder, value: Value, dim: int, begin: int, step: int, extent: int) -> Value:
    """Zeros with ``extent`` indices of ``dim``, and index i at ``begin`` + i · ``step`` where there is such a one."""
    first = max(0, -(begin // step))
    count = min(value.shape[dim], max(first, -((begin - extent) // step)))
    if count <= first:
        return build.full(net, 0.0, (*value.shape[:dim], extent, *value.shape[dim + 1 :]), value.dtype)
    return build.placed(net, build.slice_(net, value, dim, first, count), dim, begin + first * step, step, extent)
