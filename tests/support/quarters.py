"""8-bit floats as gfloat knows them."""

from __future__ import annotations

import gfloat
import numpy as np

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


def decoded(type_: ElementType) -> np.ndarray:
    """The number of every code, by gfloat, times the scale of the type; f64[256]."""
    numbers = gfloat.decode_ndarray(fnuz(type_), np.arange(256, dtype=np.uint8))
    return np.asarray(numbers, np.float64) * 2.0**type_.scale


def rounded(values: np.ndarray, type_: ElementType, *, saturate: bool) -> np.ndarray:
    """f32 values as gfloat rounds them to a type, to nearest with ties to even; f64 of their shape.

    gfloat has formats without infinity that are held at the largest number. Without that, what rounds to the number
    after the largest is NaN; infinity and NaN always are.
    """
    fmt = format_of(type_)
    scaled = np.asarray(values, np.float64) * 2.0**-type_.scale
    step = 2.0 ** (np.floor(np.log2(fmt.largest)) - fmt.fraction_bits)
    finite = np.where(np.isfinite(scaled), scaled, 0.0)
    made = gfloat.round_ndarray(fnuz(type_), np.clip(finite, -fmt.largest, fmt.largest)) * 2.0**type_.scale
    over = np.abs(finite) >= fmt.largest + step / 2
    return np.where(~np.isfinite(scaled) | (over & (not saturate)), np.nan, made) + 0.0


def edge_values(type_: ElementType) -> np.ndarray:
    """f32 values where rounding to a type turns: its numbers, the middles between them, and the f32 beside these."""
    numbers = np.unique(decoded(type_)[np.arange(256) != 0x80])
    middles = (numbers[1:] + numbers[:-1]) / 2
    largest = numbers[-1]
    step = largest - numbers[-2]
    ends = np.array([largest + step / 2, largest + step, largest * 4, 3e38, np.inf, np.nan, 0.0])
    exact = np.concatenate([numbers, middles, ends, -ends]).astype(np.float32)
    with np.errstate(over="ignore"):
        beside = [np.nextafter(exact, np.float32(towards)) for towards in (np.inf, -np.inf)]
    every = np.concatenate([exact, *beside])
    # Threads of the machine flush denormal f32.
    return np.where(np.abs(every) < 2.0**-126, np.float32(0), every).astype(np.float32)
