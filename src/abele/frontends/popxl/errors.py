"""Errors of popxl programs: Abele's, with the words that PopXL's own begin with."""

from __future__ import annotations

from abele.errors import AbeleError
from abele.frontends.popart_errors import popart_exception


class UndefinedValue(AbeleError, RuntimeError):  # noqa: N818
    """A value that nothing has made."""


class GraphArgumentError(AbeleError, ValueError):
    """Arguments of an op, a graph or a stream that do not fit it."""


class GraphTypeError(AbeleError, TypeError):
    """An argument of another kind than an op, a graph or a stream takes."""


class UnknownTypeError(GraphTypeError, ValueError):
    """Something that means no element type."""


class ElementTypesError(popart_exception):
    """Operands of different element types, or of types that an op does not take: PopXL promotes none."""


class OperandError(popart_exception, ValueError):
    """Operands whose shapes an op does not take."""


class ConstructionError(AbeleError, RuntimeError, TypeError):
    """A class of popxl called by itself, whose objects functions make."""


class ContextError(AbeleError, RuntimeError):
    """Something done with no graph selected, with a graph of another Ir, or after a session was made."""


__all__ = [
    "ConstructionError",
    "ContextError",
    "ElementTypesError",
    "GraphArgumentError",
    "GraphTypeError",
    "OperandError",
    "UndefinedValue",
    "UnknownTypeError",
    "popart_exception",
]
