"""Norms: statistics, whitening and gradients, per channel."""

from abele.poplibs.poplin.norms.per_channel import *  # noqa: F403
from abele.poplibs.poplin.norms.per_channel import __all__ as __all__
