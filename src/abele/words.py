"""Words in the same form in every room: counted nouns, and text that a terminal or a page may show."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_IRREGULAR = {"index": "indices", "axis": "axes", "leaf": "leaves"}
_KEPT = ("ay", "ey", "oy", "uy")
"""Endings after which a ``y`` stays: arrays, keys."""
_FEW_TILES = 6


def plural(noun: str) -> str:
    """The plural of an English noun or phrase: ``vertices`` of ``vertex``, ``graph entries`` of ``graph entry``."""
    head, _, last = noun.rpartition(" ")
    if last in _IRREGULAR:
        many = _IRREGULAR[last]
    elif last.endswith(("trix", "rtex")):
        many = last[:-2] + "ices"
    elif last.endswith("y") and not last.endswith(_KEPT):
        many = last[:-1] + "ies"
    elif last.endswith(("s", "x", "ch", "sh")):
        many = last + "es"
    else:
        many = last + "s"
    return f"{head} {many}" if head else many


def counted(count: int, noun: str) -> str:
    """Number with its noun: ``1 piece``, ``1,200 pieces``, ``3 vertices``."""
    return f"{count:,} {noun if count == 1 else plural(noun)}"


def ordinal(number: int) -> str:
    """A place in a row: ``1st``, ``2nd``, ``3rd``, ``11th``, ``22nd``."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def shortened(text: str, most: int) -> str:
    """A text of at most ``most`` characters: the middle of a longer one is left out."""
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


def visible(text: str) -> str:
    """The text with all that is not printable, such as control characters, as ``�``."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


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
    if len(found) <= _FEW_TILES:
        return "tiles " + ", ".join(f"{int(t):,}" for t in found)
    return f"{len(found):,} tiles, {first:,} to {last:,}"
