"""8-bit floats as gfloat knows them."""

from __future__ import annotations

import gfloat

from abele.numerics import ElementType
from abele.numerics.narrow import format_of


def fnuz(type_: ElementType) -> gfloat.FormatInfo:
    """An 8-bit format with one zero and one NaN, spelled out."""
    fmt = format_of(type_)
    return gfloat.FormatInfo(
        name=type_.name,
        k=8,
        precision=fmt.fraction_bits + 1,
        bias=fmt.bias,
        domain=gfloat.Domain.Finite,
        has_nz=False,
        num_high_nans=0,
        has_subnormals=True,
        is_signed=True,
        is_twos_complement=False,
    )
