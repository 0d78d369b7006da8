"""``from abele import popxl``: PopXL's graphs, ops and sessions on the machine that Abele models."""

from abele.frontends.popxl import *  # noqa: F403
from abele.frontends.popxl import __all__ as _names

__all__ = [*_names]
