"""Options of arithmetic."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import torch

from abele.frontends.poptorch.enums import HalfFloatCastingBehavior
from abele.frontends.poptorch.errors import OptionValueError
from abele.frontends.poptorch.options.checked import CheckedOptions
from abele.options import Option, OptionTable
from abele.session.settings import SETTINGS

_PARTIALS = {torch.float32: "f32", torch.float16: "f16"}
"""Types of partial sums, with their names on the machine."""


class PrecisionOptions(CheckedOptions):
    """``opts.Precision``."""

    table: ClassVar[OptionTable] = OptionTable(
        "Options.Precision",
        {
            "floating_point_exceptions": SETTINGS["exceptions"],
            "stochastic_rounding": SETTINGS["stochastic_rounding"],
            "partials_type": Option(
                torch.float32, torch.dtype, doc="type in which float16 products and convolutions keep partial sums"
            ),
        },
    )

    def enableFloatingPointExceptions(self, enabled: bool) -> Self:
        """True if invalid operations, divisions by zero and overflows of floats end the call with an
        :class:`abele.errors.ApplicationRuntimeError`; programs then run vertex by vertex. An overflow of float16 makes
        infinity, also where the engine's options hold it at the largest number."""
        return self.set(floating_point_exceptions=enabled)

    def enableStochasticRounding(self, enabled: bool) -> Self:
        """True if halves are rounded at random, up or down by how near each is: each result once, when it is stored."""
        return self.set(stochastic_rounding=enabled)

    def setPartialsType(self, dtype: torch.dtype) -> Self:
        """Type in which matrix products and convolutions of float16 keep partial sums: float32 or float16.

        Those of float32 have partial sums in float32 either way.
        """
        return self.set(partials_type=dtype)

    def halfFloatCasting(self, half_float_casting: HalfFloatCastingBehavior) -> Self:
        """Deprecated: mixing half and float gives float, as in PyTorch."""
        return self._without_meaning("halfFloatCasting")

    def runningStatisticsAlwaysFloat(self, value: bool) -> Self:
        """Deprecated: running statistics have the type of their module."""
        return self._without_meaning("runningStatisticsAlwaysFloat")

    def _without_meaning(self, name: str) -> Self:
        self._check_writable()
        warnings.warn(f"Options.Precision.{name} is deprecated and has no effect", DeprecationWarning, stacklevel=3)
        return self

    def _checked(self, name: str, value: Any) -> Any:
        checked = super()._checked(name, value)
        if name == "partials_type" and checked not in _PARTIALS:
            raise OptionValueError(f"partial sums are torch.float32 or torch.float16, not {value}")
        return checked

    @property
    def partials(self) -> str:
        """The type of partial sums under the machine's name."""
        return _PARTIALS[self.partials_type]
