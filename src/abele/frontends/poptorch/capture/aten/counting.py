"""Counts and places: histograms, one-hot codes, places of elements other than zero, repeated entries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.kernels.nest.ir import Const, apply, select
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops.along import take
from abele.numerics import f32, i32

x, y, z = arg(0), arg(1), arg(2)


@aten("aten.one_hot")
def one_hot(call: OperatorCall, index: Value, num_classes: int = -1) -> Value:
    """A one at each index, zeros beside it."""
    net, classes = call.net, call.shape[-1]
    net.bound(index, classes, "class")
    places = build.positions(net, (1,) * index.ndim + (classes,), index.ndim)
    numbers = build.reshape(net, build.cast(net, index, i32), (*index.shape, 1))
    return build.map_(net, select(x.eq(y), Const(1, i32), Const(0, i32)), [numbers, places], i32)


@aten("aten.bincount")
def bincount(call: OperatorCall, value: Value, weights: Value | None = None, minlength: int = 0) -> Value:
    """Count of each number below ``minlength``, or its sum of weights; larger numbers are refused."""
    net = call.net
    if not minlength:
        raise call.refuse(
            "has a result whose size depends on the values of a tensor",
            "give minlength, larger than every number that there is",
        )
    net.bound(value, minlength, "number")
    dtype = f32 if weights is None else call.dtype
    rows = build.full(net, 1.0, (value.size, 1), dtype) if weights is None else call.operand(weights, dtype)
    counts = build.sum_rows(net, build.reshape(net, rows, (value.size, 1)), build.cast(net, value, i32), minlength)
    return build.cast(net, build.reshape(net, counts, (minlength,)), call.dtype)


@aten("aten.histc")
def histc(call: OperatorCall, value: Value, bins: int = 100, min: float = 0, max: float = 0) -> Value:
    """Count of elements in each of ``bins`` equal parts of a range, by default that of the elements."""
    net = call.net
    flat = build.detach(net, call.operand(build.reshape(net, value, (value.size,)), f32))
    if min == max:
        ends = _extremes(net, flat)
        # A range of nothing is widened by one to either side.
        same = x.eq(y)
        low = build.map_(net, select(same, x - 1.0, x), ends)
        high = build.map_(net, select(same, y + 1.0, y), ends)
        if min:
            low, high = build.full(net, min - 1.0, (), f32), build.full(net, max + 1.0, (), f32)
    else:
        low, high = build.full(net, float(min), (), f32), build.full(net, float(max), (), f32)
    part = apply("floor", (x - y) * float(bins) / (z - y))
    inside = apply("and", x >= y, x <= z)
    # The upper end belongs to the last part. What lies outside has a number that no part has.
    number = select(inside, apply("min", part, bins - 1.0), -1.0)
    numbers = build.cast(net, build.map_(net, number, [flat, low, high]), i32)
    counts = build.sum_rows(net, build.full(net, 1.0, (value.size, 1), f32), numbers, bins)
    return build.cast(net, build.reshape(net, counts, (bins,)), call.dtype)


@aten("aten.histogram.bin_ct")
def histogram(
    call: OperatorCall,
    value: Value,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
) -> tuple[Value, Value]:
    """Counts, or sums of weights, in equal parts of a range, by default that of the elements; and the parts' ends."""
    net = call.net
    given = None if range is None else [build.full(net, float(v), (), f32) for v in range]
    low, high = _ends(net, given or _extremes(net, _flat(net, value)))
    # From both ends, as PyTorch counts, so that each is met exactly.
    number = net.constant(np.arange(bins + 1), f32, "ends")
    step = (y - x) * (1.0 / bins)
    edges = build.map_(net, select(z < 0.5 * (bins + 1), x + step * z, y - step * (bins - z)), [low, high, number])
    return _counted(call, value, edges, weight, density=density)


@aten("aten.histogram.bins_tensor")
def histogram_of_parts(
    call: OperatorCall, value: Value, bins: Value, *, weight: Value | None = None, density: bool = False
) -> tuple[Value, Value]:
    """Counts, or sums of weights, between ordered numbers; and these."""
    return _counted(call, value, build.cast(call.net, bins, f32), weight, density=density)


def _flat(net: BlockBuilder, value: Value) -> Value:
    return build.detach(net, build.cast(net, build.reshape(net, value, (value.size,)), f32))


def _extremes(net: BlockBuilder, flat: Value) -> list[Value]:
    return [build.reduce(net, flat, [0], way) for way in ("min", "max")]


