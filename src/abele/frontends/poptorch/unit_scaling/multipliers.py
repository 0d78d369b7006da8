"""Sharpness of the functions of a unit-scaled model, and likeness of the values that its attention averages.

Plain models say it by the sizes of their weights, which unit scaling takes away: every product has variance 1. What
sharpness is best depends on the model, so it is a number of its own for each kind of function, to be searched for as a
learning rate is.

Source: Blake et al., u-μP: The Unit-Scaled Maximal Update Parametrization, arXiv:2407.17465 (α of attention's softmax,
of activations and of the loss's softmax).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from abele.errors import nearest
from abele.frontends.poptorch.errors import OptionValueError
from abele.frontends.poptorch.unit_scaling.activations import checked_multiplier

UNIT = "unit"
"""The multiplier at which attention's scores begin with variance 1."""


@dataclass(frozen=True, kw_only=True)
class Multipliers:
    """Input multipliers μ of a model's functions.

    Attributes:
        attention: Scores are products of queries and keys times μ over the width of a key. At 1, as it is published,
            they begin with a deviation of width^-1/2: attention averages all positions, and takes width^1/2 times as
            long to learn not to as in a plain model. ``"unit"`` is μ = width^1/2, whatever the width: scores begin
            with variance 1, and are products over the root of the width as in a plain model.
        activation: GELU, SiLU and tanh are f(μx)/μ: nearly linear for small μ, a step for large.
        softmax: Softmax other than in attention and in the loss.
        loss: Scores are multiplied by μ in cross entropy. Where a readout gives them, with a deviation of in^-1/2,
            in^1/2 makes it 1.
        correlation: Likeness of the values that attention averages, from 0, independent as the published factor has
            it, to 1. N independent values average to a variance of 1/N, which that factor makes 1 again; where they
            have become alike, as they do in training, the same factor makes attention up to N^1/2 times as large as
            what it read. At 1 attention has no factor.

    Raises:
        OptionValueError: A multiplier that is no finite number above 0, or a correlation out of range.
    """

    attention: float | str = 1.0
    activation: float = 1.0
    softmax: float = 1.0
    loss: float = 1.0
    correlation: float = 0.0

    def __post_init__(self) -> None:
        for value in (self.activation, self.softmax, self.loss):
            checked_multiplier(value)
        if isinstance(self.correlation, bool) or not 0 <= self.correlation <= 1:
            raise OptionValueError(f"the correlation of values is from 0 to 1, not {self.correlation!r}")
        if isinstance(self.attention, str) and self.attention != UNIT:
            raise OptionValueError(
                f"attention's multiplier is a number above 0 or {UNIT!r}, not {self.attention!r}",
                remedy=f"did you mean {UNIT!r}?" if nearest(self.attention, [UNIT]) else None,
            )
        if not isinstance(self.attention, str):
            checked_multiplier(self.attention)

    def of_attention(self, width: int) -> float:
        """Attention's, by the width of a key."""
        return math.sqrt(width) if isinstance(self.attention, str) else float(self.attention)
