"""Layer, group and batch normalisation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture import torch_export
from abele.frontends.poptorch.capture.registry import OperatorCall, aten, element_type
from abele.kernels.nest.ir import apply
from abele.network import Value
from abele.network.ops import build
from abele.numerics import f32

_REPLICAS: ContextVar[int] = ContextVar("abele_norm_replicas", default=1)


@contextmanager
def norms_over(replicas: int) -> Iterator[None]:
    """Let batch norms that are read inside take their statistics over the samples of consecutive replicas."""
    token = _REPLICAS.set(replicas)
    try:
        yield
    finally:
        _REPLICAS.reset(token)


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
    return _over_last(call, value, shape, gain, shift, eps)[0]


def _over_last(
    call: OperatorCall, value: Value, shape: Sequence[int], gain: Value | None, shift: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    """The normalised value, and a mean and an inverse deviation of each row."""
    net, width = call.net, math.prod(shape)
    rows = build.reshape(net, value, (value.size // max(width, 1), width))
    sides = (None if v is None else build.reshape(net, v, (width,)) for v in (gain, shift))
    made, mean, inverse = build.norm(net, rows, 1, eps, *sides)
    return build.reshape(net, made, value.shape), mean, inverse


@aten("aten.native_layer_norm")
def native_layer_norm(
    call: OperatorCall, value: Value, shape: Sequence[int], gain: Value | None, shift: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    """Normalisation over the last dimensions, with means and inverse deviations, which have no gradients."""
    made, *statistics = _over_last(call, value, shape, gain, shift, eps)
    kept = (*value.shape[: value.ndim - len(shape)], *(1,) * len(shape))
    mean, inverse = _shown(call, *statistics)
    return made, build.reshape(call.net, mean, kept), build.reshape(call.net, inverse, kept)


def _shown(call: OperatorCall, mean: Value, inverse: Value) -> tuple[Value, Value]:
    """Statistics as second and third result: in the types that these have, without gradients."""
    types = (element_type(part.dtype) for part in torch_export.fake(call.node)[1:3])
    mean, inverse = (build.cast(call.net, build.detach(call.net, v), next(types)) for v in (mean, inverse))
    return mean, inverse


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
    return build.norm(call.net, value, groups, eps, gain, shift)[0]


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
    replicas = _REPLICAS.get()
    result, mean, inverse = build.norm(net, value, build.BATCH, eps, gain, shift, replicas=replicas)
    count = replicas * value.size // max(value.shape[1], 1)
    unbiased = momentum * count / max(1, count - 1)
    # Rounding may leave a little less than no variance at all.
    variance = apply("max", 1.0 / (arg(1) * arg(1)) - float(eps), 0.0)
    keep = arg(0) * (1.0 - momentum)
    mean, inverse = (build.detach(net, v) for v in (mean, inverse))
    new_mean = build.map_(net, keep + arg(1) * float(momentum), [running_mean, mean])
    new_var = build.map_(net, keep + variance * float(unbiased), [running_var, inverse])
    return result, *_shown(call, mean, inverse), new_mean, new_var


@aten("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(
    call: OperatorCall,
    value: Value,
    gain: Value | None,
    shift: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, Value, Value]:
    """Normalisation by the batch's own statistics, where none are kept."""
    made, mean, inverse = build.norm(call.net, value, build.BATCH, eps, gain, shift, replicas=_REPLICAS.get())
    return made, *_shown(call, mean, inverse)


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
    # One factor and one addend per channel, so that the activations are gone over once.
    factor = build.map_(net, apply("rsqrt", arg(0) + float(eps)), [running_var], f32)
    if gain is not None:
        factor = build.map_(net, arg(0) * arg(1), [factor, gain])
    centre = -arg(0) * arg(1)
    addend = (
        build.map_(net, centre, [factor, running_mean])
        if shift is None
        else build.map_(net, centre + arg(2), [factor, running_mean, shift])
    )
    wide = (build.reshape(net, v, (v.size, *(1,) * (value.ndim - 2))) for v in (factor, addend))
    return build.map_(net, arg(0) * arg(1) + arg(2), [value, *wide], value.dtype), None, None
