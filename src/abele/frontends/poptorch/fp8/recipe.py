"""Recipes for a model's linear layers in 8-bit floats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch

from abele.errors import nearest
from abele.frontends.poptorch.errors import OptionValueError
from abele.frontends.poptorch.fp8.formats import checked_log2_scale, quarter_format
from abele.frontends.poptorch.fp8.scales import GRADIENT_MARGIN, amax_scale
from abele.numerics.types import SCALES

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
