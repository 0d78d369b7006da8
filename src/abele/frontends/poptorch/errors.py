"""The errors that PopTorch's users know, as kinds of our own."""

from __future__ import annotations

from abele.errors import AbeleError, InvalidOptionError

PREFIX = "'poptorch_py_error': "


class Error(AbeleError, RuntimeError):
    """A model, an input or a request that cannot be served.

    Attributes:
        type: Always ``poptorch_py_error``.
        message: The text without its prefix.
        location: Always empty.
    """

    type = "poptorch_py_error"
    location = ""

    def __str__(self) -> str:
        return PREFIX + super().__str__()


class RecoverableError(Error):
    """An error after which the device can be used again once ``recovery_action`` was taken."""

    recovery_action = "FULL_RESET"


class UnrecoverableError(Error):
    """An error after which the device cannot be used."""


class CheckError(AbeleError, AssertionError):
    """An argument that PopTorch refuses with an AssertionError."""


class OptionValueError(CheckError, InvalidOptionError):
    """A value that an option does not take."""


class ArgumentError(Error, TypeError):
    """An argument of a type that its place does not take."""


class UnknownOptionError(InvalidOptionError, AttributeError):
    """An option that does not exist; the message names the nearest one."""


def createPoptorchError(message: str) -> Error:
    """An :class:`Error` with ``message``."""
    return Error(message)
