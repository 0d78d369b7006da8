"""Pooling over windows."""

from __future__ import annotations

import math

import numpy as np

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture import torch_export
from abele.frontends.poptorch.capture.aten.convolution import Extents, per_dim
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.kernels.nest.ir import Const
from abele.parallel import Value
from abele.parallel.ops import build
from abele.poplibs.popnn.pool_params import PoolKind, PoolParams


def _rank(call: OperatorCall) -> int:
    """Field dimensions of the operator, by its name."""
    return int(torch_export.op_name(call.node)[-2])


def _pool(
    call: OperatorCall, function: PoolKind, x: Value, window: Extents, stride: Extents, padding: Extents
) -> Value:
    rank = _rank(call)
    kernel = per_dim(window, rank)
    steps = per_dim(stride, rank) if stride not in ((), []) else kernel
    lower = per_dim(padding, rank)
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
    if any(d != 1 for d in ([dilation] if isinstance(dilation, int) else dilation)):
        raise call.refuse("with dilation has no lowering")
    return _pool(call, "max", x, kernel, stride, padding)


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
    padded = any(p for p in ([padding] if isinstance(padding, int) else padding))
    if divisor_override is None and not (padded and count_include_pad):
        return _pool(call, "avg", x, kernel, stride, padding)
    if ceil_mode:
        raise call.refuse("with ceil_mode and counted padding has no lowering")
    total = _pool(call, "sum", x, kernel, stride, padding)
    divisor = divisor_override or math.prod(per_dim(kernel, _rank(call)))
    return build.map_(call.net, arg(0) * Const(1 / divisor), [total])


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
        window = tuple(n // k for n, k in zip(field, size, strict=True))
        return _pooled(call, "avg", x, kernel=window, stride=window, lower=(0,) * len(size), upper=(0,) * len(size))
    for dim, outputs in enumerate(size, x.ndim - rank):
        inside = [range(*ends) for ends in _adaptive_windows(x.shape[dim], outputs)]
        shares = [[(n in window) / len(window) for n in range(x.shape[dim])] for window in inside]
        x = build.resample(call.net, x, dim, np.array(shares))
    return x


def _adaptive_windows(inputs: int, outputs: int) -> list[tuple[int, int]]:
    """Begin and end of each window of an adaptive pooling; neighbours may overlap."""
    return [(o * inputs // outputs, -(-(o + 1) * inputs // outputs)) for o in range(outputs)]
