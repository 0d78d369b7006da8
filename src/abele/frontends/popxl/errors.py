"""Errors of popxl programs: Abele's, with the words that PopXL's own begin with."""

from __future__ import annotations

from abele.errors import AbeleError


class UndefinedValue(AbeleError, RuntimeError):  # noqa: N818
    """A value that nothing has made."""


class GraphArgumentError(AbeleError, ValueError):
    """Arguments of an op, a graph or a stream that do not fit it."""


class GraphTypeError(AbeleError, TypeError):
    """An argument of another kind than an op, a graph or a stream takes."""


class ElementTypesError(AbeleError):
    """Operands whose element types differ: PopXL promotes none."""


class ContextError(AbeleError, RuntimeError):
    """Something done with no graph selected, with a graph of another Ir, or after a session was made."""


__all__ = ["ContextError", "ElementTypesError", "GraphArgumentError", "GraphTypeError", "UndefinedValue"]
