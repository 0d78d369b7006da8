"""The errors that PopTorch's users know, as kinds of our own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from abele.errors import AbeleError, ApplicationRuntimeError, InvalidOptionError


class Error(AbeleError, RuntimeError):
    """A model, an input or a request that cannot be served.

    Attributes:
        type: ``poptorch_py_error``, or the kind of what was raised below.
        message: The text without its prefix.
        location: Place in the program where it was raised, where that is known.
    """

    type = "poptorch_py_error"
    location = ""

    def __str__(self) -> str:
        return f"{self.type!r}: {super().__str__()}"


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


class UnknownOptionError(CheckError, InvalidOptionError, AttributeError):
    """An option that does not exist; the message names the nearest one."""


def createPoptorchError(message: str) -> Error:
    """An :class:`Error` with ``message``."""
    return Error(message)


@contextlib.contextmanager
def as_poptorch_errors() -> Iterator[None]:
    """Raise Abele's errors as :class:`Error` too; programs may ask for either kind.

    An error keeps its identity, text and payload: it only gets another class, derived from its own and
    :class:`Error`.
    """
    try:
        yield
    except AbeleError as error:
        if not isinstance(error, (Error, CheckError)):
            error.__class__ = _both(type(error))
        raise


def error_like(kind: type[Exception]) -> Any:
    """An :class:`Error` that is of one of Python's own kinds too, the nearest above ``kind``."""
    plain = next(k for k in kind.__mro__ if k.__module__ == "builtins")
    return Error if issubclass(Error, plain) else _both(plain)


_BOTH: dict[type[Exception], Any] = {}


def _both(kind: type[Exception]) -> Any:
    """An error of two kinds, under the name of the first."""
    if kind in _BOTH:
        return _BOTH[kind]
    if not issubclass(kind, AbeleError):
        own: dict[str, Any] = {"__module__": Error.__module__, "__doc__": f"{Error.__doc__} A {kind.__name__} too."}
        return _BOTH.setdefault(kind, type(kind.__name__, (Error, kind), own))
    device = issubclass(kind, ApplicationRuntimeError)
    names = {"__module__": kind.__module__, "__doc__": kind.__doc__, "type": _DEVICE if device else Error.type}
    return _BOTH.setdefault(kind, type(kind.__name__, (kind, Error), names))


_DEVICE = "poplar_application_runtime_error"
