"""Numbers that are drawn anew in each run."""

from __future__ import annotations

import numpy as np

from abele.expr import apply
from abele.expr.derivative import arg
from abele.frontends.onnx.registry import Item, NodeCall, op
from abele.frontends.onnx.types import device_type, element_type
from abele.network import Value
from abele.network.ops import build
from abele.numerics import ElementType, f32, i32

x, y = arg(0), arg(1)

Extents = tuple[int, ...]


def _kind(dtype: int | None, like: Item | None = None) -> ElementType:
    if dtype is not None:
        return element_type(dtype)
    return device_type(like.dtype) if like is not None else f32


def _normal(call: NodeCall, shape: Extents, kind: ElementType, mean: float, scale: float) -> Value:
    return call.map(x * scale + mean, build.normal(call.net, shape), common=f32, dtype=kind)


def _uniform(call: NodeCall, shape: Extents, kind: ElementType, low: float, high: float) -> Value:
    return call.map(x * (high - low) + low, build.uniform(call.net, shape), common=f32, dtype=kind)


@op("RandomNormal")
def random_normal(
    call: NodeCall,
    *,
    shape: Extents,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Value:
    """Normal numbers; a seed in the model has no meaning here, where the session has one."""
    return _normal(call, tuple(shape), _kind(dtype), mean, scale)


@op("RandomNormalLike")
def random_normal_like(
    call: NodeCall,
    like: Item,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Value:
    """Normal numbers in the shape of a tensor."""
    return _normal(call, like.shape, _kind(dtype, like), mean, scale)


@op("RandomUniform")
def random_uniform(
    call: NodeCall,
    *,
    shape: Extents,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> Value:
    """Even numbers between two ends."""
    return _uniform(call, tuple(shape), _kind(dtype), low, high)


@op("RandomUniformLike")
def random_uniform_like(
    call: NodeCall,
    like: Item,
    *,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> Value:
    """Even numbers in the shape of a tensor."""
    return _uniform(call, like.shape, _kind(dtype, like), low, high)


@op("Bernoulli")
def bernoulli(call: NodeCall, value: Item, *, dtype: int | None = None, seed: float | None = None) -> Value:
    """One with the probability that the operand says, zero otherwise."""
    draws = build.uniform(call.net, value.shape)
    hit = call.map(apply("select", x < y, 1.0, 0.0), draws, call.reader.value(value), common=f32)
    return build.cast(call.net, hit, _kind(dtype, value))


@op("Multinomial")
def multinomial(
    call: NodeCall, value: Value, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None
) -> Value:
    """Classes drawn by their logarithmic weights: the largest of these and noise of Gumbel's."""
    net, (batch, classes) = call.net, value.shape
    noise = build.uniform(net, (batch, sample_size, classes))
    scores = build.reshape(net, build.cast(net, value, f32), (batch, 1, classes))
    noisy = call.map(y - apply("log", -apply("log", apply("max", x, 1e-30))), noise, scores)
    best = build.reduce(net, noisy, [2], "max", keep=True)
    numbers = net.constant(np.arange(classes), i32)
    at = build.map_(net, apply("select", x.eq(y), arg(2), classes), [noisy, best, numbers], i32)
    return build.cast(net, build.reduce(net, at, [2], "min"), element_type(dtype))
