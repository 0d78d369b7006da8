"""``poptorch.poptorch_core``: what programs and tests reach of PopTorch's compiled part."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from abele.frontends.poptorch.errors import Error, RecoverableError, UnrecoverableError
from abele.frontends.poptorch.options.options import Options
from abele.frontends.poptorch.options.popart import validate_options
from abele.frontends.poptorch.program import recording

__all__ = [
    "Error",
    "RecoverableError",
    "TestErrorType",
    "UnrecoverableError",
    "_throwTestError",
    "_validateOptions",
    "isCompilingWithDispatcher",
    "propagateInputShapes",
]


class TestErrorType(IntEnum):
    """Errors that :func:`_throwTestError` raises, by their apparent layer."""

    __test__ = False

    Poptorch = 0
    Popart = 1
    PopartInternal = 2
    Poplibs = 3
    PoplarUnrecoverable = 4
    PoplarUnknown = 5
    PoplarRecoverableFullReset = 6
    PoplarLinkError = 7


_TEST_ERRORS: dict[TestErrorType, tuple[type[Error], str, str]] = {
    TestErrorType.Poptorch: (Error, "poptorch_cpp_error", "This is a PopTorch error"),
    TestErrorType.Popart: (Error, "popart_exception", "This is a PopART error"),
    TestErrorType.PopartInternal: (Error, "popart_internal_exception", "This is a PopART internal error"),
    TestErrorType.Poplibs: (Error, "poplibs_exception", "This is a PopLibs error"),
    TestErrorType.PoplarUnrecoverable: (
        UnrecoverableError,
        "poplar_unrecoverable_runtime_error",
        "This is an unrecoverable Poplar error",
    ),
    TestErrorType.PoplarUnknown: (Error, "poplar_unknown_runtime_error", "This is an unknown Poplar error"),
    TestErrorType.PoplarRecoverableFullReset: (
        RecoverableError,
        "poplar_recoverable_runtime_error",
        "This is a recoverable Poplar error",
    ),
    TestErrorType.PoplarLinkError: (Error, "poplar_link_error", "This is a Poplar link error. Output: -lfoo"),
}


def _throwTestError(kind: TestErrorType) -> None:
    """Raise an error of a kind, so that programs can try what they do about it."""
    error, name, message = _TEST_ERRORS[TestErrorType(kind)]
    made = error(message)
    made.type, made.location = name, "throwTestError"
    raise made


def _validateOptions(options: Mapping[str, Any]) -> None:
    """Look through all options together, as ``Options.toDict()`` has them, and log each at level DEBUG.

    Raises:
        Error: An option that does not exist, or a value of a type that options never have.
    """
    validate_options(options, Options().known_names)


def isCompilingWithDispatcher() -> bool:
    """True while a model's ``forward`` is being recorded."""
    return recording.isRunningOnIpu()


def propagateInputShapes(graph: object, dummy_inputs: object) -> None:
    """Of TorchScript graphs, which nothing here makes.

    Raises:
        Error: Always.
    """
    raise Error("there is no TorchScript graph to propagate shapes through", because="torch.export records models")
