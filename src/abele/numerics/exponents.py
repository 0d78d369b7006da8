"""Histograms of exponents: how many elements of a tensor lie in each octave, and the 8-bit float that suits them.

An octave is from a power of two to just below the next. Counting looks at the bits of the elements alone: an f32 is
counted by the upper half of its word, an f16 by all of its bits, and a table of 65,536 sums says which counts belong to
which octave. That needs no logarithm, no branch and one pass over the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import TypeMismatchError
from abele.numerics.types import ElementType, quarter, to_device, to_host

LOWEST_OCTAVE, HIGHEST_OCTAVE = -127, 127
"""Lowest and highest octave. The lowest one has the subnormal numbers of f32 too, all below 2**-126."""
NUM_OCTAVES = HIGHEST_OCTAVE - LOWEST_OCTAVE + 1
LEAST_NORMAL_F16, LARGEST_F16 = -14, 65504.0
"""The octave of the least normal f16, and the largest f16."""


@dataclass(frozen=True, eq=False)
class ExponentCounts:
    """Counts of a tensor's elements by exponent.

    Attributes:
        octaves: Elements from 2**e to below 2**(e + 1), signs left out, for e from -127 to 127, int64[255].
        zeros: Elements that are zero.
        infinities: Elements that are infinite.
        nans: Elements that are no numbers.
        above_f16: Finite elements larger than the largest f16, 65504.
        largest: The largest finite magnitude, 0 without any.
    """

    octaves: Int64
    zeros: int
    infinities: int
    nans: int
    above_f16: int
    largest: float

    @property
    def elements(self) -> int:
        """All elements."""
        return int(self.octaves.sum()) + self.zeros + self.infinities + self.nans

    @cached_property
    def subnormals_f16(self) -> int:
        """Elements below the least normal f16, 2**-14, that are not zero."""
        return int(self.octaves[: LEAST_NORMAL_F16 - LOWEST_OCTAVE].sum())

    def __add__(self, other: ExponentCounts) -> ExponentCounts:
        return ExponentCounts(
            self.octaves + other.octaves,
            self.zeros + other.zeros,
            self.infinities + other.infinities,
            self.nans + other.nans,
            self.above_f16 + other.above_f16,
            max(self.largest, other.largest),
        )


def count_exponents(array: npt.ArrayLike) -> ExponentCounts:
    """The histogram of exponents of an array of floats, of any shape.

    Args:
        array: float16, bfloat16, float32, 8-bit floats without a scale, or float64, which is rounded to float32.

    Raises:
        TypeMismatchError: Its elements are no floats.
    """
    given = to_host(np.asarray(array))
    if given.dtype.kind != "f":
        raise TypeMismatchError(f"elements of type {given.dtype} have no exponents", remedy="floats")
    if given.dtype != np.float16:
        # What float64 has beyond float32 becomes infinite, which is what a device makes of it.
        with np.errstate(over="ignore", under="ignore"):
            given = given.astype(np.float32, copy=False)
    flat = np.ascontiguousarray(given).reshape(-1)
    # The upper half of an f32 has its sign, exponent and 7 of 23 bits of the fraction.
    upper = flat.view(np.uint16) if flat.dtype == np.float16 else (flat.view(np.uint32) >> 16).astype(np.uint16)
    by_bits = np.bincount(upper, minlength=1 << 16)
    sums = np.bincount(_places(flat.dtype == np.float16), weights=by_bits, minlength=NUM_OCTAVES + 2)
    octaves, zeros, endless = sums[:NUM_OCTAVES].astype(np.int64), int(sums[-2]), int(sums[-1])
    if flat.dtype == np.float32 and zeros:
        # Zero in the upper half: zeros, and the smallest of the subnormal numbers.
        subnormal = zeros - (flat.size - int(np.count_nonzero(flat)))
        octaves[0] += subnormal
        zeros -= subnormal
    nans = int(np.isnan(flat).sum()) if endless else 0
    largest = _largest(flat, by_bits, endless > 0)
    above = int((np.abs(flat[np.isfinite(flat)]) > LARGEST_F16).sum()) if largest > LARGEST_F16 else 0
    return ExponentCounts(octaves, zeros, endless - nans, nans, above, largest)


def _largest(flat: npt.NDArray[np.floating], by_bits: Int64, has_endless: bool) -> float:
    if flat.dtype == np.float16:
        found = np.flatnonzero(by_bits).astype(np.uint16).view(np.float16)
        return float(np.abs(found[np.isfinite(found)]).max(initial=0.0))
    finite = flat[np.isfinite(flat)] if has_endless else flat
    return float(max(finite.max(initial=0.0), -finite.min(initial=0.0)))


@cache
def _places(half: bool) -> npt.NDArray[np.int64]:
    """Counter of each of 65,536 patterns of bits: octaves, then zeros, then infinities and NaN, int64[65536].

    Args:
        half: The patterns are f16; otherwise upper halves of f32.
    """
    bits = np.arange(1 << 16, dtype=np.uint32)
    values = bits.astype(np.uint16).view(np.float16).astype(np.float32) if half else (bits << 16).view(np.float32)
    octave = np.frexp(np.where(np.isfinite(values), np.abs(values), 0.0))[1] - 1
    place: Int64 = np.clip(octave - LOWEST_OCTAVE, 0, NUM_OCTAVES - 1).astype(np.int64)
    place[values == 0] = NUM_OCTAVES
    place[~np.isfinite(values)] = NUM_OCTAVES + 1
    return place


# --- the 8-bit float that suits a tensor -----------------------------------------------------------------------------

SCALES_TRIED = range(-31, 32)
"""Exponents that numbers are multiplied by a power of two with before they become 8-bit floats."""
_POINTS = 64
"""Values per octave for errors: the middles of as many equal parts of it."""


@dataclass(frozen=True)
class QuarterChoice:
    """The 8-bit float that represents a tensor with the least squared error.

    Attributes:
        format: ``F143`` or ``F152``.
        scale: Numbers are multiplied by ``2**scale`` and rounded: ``quarter(format, -scale)`` is the type, whose
            numbers are those of the format times ``2**-scale``.
        relative_error: Root of the squared error over the squared numbers.
    """

    format: str
    scale: int
    relative_error: float

    @property
    def type(self) -> ElementType:
        """The element type."""
        return quarter(self.format, -self.scale)


def quarter_for(counts: ExponentCounts, formats: Sequence[str] = ("F143", "F152")) -> QuarterChoice | None:
    """The format and scale that represent a tensor with the least squared error; None where it is all zeros.

    Elements are taken to be spread evenly over their octaves. What is too large becomes the largest number. Of equal
    errors the format with more bits of fraction wins, then the scale that leaves more room above.

    Args:
        counts: Exponents of its elements.
        formats: Those to choose from.

    Source: Perez et al., Training and inference of large language models using 8-bit floating point, arXiv:2309.17224
    (the rule by the squared error of a histogram, scales -31 to 31).
    """
    share = counts.octaves / max(int(counts.octaves.sum()), 1)
    held = np.flatnonzero(share)
    if not len(held):
        return None
    # Squares of far octaves are too large and too small for any float: the largest octave becomes that of 1.
    power = np.ldexp(1.0, 2 * (held - int(held[-1])).clip(-500, 0))
    weight = share[held] * power
    # int64[scales, held]: the octaves that the tensor's octaves become.
    octave = (held[None, :] + LOWEST_OCTAVE + np.array(SCALES_TRIED)[:, None]).clip(*_FAR) - _FAR[0]
    ordered = sorted(formats, key=lambda f: f != "F143")
    errors = np.stack([_octave_errors(f)[octave] @ weight for f in ordered])
    # Sums that differ in their last bits are equal: the first of them wins.
    number, scale = np.unravel_index(np.argmax(errors <= errors.min() * (1 + 1e-12)), errors.shape)
    mean_square = float(weight.sum()) * _MEAN_SQUARE
    relative = (float(errors[number, scale]) / mean_square) ** 0.5
    return QuarterChoice(ordered[number], SCALES_TRIED[int(scale)], relative)


_FAR = (-40, 40)
"""Octaves within which errors are looked up. Below, everything becomes zero; above, the largest number, which is far
below the value: in either case the relative error is 1.
"""
_MEAN_SQUARE = float(np.mean(((np.arange(_POINTS) + 0.5) / _POINTS + 1) ** 2))


@cache
def _octave_errors(format_: str) -> npt.NDArray[np.float64]:
    """Mean squared error of the numbers of each octave from -40 to 40, as if it were that of 1, float64[81]."""
    octave = np.arange(_FAR[0], _FAR[1] + 1)
    points = (np.arange(_POINTS) + 0.5) / _POINTS + 1
    values = np.ldexp(points[None, :].astype(np.float32), octave[:, None])
    type_ = quarter(format_, 0)
    most = float(np.nanmax(to_host(np.arange(256, dtype=np.uint8).view(type_.np))))
    rounded = to_host(to_device(np.minimum(values, most), type_)).astype(np.float64)
    return np.asarray(np.mean(((rounded - values) * np.ldexp(1.0, -octave[:, None])) ** 2, axis=1))
