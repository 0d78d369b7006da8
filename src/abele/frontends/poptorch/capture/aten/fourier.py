"""Fourier transforms of real values with real results: products with matrices of cosines and sines.

What enters is real, so the half spectrum that an inverse transform reads has no imaginary part where it enters. Along
all dimensions but the last the transform is a complex one, of which real and imaginary part are two values; the last
one gives real numbers. As a product a transform takes n² steps where a fast one takes n·log n, but on the units that
multiply matrices, in one step over all tiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import ElementType, f32


@dataclass(frozen=True)
class _Complex:
    """A complex value; None for an imaginary part that is zero."""

    real: Value
    imaginary: Value | None = None


@dataclass(frozen=True)
class _Transform:
    """Variant of a transform: its direction and its scale.

    Attributes:
        forward: True for the transform of a spectrum that is given as a signal (``hfft``), with the other sign.
        norm: PyTorch's name of the scale.
    """

    forward: bool
    norm: str | None

    @property
    def sign(self) -> float:
        """Sign of the exponents."""
        return -1.0 if self.forward else 1.0

    def scale(self, extent: int) -> float:
        """Factor of a transform of so many elements."""
        if self.norm == "ortho":
            return 1 / math.sqrt(extent)
        return 1 / extent if (self.norm == "forward") == self.forward else 1.0


def _fitted(net: BlockBuilder, value: Value, dim: int, extent: int) -> Value:
    """The first ``extent`` indices of a dimension, zeros where there are fewer."""
    have = value.shape[dim]
    if have >= extent:
        return build.slice_(net, value, dim, 0, extent)
    low, high = [0] * value.ndim, [0] * value.ndim
    high[dim] = extent - have
    return build.pad(net, value, low, high, fill=0.0)


def _product(net: BlockBuilder, value: Value, dim: int, matrix: np.ndarray) -> Value:
    turned = build.matmul(net, build.transpose(net, value, dim, -1), net.constant(matrix, value.dtype))
    return build.transpose(net, turned, dim, -1)


def _sum(net: BlockBuilder, one: Value | None, other: Value | None, sign: float = 1.0) -> Value | None:
    if one is None or other is None:
        single = other if one is None else one
        return single if one is not None or single is None else build.map_(net, arg(0) * sign, [single])
    return build.map_(net, arg(0) + arg(1) * sign, [one, other])


def _along(net: BlockBuilder, value: _Complex, dim: int, extent: int, transform: _Transform) -> _Complex:
    """The complex transform along one dimension."""
    angles = 2 * np.pi * np.outer(np.arange(extent), np.arange(extent)) / extent
    cosines, sines = (f(angles) * transform.scale(extent) for f in (np.cos, np.sin))
    parts = [None if v is None else _fitted(net, v, dim, extent) for v in (value.real, value.imaginary)]
    by_cosine = [None if v is None else _product(net, v, dim, cosines) for v in parts]
    by_sine = [None if v is None else _product(net, v, dim, sines * transform.sign) for v in parts]
    real = _sum(net, by_cosine[0], by_sine[1], -1.0)
    assert real is not None
    return _Complex(real, _sum(net, by_cosine[1], by_sine[0]))


def _to_real(net: BlockBuilder, value: _Complex, dim: int, extent: int, transform: _Transform) -> Value:
    """The real signal of half a spectrum along the last transformed dimension."""
    half = extent // 2 + 1
    angles = 2 * np.pi * np.outer(np.arange(half), np.arange(extent)) / extent
    # All but the first and, of an even number, the last stand for themselves and their mirror image.
    weights = np.full((half, 1), 2.0)
    weights[0] = 1.0
    if extent % 2 == 0:
        weights[-1] = 1.0
    cosines, sines = (f(angles) * weights * transform.scale(extent) for f in (np.cos, np.sin))
    real = _product(net, _fitted(net, value.real, dim, half), dim, cosines)
    if value.imaginary is None:
        return real
    imaginary = _product(net, _fitted(net, value.imaginary, dim, half), dim, sines)
    return build.map_(net, arg(0) - arg(1) * transform.sign, [real, imaginary])


def _transformed(
    call: OperatorCall, value: Value, sizes: Sequence[int] | None, dims: Sequence[int] | None, transform: _Transform
) -> Value:
    net, dtype = call.net, _computed(call.dtype)
    if dims is None:
        dims = range(value.ndim) if sizes is None else range(value.ndim - len(sizes), value.ndim)
    places = [d % value.ndim for d in dims]
    last = 2 * (value.shape[places[-1]] - 1)
    extents = [value.shape[d] for d in places[:-1]] + [last] if sizes is None else list(sizes)
    extents = [
        (last if place == places[-1] else value.shape[place]) if extent == -1 else extent
        for place, extent in zip(places, extents, strict=True)
    ]
    found = _Complex(build.cast(net, value, dtype))
    for place, extent in zip(places[:-1], extents[:-1], strict=True):
        found = _along(net, found, place, extent, transform)
    return build.cast(net, _to_real(net, found, places[-1], extents[-1], transform), call.dtype)


def _computed(dtype: ElementType) -> ElementType:
    return dtype if dtype.is_float else f32


def _register(name: str, *, forward: bool) -> None:
    @aten(f"aten.fft_{name}")
    def along_one(
        call: OperatorCall, value: Value, n: int | None = None, dim: int = -1, norm: str | None = None
    ) -> Value:
        return _transformed(call, value, None if n is None else [n], [dim], _Transform(forward, norm))

    @aten(f"aten.fft_{name}2")
    def along_two(
        call: OperatorCall,
        value: Value,
        s: Sequence[int] | None = None,
        dim: Sequence[int] = (-2, -1),
        norm: str | None = None,
    ) -> Value:
        return _transformed(call, value, s, dim, _Transform(forward, norm))

    @aten(f"aten.fft_{name}n")
    def along_some(
        call: OperatorCall,
        value: Value,
        s: Sequence[int] | None = None,
        dim: Sequence[int] | None = None,
        norm: str | None = None,
    ) -> Value:
        return _transformed(call, value, s, dim, _Transform(forward, norm))


_register("irfft", forward=False)
_register("hfft", forward=True)
