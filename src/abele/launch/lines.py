"""Whole lines out of blocks of bytes."""

from __future__ import annotations

import time

_MOST_BYTES = 1 << 16
"""A longer line is shown in pieces."""
_SHOWN_SECONDS = 1.0
"""Seconds between two showings of a line that is written over and over, such as a progress bar."""


class LineSplitter:
    """Joins blocks and splits them into lines.

    A line that ends in a carriage return is written over on a terminal: it is shown once a second.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._shown = 0.0

    def feed(self, block: bytes) -> list[bytes]:
        """The lines that are complete with some more bytes, each with a newline at its end."""
        *lines, rest = (self._rest + block).split(b"\n")
        found = [_last_written(line) + b"\n" for line in lines]
        if len(rest) > _MOST_BYTES:
            found.append(rest + b"\n")
            rest = b""
        # A carriage return at the very end may be half of the end of a line.
        over, carriage, _ = rest.rstrip(b"\r").rpartition(b"\r")
        if carriage:
            rest = rest[len(over) + 1 :]
            if time.monotonic() - self._shown > _SHOWN_SECONDS:
                self._shown = time.monotonic()
                found.append(_last_written(over) + b"\n")
        self._rest = rest
        return found

    def end(self) -> list[bytes]:
        """Rest of the output when no more bytes come, as a line."""
        rest, self._rest = self._rest, b""
        return [_last_written(rest) + b"\n"] if rest else []


def _last_written(line: bytes) -> bytes:
    """A line without the text that was written over."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]
