"""Options of arithmetic."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import torch

from abele.errors import InvalidOptionError
from abele.frontends.poptorch.options.checked import CheckedOptions


class PrecisionOptions(CheckedOptions):
    """``opts.Precision``."""

    defaults: ClassVar[dict[str, Any]] = {
        "floating_point_exceptions": False,
        "stochastic_rounding": False,
        "partials_type": torch.float32,
    }

    def enableFloatingPointExceptions(self, enabled: bool) -> Self:
        """Whether invalid operations, divisions by zero and overflows of floats end the call with an
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