def _ends(net: BlockBuilder, ends: Sequence[Value]) -> tuple[Value, Value]:
    """A range; where it is nothing, half of one to either side."""
    same = x.eq(y)
    return build.map_(net, select(same, x - 0.5, x), ends), build.map_(net, select(same, y + 0.5, y), ends)


def _counted(
    call: OperatorCall, value: Value, edges: Value, weight: Value | None, *, density: bool
) -> tuple[Value, Value]:
    net, bins = call.net, edges.size - 1
    flat, row = _flat(net, value), build.reshape(net, edges, (1, edges.size))
    above = build.search(net, row, build.reshape(net, flat, (1, flat.size)), right=True)
    places = build.reshape(net, above, (flat.size,))
    low, high = build.slice_(net, edges, 0, 0, 1), build.slice_(net, edges, 0, bins, bins + 1)
    inside = apply("and", x >= z, x <= arg(3))
    # The upper end belongs to the last part. What lies outside has a number that no part has.
    numbers = build.map_(net, select(inside, apply("min", y - 1, bins - 1), -1), [flat, places, low, high], i32)
    shares = build.full(net, 1.0, (flat.size, 1), f32)
    if weight is not None:
        shares = build.reshape(net, _flat(net, weight), shares.shape)
    counts = build.reshape(net, build.sum_rows(net, shares, numbers, bins), (bins,))
    if density:
        total = build.reduce(net, counts, [0])
        widths = [build.slice_(net, edges, 0, 1, bins + 1), build.slice_(net, edges, 0, 0, bins)]
        counts = build.map_(net, x / (y * (z - arg(3))), [counts, total, *widths])
    return build.cast(net, counts, call.dtype), build.cast(net, edges, call.dtype)


@aten("aten.nonzero_static")
def nonzero_static(call: OperatorCall, value: Value, *, size: int, fill_value: int = -1) -> Value:
    """The indices of the first ``size`` elements that are not zero, [size, rank]."""
    net = call.net
    flat = build.reshape(net, value, (value.size,))
    is_there = build.map_(net, select(x.ne(0), Const(1, i32), Const(0, i32)), [flat], i32)
    # Each takes its place in order; the others, and those too many, take one that does not exist.
    place = build.map_(net, select(x.ne(0), y - 1, -1), [is_there, build.scan(net, is_there, 0)], i32)
    columns = np.stack(np.unravel_index(np.arange(value.size), value.shape), axis=1) if value.ndim else None
    if columns is None:
        return build.full(net, fill_value, (size, 0), i32)
    table = build.full(net, fill_value, (size, value.ndim), i32)
    return build.update_rows(net, table, net.constant(columns, i32), place)


@aten("aten.repeat_interleave.self_int")
def repeat_interleave(
    call: OperatorCall, value: Value, repeats: int, dim: int | None = None, *, output_size: int | None = None
) -> Value:
    """Every index of ``dim`` several times in a row."""
    net = call.net
    if dim is None or not value.ndim:
        value, dim = build.reshape(net, value, (value.size,)), 0
    dim %= value.ndim
    before, after = value.shape[: dim + 1], value.shape[dim + 1 :]
    apart = build.reshape(net, value, (*before, 1, *after))
    return build.reshape(net, build.expand(net, apart, (*before, repeats, *after)), call.shape)


@aten("aten.repeat_interleave.self_Tensor")
def repeat_interleave_by(
    call: OperatorCall, value: Value, repeats: Value, dim: int | None = None, *, output_size: int | None = None
) -> Value:
    """Every index of ``dim`` as often as ``repeats`` says; how many that makes in all has to be known.

    Where each repetition comes from is the number of indices that have ended before it: a running sum of ends.
    """
    net = call.net
    if dim is None or not value.ndim:
        value, dim = build.reshape(net, value, (value.size,)), 0
    dim %= value.ndim
    extent, known = value.shape[dim], net.contents(repeats)
    if known is not None:
        counts = np.broadcast_to(known.reshape(-1), (extent,)).astype(np.int64)
        return take(net, value, net.constant(np.repeat(np.arange(extent), counts), i32), dim)
    if output_size is None:
        raise call.refuse(
            "with counts that the device computes has a result whose shape depends on values", "give output_size"
        )
    times = build.expand(net, build.cast(net, build.reshape(net, repeats, (repeats.size,)), i32), (extent,))
    ends = build.scan(net, times, 0)
    ones = build.full(net, 1, (extent, 1), i32)
    ended = build.reshape(net, build.sum_rows(net, ones, ends, output_size), (output_size,))
    return take(net, value, build.scan(net, ended, 0), dim)
