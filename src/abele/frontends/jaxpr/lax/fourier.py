"""Fourier transforms, of which :mod:`abele.frontends.jaxpr.complex_numbers` has made pairs of real values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from abele.frontends.jaxpr.registry import PrimitiveCall, primitive, unsupported
from abele.network import Value
from abele.network.ops.fourier import Complex, Transform, to_real, transformed


@primitive("fourier")
def fourier(call: PrimitiveCall, *parts: Value, lengths: Sequence[int], inverse: bool, half: str) -> tuple[Value, ...]:
    """The transform over the last dimensions: of a signal the last first, of half a spectrum the last at the end."""
    net, value = call.net, Complex(*parts)
    first = value.real.ndim - len(lengths)
    sign = 1.0 if inverse else -1.0
    scale = 1 / math.prod(lengths) if inverse else 1.0
    # The scale of all is that of one of them.
    along = [(first + d, Transform(n, sign, 1.0)) for d, n in enumerate(lengths)]
    last, transform = along.pop()
    transform = Transform(transform.extent, sign, scale)
    if half != "operand":
        outputs = transform.extent // 2 + 1 if half == "result" else None
        value = transformed(net, value, last, transform, outputs)
    for dim, other in reversed(along):
        value = transformed(net, value, dim, other)
    if half == "operand":
        return (to_real(net, value, last, transform),)
    return tuple(value.parts)


_UNSYMMETRIC = (
    "use jnp.linalg.eigh for symmetric matrices, or jnp.linalg.svd",
    "the iterations for matrices that are not symmetric end after a number of steps that depends on the data",
)
_COMPLEX = (
    "compute with real and imaginary parts",
    "the device has no complex numbers; sums, products, powers, exponentials, views, loops and transforms of them are "
    "made of real ones",
)


@primitive("complex_refused")
def refused(call: PrimitiveCall, *, name: str) -> Any:
    """The error that a primitive does not take complex numbers, or makes them of real ones."""
    remedy, because = _UNSYMMETRIC if name in ("eig", "schur") else _COMPLEX
    raise unsupported(name, call.net.origin, "has complex numbers, and no lowering for them", remedy, because)
