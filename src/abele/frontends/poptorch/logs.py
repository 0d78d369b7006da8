"""Logs under PopTorch's names, and warnings to users, which are logged too."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections import Counter

from abele.errors import nearest
from abele.frontends.poptorch.errors import OptionValueError

LOGGER = logging.getLogger("poptorch::python")

LEVEL_VARIABLE = "POPTORCH_LOG_LEVEL"

TRACE = 5
LEVELS = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERR": logging.ERROR,
    "OFF": logging.CRITICAL + 10,
}
_NUMBERS = {0: "TRACE", 1: "DEBUG", 2: "INFO", 3: "WARN", 4: "ERR", 6: "OFF"}
_SHOWN = {TRACE: "trace", logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warning"}


class PoptorchWarning(UserWarning):
    """Warning to the user. Python ignores it unless a filter asks for it: it is a line of the log already."""


class _LogFormat(logging.Formatter):
    """``[time] [poptorch:python] [level] message``."""

    default_msec_format = "%s.%03d"

    def __init__(self) -> None:
        super().__init__("[%(asctime)s] [poptorch:python] [%(shown)s] %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        record.shown = _SHOWN.get(record.levelno, "error" if record.levelno < logging.CRITICAL else "critical")
        return super().format(record)


class _StandardError(logging.Handler):
    """Writes to the present standard error; of equal messages, as many as are wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.most: int | None = 4
        self._written: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        message = record.getMessage()
        self._written[message] += 1
        if self.most is None or self._written[message] <= self.most:
            sys.stderr.write(self.format(record) + "\n")

    def limit(self, most: int | None) -> None:
        """Write an equal message this many times from now on; None for every time."""
        self.most = most
        self._written.clear()


def limit_repeats(most: int | None) -> None:
    """Write an equal message this many times to the standard error from now on; None for every time."""
    for handler in LOGGER.handlers:
        if isinstance(handler, _StandardError):
            handler.limit(most)


def setLogLevel(level: str | int) -> None:
    """Set the level of the log: TRACE, DEBUG, INFO, WARN, ERR or OFF; or their numbers 0 to 4, and 6.

    Raises:
        OptionValueError: There is no such level.
    """
    if isinstance(level, int):
        if level not in _NUMBERS:
            raise OptionValueError("Invalid log level integer", remedy=str(sorted(_NUMBERS)))
        level = _NUMBERS[level]
    if level not in LEVELS:
        close = nearest(level.upper(), LEVELS)
        raise OptionValueError(
            f"Unknown log level: {level}. Valid values are DEBUG, ERR, INFO, OFF, TRACE and WARN",
            remedy=f"did you mean {close!r}?" if close else None,
        )
    LOGGER.setLevel(LEVELS[level])


def warn(message: str, stacklevel: int = 1) -> None:
    """Warn the user: by a line of the log and, for who asks for Python's warnings, by one of these.

    PopTorch's warnings end no program, not even where Python's warnings are errors.

    Args:
        message: The text.
        stacklevel: Frames above the caller that the warning is shown at.
    """
    LOGGER.warning(message)
    with contextlib.suppress(UserWarning):
        warnings.warn(message, PoptorchWarning, stacklevel=stacklevel + 2)


def set_up() -> None:
    """Log to the standard error at the level that the environment says, WARN otherwise."""
    if not any(isinstance(handler, _StandardError) for handler in LOGGER.handlers):
        handler = _StandardError()
        handler.setFormatter(_LogFormat())
        LOGGER.addHandler(handler)
    logging.addLevelName(TRACE, "TRACE")
    warnings.simplefilter("ignore", PoptorchWarning, append=True)
    setLogLevel(os.environ.get(LEVEL_VARIABLE) or "WARN")
