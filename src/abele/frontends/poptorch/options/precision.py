"""Options of arithmetic."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import torch

from abele.errors import InvalidOptionError
from abele.frontends.poptorch.options.checked import CheckedOptions
from abele.options import Option, OptionTable, flag
from abele.session.settings import SETTINGS

_PARTIALS = {torch.float32: "f32", torch.float16: "f16"}
"""Types of partial sums, with their names on the machine."""


class PrecisionOptions(CheckedOptions):
    """``opts.Precision``."""

    table: ClassVar[OptionTable] = OptionTable(
        "Options.Precision",
        {
            "floating_point_exceptions": SETTINGS["exceptions"],
            "stochastic_rounding": flag(False, honoured=False, doc="refused when enabled: halves round to nearest"),
            "partials_type": Option(
                torch.float32, torch.dtype, doc="type in which float16 products and convolutions keep partial sums"
            ),
        },
    )

    def enableFloatingPointExceptions(self, enabled: bool) -> Self:
        """True if invalid operations, divisions by zero and overflows of floats end the call with an
        :class:`abele.errors.ApplicationRuntimeError`; programs then run vertex by vertex."""
        return self.set(floating_point_exceptions=bool(enabled))

    def enableStochasticRounding(self, enabled: bool) -> Self:
        """Refused when enabled: half results are rounded to nearest here."""
        if enabled:
            raise InvalidOptionError("stochastic rounding does not exist here yet", remedy="leave it off")
        return self.set(stochastic_rounding=False)

    def setPartialsType(self, dtype: torch.dtype) -> Self:
        """Type in which matrix products and convolutions of float16 keep partial sums: float32 or float16.

        Those of float32 have partial sums in float32 either way.
        """
        return self.set(partials_type=dtype)

    def _checked(self, name: str, value: Any) -> Any:
        checked = super()._checked(name, value)
        if name == "partials_type" and checked not in _PARTIALS:
            raise InvalidOptionError(f"partial sums are torch.float32 or torch.float16, not {value}")
        return checked

    @property
    def partials(self) -> str:
        """The type of partial sums under the machine's name."""
        return _PARTIALS[self.partials_type]
