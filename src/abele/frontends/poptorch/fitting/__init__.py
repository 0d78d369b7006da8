"""``poptorch.fit``: how to spread a model over a machine, as options and blocks."""

from abele.frontends.poptorch.fitting.changes import changes_to_fit
from abele.frontends.poptorch.fitting.fit import Fit, fit

__all__ = ["Fit", "changes_to_fit", "fit"]
