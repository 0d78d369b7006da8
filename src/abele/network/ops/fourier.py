"""Fourier transforms as products of matrices, by parts.

A transform of n elements is a product with n² cosines and sines. Of a composite n = n₁·n₂ it is taken in two stages, as
Cooley and Tukey did: with j = j₁·n₂ + j₂ and k = k₁ + n₁·k₂,

    X[k] = Σ_j₂ w₂^(j₂·k₂) · w^(j₂·k₁) · Σ_j₁ w₁^(j₁·k₁) · x[j],     w = exp(±2πi/n), w₁ = w^n₂, w₂ = w^n₁,

transforms of n₁, a factor for each element, and transforms of n₂, each split again where that pays. 4096 elements are
two stages of 64, with 2 · 64 · 4096 multiplications in place of 4096². Matrix units do each stage in one step over all
tiles, so that stages of two elements, as fast transforms on other machines have, would take longer.

A complex value is two real ones. Real and imaginary part go into one product, side by side:
``[x_r x_i] · [[C, S], [−S, C]]``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from abele.arrays import Array
from abele.expr.derivative import arg
from abele.network.ir import BlockBuilder, Value
from abele.network.ops.elementwise import map_
from abele.network.ops.linear import matmul
from abele.network.ops.views import concat, pad, permute, reshape, slice_

LARGEST_STAGE = 64
"""Elements up to which a transform is one product."""


@dataclass(frozen=True)
class Complex:
    """A complex value; None for an imaginary part that is zero."""

    real: Value
    imaginary: Value | None = None

    @property
    def parts(self) -> list[Value]:
        """One or two values."""
        return [self.real] if self.imaginary is None else [self.real, self.imaginary]


@dataclass(frozen=True)
class Transform:
    """A transform along one dimension.

    Attributes:
        extent: Number of elements.
        sign: Sign of the exponents, −1.0 or 1.0.
        scale: Factor of the result.
    """

    extent: int
    sign: float = -1.0
    scale: float = 1.0


def transformed(
    net: BlockBuilder, value: Complex, dim: int, transform: Transform, outputs: int | None = None
) -> Complex:
    """The transform along a dimension.

    Args:
        net: The network to extend.
        value: Indices beyond the transform's extent are left out; missing ones are zero.
        dim: The dimension.
        transform: Extent, direction and scale.
        outputs: Frequencies from zero on that are wanted; by default all. ``extent // 2 + 1`` are the half that says
            all of a real signal.
    """
    made = _along(net, value, dim, transform, outputs or transform.extent, real=False)
    assert made.imaginary is not None
    return made


def to_real(net: BlockBuilder, value: Complex, dim: int, transform: Transform) -> Value:
    """The real signal of half a spectrum along a dimension, the first ``extent // 2 + 1`` frequencies.

    All but the first and, of an even number, the last stand for themselves and their mirror image, which adds the same
    real part again. Imaginary parts of these two are not read.
    """
    extent, half = transform.extent, transform.extent // 2 + 1
    weights = np.full(half, 2.0)
    weights[0] = 1.0
    if extent % 2 == 0:
        weights[-1] = 1.0
    if half <= 2 and (weights == 1.0).all():
        weighted = Complex(*(_first(net, v, dim, half) for v in value.parts))
    else:
        shape = tuple(half if d == dim % value.real.ndim else 1 for d in range(value.real.ndim))
        factors = net.constant(weights.reshape(shape), value.real.dtype, "weights")
        weighted = Complex(*(map_(net, arg(0) * arg(1), [_first(net, v, dim, half), factors]) for v in value.parts))
    return _along(net, weighted, dim, transform, extent, real=True).real


def _first(net: BlockBuilder, value: Value, dim: int, count: int) -> Value:
    """So many indices of a dimension, zeros where there are fewer."""
    dim %= value.ndim
    have = value.shape[dim]
    if have >= count:
        return slice_(net, value, dim, 0, count)
    low, high = [0] * value.ndim, [0] * value.ndim
    high[dim] = count - have
    return pad(net, value, low, high, fill=0.0)


def _along(net: BlockBuilder, value: Complex, dim: int, transform: Transform, outputs: int, *, real: bool) -> Complex:
    dim %= value.real.ndim
    order = [d for d in range(value.real.ndim) if d != dim] + [dim]
    back = sorted(range(len(order)), key=order.__getitem__)
    inputs = min(value.real.shape[dim], transform.extent)
    outer = [value.real.shape[d] for d in order[:-1]]
    rows = [
        reshape(net, permute(net, slice_(net, v, dim, 0, inputs), order), (math.prod(outer), inputs))
        for v in value.parts
    ]
    made = _rows(net, rows, transform, outputs, real=real)
    return Complex(*(permute(net, reshape(net, v, (*outer, outputs)), back) for v in made))


def _rows(net: BlockBuilder, parts: list[Value], transform: Transform, outputs: int, *, real: bool) -> list[Value]:
    """Transforms of rows [r, inputs], real and imaginary part: [r, outputs] each, or the real part alone."""
    rows, inputs = parts[0].shape
    first = _factor(transform.extent)
    if first == 1 or inputs * outputs <= LARGEST_STAGE**2:
        matrix = _matrix(transform, inputs, outputs, of_real=len(parts) == 1, real=real)
        product = matmul(net, concat(net, parts, 1), net.constant(matrix, parts[0].dtype, "frequencies"))
        return [slice_(net, product, 1, begin, begin + outputs) for begin in range(0, product.shape[1], outputs)]
    second = transform.extent // first
    # Element j₁·n₂ + j₂ goes to [j₂, j₁]; of j₁ only as many as there are elements.
    filled = -(-inputs // second)
    parts = [_first(net, v, 1, filled * second) for v in parts]
    parts = [permute(net, reshape(net, v, (rows, filled, second)), (0, 2, 1)) for v in parts]
    parts = [reshape(net, v, (rows * second, filled)) for v in parts]
    parts = _rows(net, parts, Transform(first, transform.sign), first, real=False)
    turned = _turned(net, [reshape(net, v, (rows, second, first)) for v in parts], transform)
    parts = [reshape(net, permute(net, v, (0, 2, 1)), (rows * first, second)) for v in turned]
    # Frequency k₁ + n₁·k₂ comes from [k₁, k₂].
    some = -(-outputs // first)
    parts = _rows(net, parts, Transform(second, transform.sign, transform.scale), some, real=real)
    parts = [permute(net, reshape(net, v, (rows, first, some)), (0, 2, 1)) for v in parts]
    return [slice_(net, reshape(net, v, (rows, some * first)), 1, 0, outputs) for v in parts]


def _factor(extent: int) -> int:
    """The largest factor up to the root, 1 of primes and of what is one stage."""
    if extent <= LARGEST_STAGE:
        return 1
    return next(n for n in range(math.isqrt(extent), 0, -1) if extent % n == 0)


def _turned(net: BlockBuilder, parts: list[Value], transform: Transform) -> list[Value]:
    """[rows, n₂, n₁] times exp(±2πi·j₂·k₁/n)."""
    _, second, first = parts[0].shape
    angles = 2 * np.pi * np.outer(np.arange(second), np.arange(first)) / transform.extent
    numbers = np.cos(angles), transform.sign * np.sin(angles)
    cosine, sine = (net.constant(n[None], parts[0].dtype, "turns") for n in numbers)
    a, b, c, s = (arg(i) for i in range(4))
    return [map_(net, e, [*parts, cosine, sine]) for e in (a * c - b * s, a * s + b * c)]


def _matrix(transform: Transform, inputs: int, outputs: int, *, of_real: bool, real: bool) -> Array:
    """[parts of the input · inputs, parts of the result · outputs]."""
    # Whole numbers modulo the extent, so that large products lose no digits.
    steps = np.outer(np.arange(inputs), np.arange(outputs)) % transform.extent
    angles = 2 * np.pi * steps / transform.extent
    cosine, sine = transform.scale * np.cos(angles), transform.scale * transform.sign * np.sin(angles)
    blocks = [[cosine, sine], [-sine, cosine]]
    return np.block([row[: 1 if real else 2] for row in blocks[: 1 if of_real else 2]])
