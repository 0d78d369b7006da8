"""Options of arithmetic."""

from __future__ import annotations

from typing import ClassVar, Self

import torch

from abele.errors import InvalidOptionError
from abele.frontends.poptorch.options.checked import CheckedOptions
from abele.options import Option, OptionTable, flag
from abele.session.settings import SETTINGS


class PrecisionOptions(CheckedOptions):
    """``opts.Precision``."""

    table: ClassVar[OptionTable] = OptionTable(
        "Options.Precision",
        {
            "floating_point_exceptions": SETTINGS["exceptions"],
            "stochastic_rounding": flag(False, honoured=False, doc="refused when enabled: halves round to nearest"),
            "partials_type": Option(
                torch.float32, torch.dtype, honoured=False, doc="products accumulate in torch.float32 alone"
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
        """Type in which matrix products and convolutions accumulate: float32 only."""
        if dtype is not torch.float32:
            raise InvalidOptionError(f"products accumulate in torch.float32 here, not {dtype}")
        return self.set(partials_type=dtype)
