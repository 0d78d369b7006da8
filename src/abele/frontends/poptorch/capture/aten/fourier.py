"""Fourier transforms of real values with real results.

What enters is real, so the half spectrum that an inverse transform reads has no imaginary part where it enters. Along
all dimensions but the last the transform is a complex one, of which real and imaginary part are two values; the last
one gives real numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.network import Value
from abele.network.ops import build
from abele.network.ops.fourier import Complex, Transform, to_real, transformed
from abele.numerics import ElementType, f32


@dataclass(frozen=True)
class _Variant:
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

    def of(self, extent: int) -> Transform:
        """The transform of so many elements."""
        return Transform(extent, self.sign, self.scale(extent))


def _transformed(
    call: OperatorCall, value: Value, sizes: Sequence[int] | None, dims: Sequence[int] | None, variant: _Variant
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
    found = Complex(build.cast(net, value, dtype))
    for place, extent in zip(places[:-1], extents[:-1], strict=True):
        found = transformed(net, found, place, variant.of(extent))
    return build.cast(net, to_real(net, found, places[-1], variant.of(extents[-1])), call.dtype)


def _computed(dtype: ElementType) -> ElementType:
    return dtype if dtype.is_float else f32


def _register(name: str, *, forward: bool) -> None:
    @aten(f"aten.fft_{name}")
    def along_one(
        call: OperatorCall, value: Value, n: int | None = None, dim: int = -1, norm: str | None = None
    ) -> Value:
        return _transformed(call, value, None if n is None else [n], [dim], _Variant(forward, norm))

    @aten(f"aten.fft_{name}2")
    def along_two(
        call: OperatorCall,
        value: Value,
        s: Sequence[int] | None = None,
        dim: Sequence[int] = (-2, -1),
        norm: str | None = None,
    ) -> Value:
        return _transformed(call, value, s, dim, _Variant(forward, norm))

    @aten(f"aten.fft_{name}n")
    def along_some(
        call: OperatorCall,
        value: Value,
        s: Sequence[int] | None = None,
        dim: Sequence[int] | None = None,
        norm: str | None = None,
    ) -> Value:
        return _transformed(call, value, s, dim, _Variant(forward, norm))


_register("irfft", forward=False)
_register("hfft", forward=True)
