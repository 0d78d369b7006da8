"""Sampling at places that the machine computes: each sample is a weighted sum of rows of a table of pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.kernels.nest.ir import Expr, apply, select
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import f32, i32

x, y = arg(0), arg(1)

_LINEAR, _NEAREST, _CUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2
_CUBIC_SLOPE = -0.75
"""The parameter of the family of cubic kernels, as in PyTorch."""

Tap = tuple[Value, Value]
"""An index along one dimension, i32[n], and its weight, f32[n]."""


@aten("aten.grid_sampler", "aten.grid_sampler_2d", "aten.grid_sampler_3d")
def grid_sampler(call: OperatorCall, value: Value, grid: Value, mode: int, padding: int, align_corners: bool) -> Value:
    """The value [batch, channels, *field] at places [batch, *outputs, dims], whose last dimension comes first."""
    net, rank = call.net, value.ndim - 2
    field = value.shape[2:]
    count = grid.size // rank
    places = build.reshape(net, build.cast(net, grid, f32), (count, rank))
    taps = []
    for dim, extent in enumerate(field):
        number = rank - 1 - dim
        place = build.reshape(net, build.slice_(net, places, 1, number, number + 1), (count,))
        scale, offset = ((extent - 1) / 2, (extent - 1) / 2) if align_corners else (extent / 2, (extent - 1) / 2)
        at = build.map_(net, x * scale + offset, [place])
        taps.append(_TAPS[mode](net, at, Edges(extent, padding, align_corners)))
    return _weighted(call, value, taps, count)


def _weighted(call: OperatorCall, value: Value, taps: Sequence[Sequence[Tap]], count: int) -> Value:
    """The sum over all combinations of taps."""
    net, field = call.net, value.shape[2:]
    batch, channels, pixels = value.shape[0], value.shape[1], math.prod(field)
    first = np.repeat(np.arange(batch) * pixels, count // batch)
    numbers, weights = [], []
    for corner in product(*taps):
        number = net.constant(first, i32, "first_pixels")
        weight: Value | None = None
        for inner, (index, share) in zip(_inner(field), corner, strict=True):
            number = build.map_(net, x + y * inner, [number, index], i32)
            weight = share if weight is None else build.map_(net, x * y, [weight, share])
        assert weight is not None
        numbers.append(build.reshape(net, number, (1, count)))
        weights.append(build.reshape(net, weight, (1, count, 1)))
    order = [0, *range(2, value.ndim), 1]
    table = build.reshape(net, build.permute(net, value, order), (batch * pixels, channels))
    rows = build.look_up(net, table, build.concat(net, numbers, 0))
    shares = build.cast(net, build.concat(net, weights, 0), value.dtype)
    made = build.reduce(net, build.map_(net, x * y, [rows, shares]), [0])
    outputs = call.shape[2:]
    shaped = build.reshape(net, made, (batch, *outputs, channels))
    return build.permute(net, shaped, [0, 1 + len(outputs), *range(1, 1 + len(outputs))])


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
    padding: int
    corners: bool

    def moved(self, net: BlockBuilder, place: Value) -> Value:
        """``place`` inside the field; where zeros lie outside, as it is."""
        if self.padding == _ZEROS:
            return place
        mirrored = build.map_(net, self._mirrored(), [place]) if self.padding == _REFLECTION else place
        return build.map_(net, self.kept(), [mirrored])

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
    index = build.map_(net, whole, [build.detach(net, at)])
    share = build.map_(net, select(is_in, arg(1), 0.0), [index, weight])
    kept = build.map_(net, edges.kept(), [index])
    return build.cast(net, kept, i32), share


def _linear(net: BlockBuilder, at: Value, edges: Edges) -> list[Tap]:
    at = edges.moved(net, at)
    low = apply("floor", x)
    rest = build.map_(net, x - apply("floor", y), [at, build.detach(net, at)])
    shares = (build.map_(net, 1.0 - x, [rest]), rest)
    return [_tap(net, at, share, edges, whole=low + float(n)) for n, share in enumerate(shares)]


def _nearest(net: BlockBuilder, at: Value, edges: Edges) -> list[Tap]:
    at = edges.moved(net, at)
    return [_tap(net, at, build.full(net, 1.0, at.shape, f32), edges, whole=apply("round", x))]


def _cubic(net: BlockBuilder, at: Value, edges: Edges) -> list[Tap]:
    """Four taps; each of them is moved inside the field by itself."""
    rest = build.map_(net, x - apply("floor", y), [at, build.detach(net, at)])
    made = []
    for number in range(-1, 3):
        distance: Expr = apply("abs", x - float(number))
        near = ((_CUBIC_SLOPE + 2.0) * distance - (_CUBIC_SLOPE + 3.0)) * distance * distance + 1.0
        far = ((distance - 5.0) * distance + 8.0) * distance - 4.0
        share = build.map_(net, near if number in (0, 1) else far * _CUBIC_SLOPE, [rest])
        corner = build.map_(net, apply("floor", x) + float(number), [build.detach(net, at)])
        made.append(_tap(net, edges.moved(net, corner), share, edges, whole=apply("round", x)))
    return made


_TAPS = {_LINEAR: _linear, _NEAREST: _nearest, _CUBIC: _cubic}
