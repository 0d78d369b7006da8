"""Normalisations: of batches, instances, groups, layers, and of neighbouring channels."""

from __future__ import annotations

import math

from abele.expr import apply
from abele.expr.derivative import arg
from abele.frontends.onnx.registry import NodeCall, op
from abele.network import Value
from abele.network.ops import build
from abele.numerics import ElementType, f32

x, y, z = arg(0), arg(1), arg(2)


@op("BatchNormalization")
def batch_normalization(
    call: NodeCall,
    value: Value,
    scale: Value,
    shift: Value,
    mean: Value,
    variance: Value,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int | None = None,
    is_test: int = 0,
    spatial: int = 1,
    consumed_inputs: tuple[int, ...] = (),
) -> tuple[Value, ...]:
    """Normalisation by running statistics; in training by the batch's own, beside which new running ones come."""
    net = call.net
    trains = bool(training_mode) if call.version >= 14 else call.results > 1 and not is_test
    if not spatial:
        raise call.refuse("has statistics for each element of a sample", remedy="export the model with spatial=1")
    if not trains or call.reader.parts.evaluates:
        factor = build.map_(net, apply("rsqrt", x + float(epsilon)) * y, [variance, scale], f32)
        addend = build.map_(net, y - z * x, [factor, shift, mean], f32)
        wide = (build.reshape(net, v, (v.size, *(1,) * (value.ndim - 2))) for v in (factor, addend))
        made = build.map_(net, x * y + z, [value, *wide], value.dtype)
        return (made,) if call.results == 1 else (made, mean, variance, mean, variance)
    gain, addend = (build.cast(net, v, value.dtype) for v in (scale, shift))
    made, own_mean, inverse = build.norm(net, value, build.BATCH, epsilon, gain, addend)
    keep = x * float(momentum)
    spread = apply("max", 1.0 / (y * y) - float(epsilon), 0.0)
    own_mean, inverse = (build.detach(net, v) for v in (own_mean, inverse))
    new_mean = build.map_(net, keep + y * (1.0 - momentum), [mean, own_mean], mean.dtype)
    new_variance = build.map_(net, keep + spread * (1.0 - momentum), [variance, inverse], variance.dtype)
    if call.reader.parts.training:
        net.root.updates |= {v: new for v, new in ((mean, new_mean), (variance, new_variance)) if v in net.root.buffers}
    own_variance = build.map_(net, apply("max", 1.0 / (x * x) - float(epsilon), 0.0), [inverse], variance.dtype)
    return made, new_mean, new_variance, own_mean, own_variance


@op("InstanceNormalization")
def instance_normalization(
    call: NodeCall,
    value: Value,
    scale: Value,
    shift: Value,
    *,
    epsilon: float = 1e-5,
    consumed_inputs: tuple[int, ...] = (),
) -> Value:
    """Normalisation of each channel of each sample."""
    return build.norm(call.net, value, value.shape[1], epsilon, scale, shift)[0]


@op("GroupNormalization")
def group_normalization(
    call: NodeCall,
    value: Value,
    scale: Value,
    shift: Value,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Value:
    """Normalisation of groups of channels of each sample; gains are one for each channel, or before 21 each group."""
    net, channels = call.net, value.shape[1]
    if channels % num_groups:
        raise call.wrong(f"has {num_groups} groups of {channels} channels")
    if scale.size != channels:
        each = channels // num_groups
        scale, shift = (
            build.reshape(
                net, build.expand(net, build.reshape(net, v, (num_groups, 1)), (num_groups, each)), (channels,)
            )
            for v in (scale, shift)
        )
    return build.norm(net, value, num_groups, epsilon, scale, shift)[0]


@op("LayerNormalization")
def layer_normalization(
    call: NodeCall,
    value: Value,
    scale: Value,
    shift: Value | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Value, ...]:
    """Normalisation over the last dimensions, from an axis on; beside it means and inverse deviations."""
    net, begin = call.net, call.axis(axis, value.ndim)
    width = math.prod(value.shape[begin:])
    rows = build.reshape(net, value, (value.size // max(width, 1), width))
    whole = scale.shape == value.shape[begin:] and (shift is None or shift.shape == value.shape[begin:])
    sides = (None if v is None or not whole else build.reshape(net, v, (width,)) for v in (scale, shift))
    made, mean, inverse = build.norm(net, rows, 1, epsilon, *sides)
    result = build.reshape(net, made, value.shape)
    if not whole:
        result = call.map(x * y, result, scale) if shift is None else call.map(x * y + z, result, scale, shift)
    kept = (*value.shape[:begin], *(1,) * (value.ndim - begin))
    statistics = (build.reshape(net, build.detach(net, v), kept) for v in (mean, inverse))
    return (result, *statistics)


@op("RMSNormalization")
def rms_normalization(
    call: NodeCall, value: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Value:
    """The operand over the root of its mean square over the last dimensions, from an axis on."""
    begin = call.axis(axis, value.ndim)
    dims = list(range(begin, value.ndim))
    wide: ElementType = f32
    squares = build.mean(call.net, call.map(x * x, value, common=wide), dims, keep=True)
    inverse = call.map(apply("rsqrt", x + float(epsilon)), squares)
    return build.map_(call.net, x * y * z, [value, inverse, scale], value.dtype)


@op("LpNormalization")
def lp_normalization(call: NodeCall, value: Value, *, axis: int = -1, p: int = 2) -> Value:
    """The operand over its norm along an axis; zero where that is zero."""
    from abele.expr import select

    dim = call.axis(axis, value.ndim)
    part = call.map(apply("abs", x) if p == 1 else x * x, value)
    total = build.reduce(call.net, part, [dim], keep=True)
    size = total if p == 1 else call.map(apply("sqrt", x), total)
    return call.map(select(y.eq(0.0), 0.0, x / y), value, size)


@op("LRN")
def local_response(
    call: NodeCall, value: Value, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Value:
    """The operand over a power of the mean of squares of neighbouring channels."""
    net, channels = call.net, value.shape[1]
    before, after = (size - 1) // 2, size // 2
    low, high = [0] * value.ndim, [0] * value.ndim
    low[1], high[1] = before, after
    squares = build.pad(net, call.map(x * x, value), low, high)
    parts = [build.slice_(net, squares, 1, n, n + channels) for n in range(size)]
    total = build.total(net, parts) if len(parts) > 1 else parts[0]
    return call.map(x * apply("pow", y * (alpha / size) + bias, -float(beta)), value, total)
