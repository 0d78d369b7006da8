"""Words that the text forms share: tiles, views, places, and lines that end in time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.graph.debug import DebugInfo
from abele.graph.remote import RemoteBuffer
from abele.graph.stream import Stream
from abele.graph.tensor import Tensor

WIDTH = 120
_FEW = 6


def tiles_text(tiles: npt.NDArray[np.integer[Any]]) -> str:
    """Some tiles: ``tile 3``, ``tiles 0 to 7``, ``tiles 1, 4, 9``, ``412 tiles, 0 to 1,471``."""
    found = np.unique(tiles)
    if len(found) == 0:
        return "no tile"
    first, last = int(found[0]), int(found[-1])
    if len(found) == 1:
        return f"tile {first:,}"
    if last - first + 1 == len(found) and len(found) > 2:
        return f"tiles {first:,} to {last:,}"
    if len(found) <= _FEW:
        return "tiles " + ", ".join(f"{int(t):,}" for t in found)
    return f"{len(found):,} tiles, {first:,} to {last:,}"


def many(count: int, thing: str) -> str:
    """A number of things: ``1 piece``, ``1,200 pieces``, ``3 vertices``."""
    if count == 1:
        return f"1 {thing}"
    return f"{count:,} {thing[:-2] + 'ices' if thing.endswith('ex') else thing + 's'}"


def end_text(end: object) -> str:
    """An end of a copy, or any view: its name and shape."""
    if isinstance(end, Tensor):
        return f"{end.name} {end.dtype}{list(end.shape)}"
    if isinstance(end, Stream):
        return f"stream {end.name}"
    return f"remote buffer {end.name}" if isinstance(end, RemoteBuffer) else str(end)


def place_text(debug: DebugInfo) -> str:
    """File name and line, or nothing."""
    return f"{Path(debug.file).name}:{debug.line}" if debug.file else ""


def fitted(line: str) -> str:
    """A line cut to the width of a page."""
    return line if len(line) <= WIDTH else line[: WIDTH - 2] + " …"


def bounded(lines: Iterable[str], most: int) -> Iterator[str]:
    """At most so many lines, and how many more there are."""
    left = 0
    for number, line in enumerate(lines):
        if number < most:
            yield fitted(line.rstrip())
        else:
            left += 1
    if left:
        yield f"… {left:,} more"
