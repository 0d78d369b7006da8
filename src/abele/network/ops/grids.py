"""Sampling at places that the machine computes: each sample is a weighted sum of rows of a table of pixels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from abele.expr import Expr, apply, select
from abele.expr.derivative import arg
from abele.network.ir import BlockBuilder, Value
from abele.network.ops.constant import full
from abele.network.ops.elementwise import cast, map_
from abele.network.ops.lookup import look_up
from abele.network.ops.reduction import reduce
from abele.network.ops.views import concat, detach, permute, reshape, slice_
from abele.numerics import f32, i32

x, y = arg(0), arg(1)

Mode = Literal["linear", "nearest", "cubic"]
Padding = Literal["zeros", "border", "reflection"]
_CUBIC_SLOPE = -0.75
"""The parameter of the family of cubic kernels: that of the usual libraries of images."""

Tap = tuple[Value, Value]
"""An index along one dimension, i32[n], and its weight, f32[n]."""


def grid_sample(net: BlockBuilder, value: Value, grid: Value, mode: Mode, padding: Padding, corners: bool) -> Value:
    """The value [batch, channels, *field] at places [batch, *outputs, dims], whose last dimension comes first.

    Args:
        net: The network to extend.
            value: The sampled field.
        grid: Places, of which -1 and 1 are the ends of a dimension.
        mode: Weights of the elements around a place.
            padding: Values beyond the ends: zeros, the nearest end, or the field mirrored.
        corners: True if -1 and 1 are the middles of the outermost elements, rather than their edges.
    """
    rank = value.ndim - 2
    field = value.shape[2:]
    count = grid.size // rank
    places = reshape(net, cast(net, grid, f32), (count, rank))
    taps = []
    for dim, extent in enumerate(field):
        number = rank - 1 - dim
        place = reshape(net, slice_(net, places, 1, number, number + 1), (count,))
        scale, offset = ((extent - 1) / 2, (extent - 1) / 2) if corners else (extent / 2, (extent - 1) / 2)
        at = map_(net, x * scale + offset, [place])
        taps.append(_TAPS[mode](net, at, Edges(extent, padding, corners)))
    return _weighted(net, value, taps, grid.shape[1:-1])


def _weighted(net: BlockBuilder, value: Value, taps: Sequence[Sequence[Tap]], outputs: Sequence[int]) -> Value:
    """The sum over all combinations of taps."""
    field, count = value.shape[2:], value.shape[0] * math.prod(outputs)
    batch, channels, pixels = value.shape[0], value.shape[1], math.prod(field)
    first = np.repeat(np.arange(batch) * pixels, count // batch)
    numbers, weights = [], []
    for corner in product(*taps):
        number = net.constant(first, i32, "first_pixels")
        weight: Value | None = None
        for inner, (index, share) in zip(_inner(field), corner, strict=True):
            number = map_(net, x + y * inner, [number, index], i32)
            weight = share if weight is None else map_(net, x * y, [weight, share])
        assert weight is not None
        numbers.append(reshape(net, number, (1, count)))
        weights.append(reshape(net, weight, (1, count, 1)))
    order = [0, *range(2, value.ndim), 1]
    table = reshape(net, permute(net, value, order), (batch * pixels, channels))
    rows = look_up(net, table, concat(net, numbers, 0))
    shares = cast(net, concat(net, weights, 0), value.dtype)
    made = reduce(net, map_(net, x * y, [rows, shares]), [0])
    shaped = reshape(net, made, (batch, *outputs, channels))
    return permute(net, shaped, [0, 1 + len(outputs), *range(1, 1 + len(outputs))])


def _inner(field: Sequence[int]) -> list[int]:
    """By how much the number of a pixel grows with an index of each dimension."""
    return [math.prod(field[dim + 1 :]) for dim in range(len(field))]


@dataclass(frozen=True)
class Edges:
    """Values beyond the ends of a dimension.

    Attributes:
        extent: Its extent.
        padding: Zeros, the nearest end, or the field mirrored.
        corners: True if the middle of the outermost elements is where it ends, rather than their edge.
    """

    extent: int
    padding: Padding
    corners: bool

    def moved(self, net: BlockBuilder, place: Value) -> Value:
        """``place`` inside the field; where zeros lie outside, as it is."""
        if self.padding == "zeros":
            return place
        mirrored = map_(net, self._mirrored(), [place]) if self.padding == "reflection" else place
        return map_(net, self.kept(), [mirrored])

    def kept(self) -> Expr:
        """A place that is beyond an end as that end."""
        last = float(self.extent - 1)
        return select(x < 0.0, 0.0, select(x > last, last, x))

    def _mirrored(self) -> Expr:
        low, span = (0.0, float(self.extent - 1)) if self.corners else (-0.5, float(self.extent))
        if span == 0:
            return x * 0.0
        size = apply("abs", x - low)
        turns = apply("floor", size * (1 / span))
        rest = size - turns * span
        is_odd = turns - apply("floor", turns * 0.5) * 2.0
        return select(is_odd > 0.5, span - rest, rest) + low


def _tap(net: BlockBuilder, at: Value, weight: Value, edges: Edges, *, whole: Expr = x) -> Tap:
    """The index ``whole`` of ``at``, and its weight, which is zero outside of the field."""
    is_in = apply("and", arg(0) > -0.5, arg(0) < edges.extent - 0.5)
    index = map_(net, whole, [detach(net, at)])
    share = map_(net, select(is_in, arg(1), 0.0), [index, weight])
    kept = map_(net, edges.kept(), [index])
    return cast(net, kept, i32), share


def _linear(net: BlockBuilder, at: Value, edges: Edges) -> list[Tap]:
    at = edges.moved(net, at)
    low = apply("floor", x)
    rest = map_(net, x - apply("floor", y), [at, detach(net, at)])
    shares = (map_(net, 1.0 - x, [rest]), rest)
    return [_tap(net, at, share, edges, whole=low + float(n)) for n, share in enumerate(shares)]


def _nearest(net: BlockBuilder, at: Value, edges: Edges) -> list[Tap]:
    at = edges.moved(net, at)
    return [_tap(net, at, full(net, 1.0, at.shape, f32), edges, whole=apply("round", x))]


def _cubic(net: BlockBuilder, at: Value, edges: Edges) -> list[Tap]:
    """Four taps; each of them is moved inside the field by itself."""
    rest = map_(net, x - apply("floor", y), [at, detach(net, at)])
    made = []
    for number in range(-1, 3):
        distance: Expr = apply("abs", x - float(number))
        near = ((_CUBIC_SLOPE + 2.0) * distance - (_CUBIC_SLOPE + 3.0)) * distance * distance + 1.0
        far = ((distance - 5.0) * distance + 8.0) * distance - 4.0
        share = map_(net, near if number in (0, 1) else far * _CUBIC_SLOPE, [rest])
        corner = map_(net, apply("floor", x) + float(number), [detach(net, at)])
        made.append(_tap(net, edges.moved(net, corner), share, edges, whole=apply("round", x)))
    return made


_TAPS: dict[Mode, Callable[[BlockBuilder, Value, Edges], list[Tap]]] = {
    "linear": _linear,
    "nearest": _nearest,
    "cubic": _cubic,
}
