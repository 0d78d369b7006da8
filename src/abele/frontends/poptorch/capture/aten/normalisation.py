"""Layer, group and batch normalisation, out of reductions and maps; their derivatives follow from those."""

from __future__ import annotations

import math
from collections.abc import Sequence

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.kernels.nest.ir import Expr, apply
from abele.numerics import bf16, f16, f32
from abele.parallel import BlockBuilder, Value
from abele.parallel.ops import build


def _statistics(net: BlockBuilder, value: Value, dims: Sequence[int]) -> tuple[Value, Value, Value]:
    """The value minus its mean, the mean, and the biased variance, over ``dims``, which are kept.

    Statistics of 16-bit floats are f32, as in PyTorch and PopLibs: sums of squares leave the range of f16.
    """
    wide = f32 if value.dtype in (f16, bf16) else value.dtype
    centre = build.mean(net, value, dims, keep=True, dtype=wide)
    centred = build.map_(net, arg(0) - arg(1), [value, centre])
    squares = build.map_(net, apply("square", arg(0)), [centred], wide)
    return centred, centre, build.mean(net, squares, dims, keep=True)


def _scaled(
    net: BlockBuilder, centred: Value, variance: Value, eps: float, gain: Value | None, shift: Value | None
) -> Value:
    """centred / √(variance + eps), times the gain, plus the shift, in one map."""
    expression: Expr = arg(0) * apply("rsqrt", arg(1) + float(eps))
    operands = [centred, variance]
    if gain is not None:
        expression = expression * arg(len(operands))
        operands.append(gain)
    if shift is not None:
        expression = expression + arg(len(operands))
        operands.append(shift)
    return build.map_(net, expression, operands, centred.dtype)


@aten("aten.layer_norm")
def layer_norm(
    call: OperatorCall,
    value: Value,
    shape: Sequence[int],
    gain: Value | None = None,
    shift: Value | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Value:
    """Normalisation over the last dimensions."""
    dims = range(value.ndim - len(shape), value.ndim)
    centred, _, variance = _statistics(call.net, value, dims)
    return _scaled(call.net, centred, variance, eps, gain, shift)


@aten("aten.native_layer_norm")
def native_layer_norm(
    call: OperatorCall, value: Value, shape: Sequence[int], gain: Value | None, shift: Value | None, eps: float
) -> tuple[Value]:
    """Normalisation over the last dimensions."""
    return (layer_norm(call, value, shape, gain, shift, eps),)


@aten("aten.group_norm")
def group_norm(
    call: OperatorCall,
    value: Value,
    groups: int,
    gain: Value | None = None,
    shift: Value | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Value:
    """Normalisation over the field and the channels of each group."""
    net = call.net
    split = build.reshape(net, value, (value.shape[0], groups, value.shape[1] // groups, *value.shape[2:]))
    centred, _, variance = _statistics(net, split, range(2, split.ndim))
    per_channel = (groups, value.shape[1] // groups, *(1,) * (value.ndim - 2))
    sides = [None if v is None else build.reshape(net, v, per_channel) for v in (gain, shift)]
    return build.reshape(net, _scaled(net, centred, variance, eps, *sides), value.shape)


def _channels(net: BlockBuilder, value: Value | None, ndim: int) -> Value | None:
    return None if value is None else build.reshape(net, value, (value.size, *(1,) * (ndim - 2)))


def _sides(net: BlockBuilder, value: Value, *sides: Value | None) -> list[Value | None]:
    """Gain and shift beside the channels of ``value``."""
    return [_channels(net, side, value.ndim) for side in sides]


@aten("aten._native_batch_norm_legit_functional")
def batch_norm_training(
    call: OperatorCall,
    value: Value,
    gain: Value | None,
    shift: Value | None,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value | None, ...]:
    """Normalisation by the batch's own statistics; gives the new running statistics as fourth and fifth result."""
    net = call.net
    dims = [0, *range(2, value.ndim)]
    centred, centre, variance = _statistics(net, value, dims)
    result = _scaled(net, centred, variance, eps, *_sides(net, value, gain, shift))
    count = math.prod(value.shape[d] for d in dims)
    unbiased = momentum * count / max(1, count - 1)
    flat = [build.reshape(net, v, running_mean.shape) for v in (centre, variance)]
    keep = arg(0) * (1.0 - momentum)
    new_mean = build.map_(net, keep + arg(1) * float(momentum), [running_mean, flat[0]])
    new_var = build.map_(net, keep + arg(1) * float(unbiased), [running_var, flat[1]])
    return result, None, None, new_mean, new_var


@aten("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(
    call: OperatorCall,
    value: Value,
    gain: Value | None,
    shift: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, None, None]:
    """Normalisation by the batch's own statistics, where none are kept."""
    centred, _, variance = _statistics(call.net, value, [0, *range(2, value.ndim)])
    return _scaled(call.net, centred, variance, eps, *_sides(call.net, value, gain, shift)), None, None


@aten("aten._native_batch_norm_legit_no_training")
def batch_norm_inference(
    call: OperatorCall,
    value: Value,
    gain: Value | None,
    shift: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> tuple[Value | None, ...]:
    """Normalisation by the running statistics."""
    net = call.net
    centre, variance, *sides = (_channels(net, v, value.ndim) for v in (running_mean, running_var, gain, shift))
    assert centre is not None
    assert variance is not None
    centred = build.map_(net, arg(0) - arg(1), [value, centre])
    return _scaled(net, centred, variance, eps, *sides), None, None
