"""Words that the text forms share: tiles, views, places, and lines that end in time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from abele.graph.debug import DebugRecord
from abele.graph.remote import RemoteBuffer
from abele.graph.stream import Stream
from abele.graph.tensor import Tensor

WIDTH = 120


def end_text(end: object) -> str:
    """An end of a copy, or any view: its name and shape."""
    if isinstance(end, Tensor):
        return f"{end.name} {end.dtype}{list(end.shape)}"
    if isinstance(end, Stream):
        return f"stream {end.name}"
    return f"remote buffer {end.name}" if isinstance(end, RemoteBuffer) else str(end)


def place_text(debug: DebugRecord) -> str:
    """File name and line, or nothing."""
    return f"{Path(debug.file).name}:{debug.line}" if debug.file else ""


def fitted(line: str) -> str:
    """A line cut to the width of a page."""
    return line if len(line) <= WIDTH else line[: WIDTH - 2] + " …"


def bounded(lines: Iterable[str], most: int) -> Iterator[str]:
    """Lines up to ``most``, and the number of further ones."""
    left = 0
    for number, line in enumerate(lines):
        if number < most:
            yield fitted(line.rstrip())
        else:
            left += 1
    if left:
        yield f"… {left:,} more"
