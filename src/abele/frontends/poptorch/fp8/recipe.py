"""Recipes for a model's linear layers in 8-bit floats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from abele.arrays import Float64
from abele.errors import nearest
from abele.frontends.poptorch.errors import ArgumentError, OptionValueError
from abele.frontends.poptorch.fp8.formats import FORMATS, LOG2_SCALES, QuarterFormat, checked_log2_scale, quarter_format
from abele.numerics.narrow import round_to_nearest
from abele.numerics.types import SCALES, to_host

# Rules that choose the scale of a tensor of 8-bit floats.
#
# * :func:`amax_scale`: the largest power of two by which the largest element still fits (FP8-AMAX), computed from the
#   tensor in each step: a maximum over all tiles, and a number that all of them have to know.
# * :func:`mse_choice`: format and scale with the least squared error over a histogram of exponents, once, before
#   training.
#
# Source: Perez et al., Training and inference of large language models using 8-bit floating point, arXiv:2309.17224.

GRADIENT_MARGIN = 3
"""Powers of two that gradients are kept below the largest number by."""


def amax_scale(value: torch.Tensor, format: str | QuarterFormat, margin: int = 0) -> torch.Tensor:
    """The exponent ⌊log2(largest / max|x|)⌋ - ``margin``, from -31 to 31, as one int32.

    A tensor of zeros has the largest scale, one with an infinity or NaN the smallest.

    Args:
        value: Elements that will be multiplied by 2 to this exponent.
        format: ``F143`` or ``F152``.
        margin: Powers of two that are left free.

    Method: the exponents for which max|x| is at most largest · 2^-s are counted, all 63 of them at once. A logarithm
    would have to be exact where max|x| is that bound, and would be infinite at 0.
    """
    largest = quarter_format(format).largest
    bounds = torch.tensor([largest * 2.0**-s for s in LOG2_SCALES], dtype=torch.float32, device=value.device)
    fits = (value.detach().abs().amax().float() <= bounds).to(torch.int32).sum(dtype=torch.int32)
    found = (fits + (LOG2_SCALES.start - 1)).clamp(LOG2_SCALES.start, LOG2_SCALES.stop - 1)
    return (found - margin).clamp(LOG2_SCALES.start, LOG2_SCALES.stop - 1) if margin else found


@dataclass(frozen=True)
class ScaleChoice:
    """A format and scale.

    Attributes:
        format: ``F143`` or ``F152``.
        log2_scale: Factor of elements before they are rounded, as an exponent.
        error: Mean squared error, relative to the mean square.
    """

    format: str
    log2_scale: int
    error: float


OCTAVES = range(-127, 128)
"""Exponents of a histogram's bins: bin e counts elements from 2^e to below 2^(e+1)."""
_POINTS_PER_OCTAVE = 64


def exponent_histogram(value: torch.Tensor) -> Float64:
    """Shares of the elements that are not zero by the exponent of their magnitude, [255]; see :data:`OCTAVES`.

    Raises:
        ArgumentError: There are no elements other than zeros, or some are infinite or NaN.
    """
    magnitudes = np.abs(value.detach().double().reshape(-1).numpy())
    if not np.isfinite(magnitudes).all():
        raise ArgumentError("a histogram of exponents takes finite elements", remedy="look for overflow or NaN first")
    exponents = np.frexp(magnitudes[magnitudes > 0])[1] - 1
    if not exponents.size:
        raise ArgumentError("all elements are zero: they say nothing of a scale")
    counts = np.bincount(np.clip(exponents, OCTAVES.start, OCTAVES.stop - 1) - OCTAVES.start, minlength=len(OCTAVES))
    shares: Float64 = counts / counts.sum()
    return shares


def mse_choice(histogram: npt.ArrayLike, format: str | QuarterFormat | None = None) -> ScaleChoice:
    """The format and scale with the least squared error of representing what a histogram counts.

    Elements of an octave are taken to be spread evenly over it; what is too large counts as the largest number. Of
    equal errors the format with more mantissa bits wins, then the smaller scale.

    Args:
        histogram: Shares by octave, [255]; see :func:`exponent_histogram`.
        format: One format to choose a scale for; None to choose from both.

    Raises:
        ArgumentError: Another shape, negative shares, or none.
    """
    shares = np.asarray(histogram, np.float64)
    if shares.shape != (len(OCTAVES),) or not (shares >= 0).all() or not 0 < shares.sum() < np.inf:
        raise ArgumentError(f"a histogram of exponents has {len(OCTAVES)} shares from 0 on, not all of them 0")
    formats = list(FORMATS.values()) if format is None else [quarter_format(format)]
    used = np.flatnonzero(shares)
    octaves, shares = used + OCTAVES.start, shares[used] / shares.sum()
    points = 1 + (np.arange(_POINTS_PER_OCTAVE) + 0.5) / _POINTS_PER_OCTAVE
    top = int(octaves.max())
    values = np.ldexp(points, octaves[:, None] - top)  # relative to the largest octave, where double has room
    total = float(shares @ (values**2).mean(1))
    found = []
    for chosen in sorted(formats, key=lambda f: -f.mantissa_bits):
        for scale in LOG2_SCALES:
            error = float(shares @ _squared_errors(values, scale + top, chosen)) / total
            found.append(ScaleChoice(chosen.name, scale, error))
    return min(found, key=lambda choice: choice.error)


