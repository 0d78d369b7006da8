"""PopART's exceptions, which are Abele's as well."""

from __future__ import annotations

from abele.errors import AbeleError
from abele.frontends.popart_errors import popart_exception as popart_exception


def as_popart(error: AbeleError) -> popart_exception:
    """The same error under PopART's name."""
    if isinstance(error, popart_exception):
        return error
    return popart_exception(error.message, at=error.at, because=error.because, remedy=error.remedy)


class popart_internal_exception(popart_exception):  # noqa: N801
    """An error of PopART's own."""


class popart_runtime_error(popart_exception, RuntimeError):  # noqa: N801, N818
    """Something that is found while a program runs."""


class OutOfMemoryException(popart_exception):
    """A model that does not fit on the machine.

    Attributes:
        report: The report of the model, where there is one.
    """

    report: object = None

    def getSummaryReport(self) -> str:
        """Summary of the report as text."""
        summary = getattr(self.report, "summary", None)
        return str(summary()) if callable(summary) else str(self)

    def getProfilePath(self) -> str:
        """Nothing: reports of models that do not fit are in :attr:`report`."""
        return ""


class poplibs_exception(AbeleError):  # noqa: N801, N818
    """Something that a library refuses."""


class poplar_exception(AbeleError):  # noqa: N801, N818
    """Something that Poplar refuses."""


def as_poplar(error: AbeleError) -> poplar_exception:
    """The same error under Poplar's name."""
    return poplar_exception(error.message, at=error.at, because=error.because, remedy=error.remedy)


class poplar_runtime_error(poplar_exception, RuntimeError):  # noqa: N801, N818
    """Something that Poplar finds while a program runs."""


class poplar_application_runtime_error(poplar_runtime_error):  # noqa: N801
    """An error of the program itself, such as an exception of floats."""


class poplar_system_runtime_error(poplar_runtime_error):  # noqa: N801
    """An error of the machine; the one that is modelled has none."""


class poplar_recoverable_runtime_error(poplar_system_runtime_error):  # noqa: N801
    """An error after which a program can go on.

    Attributes:
        recoveryAction: The action before a program goes on.
    """

    recoveryAction: str = "IPU_RESET"  # noqa: N815


class poplar_unrecoverable_runtime_error(poplar_system_runtime_error):  # noqa: N801
    """An error after which the machine needs care."""


class poplar_unknown_runtime_error(poplar_system_runtime_error):  # noqa: N801
    """An error of which nothing is known."""


def as_application_error(error: AbeleError) -> poplar_application_runtime_error:
    """The same error of a run under Poplar's name."""
    return poplar_application_runtime_error(error.message, at=error.at, because=error.because, remedy=error.remedy)
