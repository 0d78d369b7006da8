"""Pooling over windows."""

from __future__ import annotations

import math

import numpy as np

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture import torch_export
from abele.frontends.poptorch.capture.aten.convolution import Extents, per_dim
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.kernels.nest.ir import Const, apply, select
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops.windows import Taps, adaptive_taps, adaptive_windows, best_of_windows, regular_taps
from abele.numerics import f32, i32
from abele.poplibs.popnn.pool_params import PoolKind, PoolParams


def _rank(call: OperatorCall) -> int:
    """Field dimensions of the operator, by its name."""
    name = torch_export.op_name(call.node)
    return int(name[name.index("d", name.index("pool")) - 1])


def _steps(window: Extents, stride: Extents, rank: int) -> tuple[int, ...]:
    """The stride, which is that of the window where it is left out."""
    return per_dim(stride, rank) if stride not in ((), []) else per_dim(window, rank)


def _pool(
    call: OperatorCall, function: PoolKind, x: Value, window: Extents, stride: Extents, padding: Extents
) -> Value:
    rank = _rank(call)
    kernel, steps, lower = per_dim(window, rank), _steps(window, stride, rank), per_dim(padding, rank)
    # Rounding the number of windows up shows as more results than fit: the rest is padding after the last element.
    upper = tuple(
        max(low, (n - 1) * s + k - extent - low)
        for n, s, k, extent, low in zip(call.shape[-rank:], steps, kernel, x.shape[-rank:], lower, strict=True)
    )
    return _pooled(call, function, x, kernel=kernel, stride=steps, lower=lower, upper=upper)


def _pooled(
    call: OperatorCall,
    function: PoolKind,
    x: Value,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    lower: tuple[int, ...],
    upper: tuple[int, ...],
) -> Value:
    """Pooling of [batch, channels, *field]; a missing batch dimension is one sample."""
    samples = x if x.ndim == len(kernel) + 2 else build.reshape(call.net, x, (1, *x.shape))
    batch, channels, *field = samples.shape
    pooling = PoolParams(
        kind=function,
        field=tuple(field),
        kernel=kernel,
        stride=stride,
        padding_lower=lower,
        padding_upper=upper,
        channels=channels,
        batch=batch,
        ties="first" if function == "max" else "all",
    )
    return build.reshape(call.net, build.pool(call.net, samples, pooling), call.shape)


@aten("aten.max_pool1d", "aten.max_pool2d", "aten.max_pool3d")
def max_pool(
    call: OperatorCall,
    x: Value,
    kernel: Extents,
    stride: Extents = (),
    padding: Extents = 0,
    dilation: Extents = 1,
    ceil_mode: bool = False,
) -> Value:
    """The maximum of every window."""
    return _largest(call, x, kernel, stride=stride, padding=padding, dilation=dilation)


@aten("aten.max_pool1d_with_indices", "aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices")
def max_pool_with_indices(
    call: OperatorCall,
    x: Value,
    kernel: Extents,
    stride: Extents = (),
    padding: Extents = 0,
    dilation: Extents = 1,
    ceil_mode: bool = False,
) -> tuple[Value, Value]:
    """The maximum of every window, and where it is in the field."""
    largest = _largest(call, x, kernel, stride=stride, padding=padding, dilation=dilation)
    taps = _regular_taps(call, kernel, stride=stride, padding=padding, dilation=dilation)
    return largest, best_of_windows(call.net, build.detach(call.net, x), taps)[1]


def _regular_taps(
    call: OperatorCall, kernel: Extents, *, stride: Extents, padding: Extents, dilation: Extents
) -> list[Taps]:
    rank = _rank(call)
    steps = (per_dim(kernel, rank), _steps(kernel, stride, rank), per_dim(dilation, rank), per_dim(padding, rank))
    return [regular_taps(n, *along) for n, *along in zip(call.shape[-rank:], *steps, strict=True)]


def _largest(
    call: OperatorCall, x: Value, kernel: Extents, *, stride: Extents, padding: Extents, dilation: Extents
) -> Value:
    if x.dtype.is_float and all(d == 1 for d in per_dim(dilation, _rank(call))):
        return _pool(call, "max", x, kernel, stride, padding)
    taps = _regular_taps(call, kernel, stride=stride, padding=padding, dilation=dilation)
    return best_of_windows(call.net, x, taps)[0]


@aten("aten.adaptive_max_pool1d", "aten.adaptive_max_pool2d", "aten.adaptive_max_pool3d")
def adaptive_max_pool(call: OperatorCall, x: Value, output_size: Extents) -> tuple[Value, Value]:
    """The maximum of windows that cover the field, and where it is in it."""
    rank = _rank(call)
    field, size = x.shape[-rank:], call.shape[-rank:]
    taps = [adaptive_taps(n, k) for n, k in zip(field, size, strict=True)]
    best, places = best_of_windows(call.net, x, taps)
    if all(n % k == 0 for n, k in zip(field, size, strict=True)):
        best = _tiled(call, "max", x, rank)
    return best, places


