"""``poptorch._logging``: log levels, also those of layers that do not exist here."""

from __future__ import annotations

import logging

from abele.frontends.poptorch.errors import OptionValueError
from abele.frontends.poptorch.logs import LEVELS, LOGGER, setLogLevel

__all__ = ["logger", "setLogLevel", "setPopartLogLevel"]

logger = LOGGER


def setPopartLogLevel(level: str) -> None:
    """Set the level at which Abele's own layers log: TRACE, DEBUG, INFO, WARN, ERR or OFF.

    Raises:
        OptionValueError: There is no such level.
    """
    if not isinstance(level, str) or level.upper() not in LEVELS:
        raise OptionValueError(f"Level must be one of {', '.join(LEVELS)}, got {level!r}")
    logging.getLogger("abele").setLevel(LEVELS[level.upper()])
