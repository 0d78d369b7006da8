"""Poplar's ways to name objects of a program; each is taken wherever a name is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from abele.graph.debug import caller


@dataclass(frozen=True, slots=True)
class DebugNameAndId:
    """A name under which further names hang.

    Attributes:
        name: The name.
        id: Accepted from Poplar programs; nothing here needs it.
        path: Names around it, joined by ``/``.
    """

    name: str = ""
    id: int = 0
    path: str = ""

    def getPathName(self) -> str:
        """The name with those around it."""
        return f"{self.path}/{self.name}" if self.path and self.name else self.path or self.name


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """Source location, as Poplar has it; taken, though every object here knows its own origin.

    Attributes:
        functionName: The function.
        fileName: The file.
        lineNumber: The line.
    """

    functionName: str = ""
    fileName: str = ""
    lineNumber: int = 0

    @staticmethod
    def Current() -> SourceLocation:
        """The caller's place."""
        file, line = caller()
        return SourceLocation("", file, line)

    def getPathName(self) -> str:
        """Nothing: a place is no part of a name."""
        return ""


class DebugContext:
    """``DebugContext("name")``, ``DebugContext(parent, "name")`` or ``DebugContext("path", "name")``."""

    __slots__ = ("_path",)

    def __init__(self, *parts: Any) -> None:
        self._path = "/".join(p for p in (name_of(part, "") for part in parts) if p)

    def getPathName(self) -> str:
        """The name with those around it."""
        return self._path

    def __repr__(self) -> str:
        return f"DebugContext({self._path!r})"


class DebugInfo(DebugContext):
    """Debug context that a Poplar library makes of the one it was given: a parent for the names inside.

    Args:
        context: The context.
        api: Name of the interface; Poplar writes it to its debug file.
    """

    __slots__ = ("api",)

    def __init__(self, context: Any = "", api: str = "") -> None:
        super().__init__(context)
        self.api = api


def name_of(given: Any, default: str) -> str:
    """Name given by ``given``: text, a context, or several of them in a list; ``default`` when empty."""
    if isinstance(given, str):
        return given or default
    if given is None:
        return default
    if isinstance(given, (set, frozenset)):
        given = sorted(given)  # ``{"name"}``, as it is written in C++.
    if isinstance(given, (tuple, list)):
        return DebugContext(*given).getPathName() or default
    path = getattr(given, "getPathName", None)
    return str(path()) or default if path is not None else str(given)
