"""Meaning of operations on NumPy arrays of the type that they compute in: the reference that all code is held to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from abele.arrays import Array


def erf(x: Array) -> Array:
    """The error function."""
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x), x.dtype)


def as_integers(x: Array, dtype: np.dtype[Any]) -> Array:
    """Floats as integers: towards zero, held at the ends of the range, 0 for NaN."""
    limits = np.iinfo(dtype.name)
    low, high = x <= float(limits.min), x >= float(limits.max)
    inside = np.where(low | high | np.isnan(x), 0, x).astype(dtype)
    return np.where(low, limits.min, np.where(high, limits.max, inside)).astype(dtype)


def divide(x: Array, y: Array) -> Array:
    """x / y; for integers truncated, and 0 where y is 0."""
    if x.dtype.kind == "f":
        return np.divide(x, y)
    special = (y == 0) | ((y == -1) & (x.dtype.kind == "i"))
    safe = np.where(special, y.dtype.type(1), y)
    down = x // safe
    quotient = down + ((x - down * safe != 0) & ((x < 0) != (safe < 0)))
    return np.asarray(np.where(y == 0, 0, np.where(special, -x, quotient)), x.dtype)


def floor_divide(x: Array, y: Array) -> Array:
    """x / y of integers, rounded down; 0 where y is 0."""
    special = (y == 0) | ((y == -1) & (x.dtype.kind == "i"))
    down = x // np.where(special, y.dtype.type(1), y)
    return np.asarray(np.where(y == 0, 0, np.where(special, -x, down)), x.dtype)


def remainder(x: Array, y: Array) -> Array:
    """Remainder of division truncated towards zero; of integers 0 where y is 0."""
    if x.dtype.kind == "f":
        return np.asarray(np.fmod(x, y))
    return np.asarray(np.where(y == 0, 0, x - divide(x, y) * y), x.dtype)


def shifted(shift: Callable[..., Array]) -> Callable[..., Array]:
    """A shift whose count is taken modulo the width."""
    return lambda x, y: shift(x, y & y.dtype.type(y.dtype.itemsize * 8 - 1))


def shift_right_unsigned(x: Array, y: Array) -> Array:
    """``x`` shifted down with zeros from above."""
    bits = x.view(f"u{x.dtype.itemsize}")
    count = y.astype(bits.dtype) & bits.dtype.type(x.dtype.itemsize * 8 - 1)
    return np.asarray(np.right_shift(bits, count).view(x.dtype))


def shift_right_signed(x: Array, y: Array) -> Array:
    """``x`` shifted down with copies of its highest bit from above."""
    bits = x.view(f"i{x.dtype.itemsize}")
    count = y.astype(bits.dtype) & bits.dtype.type(x.dtype.itemsize * 8 - 1)
    return np.asarray(np.right_shift(bits, count).view(x.dtype))


def signum(x: Array) -> Array:
    """-1 below zero, 1 above, else 0, of NaN too."""
    return np.asarray(np.where(x > 0, 1, np.where(x < 0, -1, 0)), x.dtype)


def xlogy(x: Array, y: Array) -> Array:
    """x · log y, zero where x is, unless y is not a number."""
    return np.asarray(np.where((x == 0) & ~np.isnan(y), x.dtype.type(0), x * np.log(y)), x.dtype)


def xlog1py(x: Array, y: Array) -> Array:
    """x · log(1 + y), zero where x is, unless y is not a number."""
    return np.asarray(np.where((x == 0) & ~np.isnan(y), x.dtype.type(0), x * np.log1p(y)), x.dtype)


def entr(x: Array) -> Array:
    """-x · log x, zero at zero and -∞ below."""
    return np.asarray(np.where(x > 0, -x * np.log(x), np.where(x == 0, 0, np.where(x < 0, -np.inf, x))), x.dtype)


def logit(x: Array) -> Array:
    """log(x / (1 - x))."""
    return np.asarray(np.log(x / (1 - x)), x.dtype)


def softplus(x: Array) -> Array:
    """log(1 + exp(x))."""
    return np.asarray(np.logaddexp(0, x), x.dtype)


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x)."""
    return np.asarray(np.exp(-np.logaddexp(0, -x)), x.dtype)


def fma(x: Array, y: Array, z: Array) -> Array:
    """x·y + z, the product not rounded."""
    return np.asarray(x.astype(np.float64) * y.astype(np.float64) + z.astype(np.float64), x.dtype)


def round_half_away(x: Array) -> Array:
    """To the nearest whole number; halves away from zero."""
    return np.asarray(np.where(x < 0, np.ceil(x - x.dtype.type(0.5)), np.floor(x + x.dtype.type(0.5))), x.dtype)


def gelu_erf(x: Array) -> Array:
    """x · Φ(x)."""
    return np.asarray(0.5 * x * (1.0 + erf(x * math.sqrt(0.5))), x.dtype)


def popcount(x: Array) -> Array:
    """Number of bits that are set in the word of 32 bits."""
    words = np.ascontiguousarray(x.astype(np.uint32))
    bits = np.unpackbits(words.view(np.uint8).reshape(*words.shape, 4), axis=-1)
    return np.asarray(bits.sum(axis=-1), x.dtype)


def count_leading_zeros(x: Array) -> Array:
    """Number of bits of the word of 32 above the highest that is set."""
    words = x.astype(np.uint32)
    return np.asarray(32 - np.frexp(words.astype(np.float64))[1], x.dtype)


def murmur(x: Array) -> Array:
    """The finaliser of MurmurHash3, of 32 bits."""
    bits = x.astype(np.uint32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        bits = (bits ^ (bits >> np.uint32(shift))) * np.uint32(factor)
    return (bits ^ (bits >> np.uint32(16))).astype(x.dtype)


def gelu_tanh(x: Array) -> Array:
    """GELU by its tanh approximation."""
    return np.asarray(0.5 * x * (1.0 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), x.dtype)


def gelu_tanh_slope(x: Array) -> Array:
    """Derivative of :func:`gelu_tanh`."""
    scale = math.sqrt(2 / math.pi)
    t = np.tanh(scale * (x + 0.044715 * x**3))
    return np.asarray(0.5 * (1 + t) + 0.5 * x * (1 - t**2) * scale * (1 + 3 * 0.044715 * x**2), x.dtype)


def gelu_erf_slope(x: Array) -> Array:
    """Derivative of :func:`gelu_erf`."""
    cumulative = 0.5 * (1 + erf(x * math.sqrt(0.5)))
    return np.asarray(cumulative + x * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi), x.dtype)
