"""Origins: the name, path and source line that every graph object carries."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass, replace
from pathlib import Path

_PACKAGE = str(Path(__file__).resolve().parent.parent)
_NOT_THE_USER = (_PACKAGE, contextlib.__file__)
_PROGRAMS = str(Path(_PACKAGE) / "garden")
"""Programs that come with the package and are written as a user would."""


@dataclass(frozen=True, slots=True)
class DebugRecord:
    """Name and origin of a variable, vertex group, program step or library call.

    Attributes:
        name: Last part of the name.
        path: The scopes around it, joined by ``/``; empty at top level.
        file: Source file in which the user made it.
        line: Line in that file; 0 when unknown.
        text: A more telling origin than file and line, such as the module path of a captured model.
    """

    name: str
    path: str = ""
    file: str = ""
    line: int = 0
    text: str = ""

    @property
    def full_name(self) -> str:
        """The name with its scopes, as in ``encoder/layer3/matmul``."""
        return f"{self.path}/{self.name}" if self.path else self.name

    @property
    def location(self) -> str:
        """``file:line``, or an empty string when it is not known."""
        return f"{self.file}:{self.line}" if self.file else ""

    def renamed(self, name: str) -> DebugRecord:
        """The same origin under another name."""
        return replace(self, name=name)

    def __str__(self) -> str:
        return f"{self.full_name} ({self.location})" if self.file else self.full_name


def caller() -> tuple[str, int]:
    """File and line of the nearest frame that is neither this package nor a context manager: the user's line."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_PROGRAMS) or not file.startswith(_NOT_THE_USER):
            return file, frame.f_lineno
        if frame.f_back is None:
            break
        frame = frame.f_back
    return "", 0


def here(name: str) -> DebugRecord:
    """Debug information for a program step that the user makes now."""
    file, line = caller()
    return DebugRecord(name, file=file, line=line)
