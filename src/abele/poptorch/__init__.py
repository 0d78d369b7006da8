"""``from abele import poptorch``: the PopTorch front end under the name that programs import."""

from abele.frontends.poptorch import *  # noqa: F403
from abele.frontends.poptorch import __all__ as __all__