def _squared_errors(values: Float64, log2_scale: int, format: QuarterFormat) -> Float64:
    """Mean squared error of rows of values, multiplied by a scale, rounded and divided again."""
    scaled = np.ldexp(values, np.clip(log2_scale, -300, 300))
    rounded = round_to_nearest(np.clip(scaled, 0, format.largest), format.element_type)
    shown = np.ldexp(to_host(rounded).astype(np.float64), -int(np.clip(log2_scale, -300, 300)))
    errors: Float64 = (shown - values) ** 2
    return np.asarray(errors.mean(1), np.float64)


SCALINGS = ("amax", "constant")


@dataclass(frozen=True, kw_only=True)
class Fp8Recipe:
    """Formats and scales of activations, weights and gradients.

    Attributes:
        scaling: ``amax``: each tensor has its own scale in each step, by its largest element. ``constant``: scales are
            what is given here.
        activation_scale: The exponent of the constant scale of activations.
        weight_scale: That of weights.
        gradient_scale: That of gradients.
        margin: Powers of two that ``amax`` keeps gradients below the largest number by.
        forward_format: The format of activations and weights.
        gradient_format: The format of gradients.
        keep_weights: True to keep the 8-bit copies of weights for the backward pass; false to cast weights again there,
            which takes a cast for each layer and leaves the copies of activations alone waiting. With stochastic
            rounding that cast rounds anew.
        nan_on_overflow: True if what is too large becomes NaN; false to make it the largest number.
        allow_conversion: True to compute in float16 on chips without products of 8-bit floats, which refuse them
            otherwise.

    Raises:
        OptionValueError: Constant scales without numbers, or numbers that ``amax`` would not read; no such format.

    Source: arXiv:2309.17224 (FP8-AMAX, FP8-CSCALE); formats of either pass: arXiv:2206.02915.
    """

    scaling: str = "amax"
    activation_scale: int | None = None
    weight_scale: int | None = None
    gradient_scale: int | None = None
    margin: int = GRADIENT_MARGIN
    forward_format: str = "F143"
    gradient_format: str = "F152"
    keep_weights: bool = True
    nan_on_overflow: bool = True
    allow_conversion: bool = False

    def __post_init__(self) -> None:
        if self.scaling not in SCALINGS:
            close = nearest(self.scaling, SCALINGS) if isinstance(self.scaling, str) else None
            raise OptionValueError(
                f"8-bit floats have no scaling {self.scaling!r}",
                remedy=f"did you mean {close!r}?" if close else "'amax' or 'constant'",
            )
        scales = {
            "activation_scale": self.activation_scale,
            "weight_scale": self.weight_scale,
            "gradient_scale": self.gradient_scale,
        }
        given = [name for name, value in scales.items() if value is not None]
        if self.scaling == "amax" and given:
            raise OptionValueError(
                f"{given[0]} has no meaning where scales follow the largest element", remedy="scaling='constant'"
            )
        if self.scaling == "constant":
            for name, value in scales.items():
                if value is None:
                    raise OptionValueError(
                        f"8-bit floats with constant scales need {name}",
                        remedy="give its exponent, Fp8Recipe.constant(exponent) for all three, or scaling='amax'",
                    )
                checked_log2_scale(value, name)
        if isinstance(self.margin, bool) or not isinstance(self.margin, int) or not 0 <= self.margin <= 31:
            raise OptionValueError(f"a margin is a whole number of powers of two from 0 to 31, not {self.margin!r}")
        for format in (self.forward_format, self.gradient_format):
            quarter_format(format)

    @classmethod
    def constant(
        cls,
        log2_scale: int = 0,
        *,
        allow_conversion: bool = False,
        nan_on_overflow: bool = True,
        keep_weights: bool = True,
    ) -> Self:
        """One scale for everything (FP8-CSCALE); with exponent 0 it is what unit-scaled models need."""
        return cls(
            scaling="constant",
            activation_scale=log2_scale,
            weight_scale=log2_scale,
            gradient_scale=log2_scale,
            allow_conversion=allow_conversion,
            nan_on_overflow=nan_on_overflow,
            keep_weights=keep_weights,
        )

    def scale(self, value: torch.Tensor, role: str) -> torch.Tensor:
        """The exponent of a tensor's scale, one int32; ``role`` is ``activation``, ``weight`` or ``gradient``."""
        if self.scaling == "amax":
            is_gradient = role == "gradient"
            format = self.gradient_format if is_gradient else self.forward_format
            return amax_scale(value, format, self.margin if is_gradient else 0)
        return torch.full((), getattr(self, f"{role}_scale"), dtype=torch.int32, device=value.device)

    def may_exceed(self, power: int = 0) -> bool:
        """True if the exponents of two operands and that of a factor may add up to more than a product takes."""
        if self.scaling == "amax":
            return True
        one, *others = (self.weight_scale or 0, self.activation_scale or 0, self.gradient_scale or 0)
        sums = (one + others[0], one + others[1], sum(others))
        return not all(power - total in SCALES for total in sums)
