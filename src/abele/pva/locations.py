"""Places in source code."""

from __future__ import annotations


class Location:
    """A line of source code.

    Attributes:
        fileName: The file; empty when it is not known.
        lineNumber: The line; 0 when it is not known.
    """

    __slots__ = ("fileName", "lineNumber")

    def __init__(self, file_name: str, line_number: int) -> None:
        self.fileName = file_name
        self.lineNumber = line_number

    def __repr__(self) -> str:
        return f"Location({self.fileName}:{self.lineNumber})"