@aten("aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d")
def avg_pool(
    call: OperatorCall,
    x: Value,
    kernel: Extents,
    stride: Extents = (),
    padding: Extents = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    """The average of every window."""
    rank = _rank(call)
    around, window, steps = per_dim(padding, rank), per_dim(kernel, rank), _steps(kernel, stride, rank)
    if divisor_override is None and not (any(around) and count_include_pad):
        return _pool(call, "avg", x, kernel, stride, padding)
    total = _pool(call, "sum", x, kernel, stride, padding)
    if divisor_override is not None:
        return build.map_(call.net, arg(0) * Const(1 / divisor_override), [total])
    # Padding counts, but not what is beyond it, where the number of windows is rounded up.
    counts = np.ones(())
    for n, extent, k, s, p in zip(call.shape[-rank:], x.shape[-rank:], window, steps, around, strict=True):
        begins = np.arange(n) * s - p
        counts = counts[..., None] * (np.minimum(begins + k, extent + p) - begins)
    if (counts == counts.flat[0]).all():
        return build.map_(call.net, arg(0) * Const(1 / float(counts.flat[0])), [total])
    # Counts are exact in the type of the elements, their reciprocals are not.
    return build.map_(call.net, arg(0) / arg(1), [total, call.net.constant(counts, x.dtype, "counts")])


@aten(
    "aten.adaptive_avg_pool1d",
    "aten.adaptive_avg_pool2d",
    "aten.adaptive_avg_pool3d",
    "aten._adaptive_avg_pool2d",
    "aten._adaptive_avg_pool3d",
)
def adaptive_avg_pool(call: OperatorCall, x: Value, output_size: Extents) -> Value:
    """Averages over windows that cover the field; where they do not divide it, a product for each dimension."""
    rank = _rank(call)
    field, size = x.shape[-rank:], call.shape[-rank:]
    if all(n % k == 0 for n, k in zip(field, size, strict=True)):
        return _tiled(call, "avg", x, rank)
    for dim, outputs in enumerate(size, x.ndim - rank):
        inside = [range(*ends) for ends in adaptive_windows(x.shape[dim], outputs)]
        shares = [[(n in window) / len(window) for n in range(x.shape[dim])] for window in inside]
        x = build.resample(call.net, x, dim, np.array(shares))
    return x


def _tiled(call: OperatorCall, function: PoolKind, x: Value, rank: int) -> Value:
    """Pooling over windows that tile the field."""
    window = tuple(n // k for n, k in zip(x.shape[-rank:], call.shape[-rank:], strict=True))
    return _pooled(call, function, x, kernel=window, stride=window, lower=(0,) * rank, upper=(0,) * rank)


@aten("aten.fractional_max_pool2d", "aten.fractional_max_pool3d")
def fractional_max_pool(
    call: OperatorCall, x: Value, kernel: Extents, output_size: Extents, samples: Value
) -> tuple[Value, Value]:
    """The maximum of windows that begin where random numbers of each sample and channel say, and where it is."""
    net, rank = call.net, _rank(call)
    field, size, window = x.shape[-rank:], call.shape[-rank:], per_dim(kernel, rank)
    planes = x.size // math.prod(field)
    # There may be numbers of more samples than the one of an input without a batch dimension.
    flat = build.slice_(net, build.reshape(net, samples, (samples.size // rank, rank)), 0, 0, planes)
    starts = []
    for dim in range(rank):
        # Two dimensions have their numbers in reverse.
        number = rank - 1 - dim if rank == 2 else dim
        share = build.slice_(net, flat, 1, number, number + 1)
        starts.append(_random_starts(net, share, field[dim], size[dim], window[dim]))
    # The place of each element of each window, [planes, *size, *window].
    place: Value | None = None
    for dim, begin in enumerate(starts):
        extents = [1] * (2 * rank + 1)
        extents[0], extents[1 + dim] = begin.shape
        inside = [1] * (2 * rank + 1)
        inside[1 + rank + dim] = window[dim]
        taps = net.constant(np.arange(window[dim]).reshape(inside), i32, "taps")
        along = build.map_(net, arg(0) + arg(1), [build.reshape(net, begin, extents), taps])
        scale = math.prod(field[dim + 1 :])
        scaled = build.map_(net, arg(0) * Const(scale, i32), [along])
        place = scaled if place is None else build.map_(net, arg(0) + arg(1), [place, scaled])
    assert place is not None
    shape = (planes, math.prod(size), math.prod(window))
    place = build.reshape(net, place, shape)
    plane = net.constant(np.arange(planes).reshape(planes, 1, 1) * math.prod(field), i32, "planes")
    rows = build.look_up(net, build.reshape(net, x, (x.size, 1)), build.map_(net, arg(0) + arg(1), [place, plane]))
    found = build.reshape(net, rows, shape)
    best, where = (build.slice_(net, v, 2, 0, 1) for v in (found, place))
    for tap in range(1, shape[2]):
        one, at = (build.slice_(net, v, 2, tap, tap + 1) for v in (found, place))
        better = apply("or", arg(0) > arg(1), arg(0).ne(arg(0)))  # a NaN is the maximum, as in PyTorch
        where = build.map_(net, select(better, arg(2), arg(3)), [one, best, at, where], i32)
        best = build.map_(net, select(better, arg(0), arg(1)), [one, best])
    return build.reshape(net, best, call.shape), build.reshape(net, where, call.shape)


def _random_starts(net: BlockBuilder, share: Value, extent: int, outputs: int, window: int) -> Value:
    """First elements of windows, i32[planes, outputs], for a random number of each plane, [planes, 1]."""
    if outputs == 1:
        return net.constant(np.full((share.shape[0], 1), extent - window), i32)
    apart = (extent - window) / (outputs - 1)
    number, random = arg(1), arg(0)
    begin = apply("trunc", (number + random) * apart) - apply("trunc", random * apart)
    # The last window ends where the field does.
    begin = select(number.eq(float(outputs - 1)), float(extent - window), begin)
    numbers = net.constant(np.arange(outputs).reshape(1, outputs), f32, "windows")
    made = build.map_(net, begin, [build.cast(net, build.detach(net, share), f32), numbers], f32)
    return build.cast(net, made, i32)
