"""Narrow floats: the formats of 16 and 8 bits, and f32 values rounded into them, to nearest or at random.

Rounding at random adds a random part of the distance to the next number, and cuts off: the sum reaches the next number
with exactly the odds of the part that is cut off, so the mean of many roundings is the value. The distance is a power
of two, and the random part has as many bits as the format has fewer than f32, so that the sum is exact in f32, but for
one that enters the next binade (whose numbers are twice as far apart, and of which it reaches the first). Subnormals
have a fixed distance; their sum may have more bits than f32, so there the odds are right to one part in so many as the
random part has values. Native code does the same with the same bits (:mod:`abele.llvm.narrow`), and tests hold both
against each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.numerics.types import ElementType


@dataclass(frozen=True)
class Format:
    """The bits of a narrow float: sign, exponent, fraction.

    Attributes:
        bits: All of them.
        fraction_bits: Bits of the fraction.
        bias: Bias of the exponent.
        has_infinity: True if the highest exponent means infinity and NaN, as in IEEE 754. Otherwise it means numbers,
            and the bits of negative zero are the only NaN.

    Source: IEEE 754 binary16; bfloat16; 8-bit floats: Noune et al., 8-bit Numerical Formats for Deep Neural Networks,
    arXiv:2206.02915 (biases 8 and 16, one zero, one NaN).
    """

    bits: int
    fraction_bits: int
    bias: int
    has_infinity: bool

    @property
    def dropped_bits(self) -> int:
        """Fraction bits that an f32 has more."""
        return 23 - self.fraction_bits

    @property
    def rebias(self) -> int:
        """Difference of the magnitude bits of a shortened f32."""
        return (127 - self.bias) << self.fraction_bits

    @property
    def least_normal(self) -> int:
        """Bits of the f32 that is the least normal number here."""
        return (128 - self.bias) << 23

    @property
    def steps_per_unit(self) -> float:
        """The least number of all, inverted; 0 where it is no normal f32."""
        power = self.bias - 1 + self.fraction_bits
        return 2.0**power if power < 127 else 0.0

    @property
    def beyond(self) -> int:
        """Magnitude bits of the number after the largest: infinity, or those that no number has."""
        return ((1 << self.bits - 1 - self.fraction_bits) - 1) << self.fraction_bits if self.has_infinity else 0x80

    @property
    def largest(self) -> float:
        """The largest number."""
        magnitude = self.beyond - 1
        exponent, fraction = divmod(magnitude, 1 << self.fraction_bits)
        return float(2.0 ** (exponent - self.bias) * (1 + fraction / (1 << self.fraction_bits)))

    @property
    def nan(self) -> int:
        """Bits of NaN."""
        return self.beyond | 1 << (self.fraction_bits - 1) if self.has_infinity else 0x80


FORMATS = {
    "f16": Format(16, 10, 15, True),
    "bf16": Format(16, 7, 127, True),
    "f8_143": Format(8, 3, 8, False),
    "f8_152": Format(8, 2, 16, False),
}
"""By name of the element type, scale aside."""


def format_of(type_: ElementType) -> Format:
    """The format of a narrow float."""
    return FORMATS[type_.name.partition("*")[0]]


def round_to_nearest(values: npt.ArrayLike, type_: ElementType, *, saturate: bool = False) -> npt.NDArray[Any]:
    """f32 values as elements of a narrow float, rounded to nearest, ties to even.

    Args:
        values: Any shape.
        type_: The narrow float; its scale divides the values first.
        saturate: True if values too large become the largest number, rather than infinity or NaN. Infinity itself is no
            number to 8-bit floats, and becomes NaN either way.
    """
    with np.errstate(over="ignore"):
        rounded: npt.NDArray[Any] = _scaled(values, type_, saturate).astype(type_.np)
    return rounded


def round_at_random(
    values: npt.ArrayLike, type_: ElementType, words: npt.ArrayLike, *, saturate: bool = False
) -> npt.NDArray[Any]:
    """f32 values as elements of a narrow float, each rounded up or down with the odds that keep its mean.

    Denormal f32 values count as zero. Between the largest number and infinity (or NaN) the odds are those of an
    infinity that is the next number.

    Args:
        values: Any shape.
        type_: The narrow float; its scale divides the values first.
        words: Random words of that shape, u32, of which as many upper bits are used as the format has fewer than f32.
        saturate: True if values too large become the largest number; infinity as for :func:`round_to_nearest`.
    """
    x, fmt = _scaled(values, type_, saturate), format_of(type_)
    random = np.asarray(words, np.uint32)
    bits = x.view(np.uint32)
    magnitude = (bits & np.uint32(0x7FFFFFFF)).astype(np.int64)
    part = random >> np.uint32(32 - fmt.dropped_bits)
    if fmt.rebias:
        power = np.maximum(bits & np.uint32(0x7F800000), np.uint32(fmt.least_normal))
        # The distance to the next number, divided by how many values the random part has.
        grid = (power - np.uint32(23 << 23)).view(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.abs(x) + part.astype(np.float32) * grid
            steps = np.where(total.view(np.uint32) < fmt.least_normal, total, np.float32(0)) * np.float32(
                fmt.steps_per_unit
            )
        moved = total.view(np.uint32).astype(np.int64)
        # Shortened to the target's fraction bits, and its exponent bias instead of that of f32.
        normal = (moved >> fmt.dropped_bits) - fmt.rebias
        code = np.where(moved < fmt.least_normal, steps.astype(np.int64), normal)
    else:
        # With the exponents of f32 no distance is fixed, and the sum is one of bits.
        code = (magnitude + part) >> fmt.dropped_bits
    # A sum beyond the largest number is infinity, or what stands for it.
    code = np.minimum(code, fmt.beyond)
    code = np.where(magnitude >= 0x7F800000, fmt.beyond, code)
    code = np.where(magnitude > 0x7F800000, fmt.nan, code)
    signed = code | ((bits >> np.uint32(31)).astype(np.int64) << (fmt.bits - 1))
    if not fmt.has_infinity:
        signed = np.where(code == 0, 0, np.where(code >= fmt.beyond, fmt.nan, signed))
    codes: npt.NDArray[Any] = signed.astype(np.uint16 if fmt.bits == 16 else np.uint8)
    return codes.view(type_.np)


def _scaled(values: npt.ArrayLike, type_: ElementType, saturate: bool) -> npt.NDArray[np.float32]:
    given = x = np.ascontiguousarray(values, np.float32)
    if type_.scale:
        with np.errstate(over="ignore"):
            x = x * np.float32(2.0**-type_.scale)
    if saturate:
        largest = np.float32(format_of(type_).largest)
        x = np.minimum(np.maximum(x, -largest), largest)
        if type_.is_quarter:
            x = np.where(np.isinf(given), np.float32(np.nan), x)
    return np.asarray(x, np.float32).reshape(np.shape(values))
