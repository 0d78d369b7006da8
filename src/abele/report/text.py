"""Quantities as text for people."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

CYCLE_COLOURS = {"compute": "#2f9e67", "exchange": "#e08a1e", "sync": "#8e6bbf", "host": "#3d9bd1"}
"""Colour of each part of the cycles on pages and in pictures; distinct for the colour-blind too."""


def bytes_text(value: float) -> str:
    """Bytes with thousands separators, as in ``12,288 B``."""
    return f"{value:,.0f} B"


def count_text(value: float) -> str:
    """A count with four significant digits at most and no exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def seconds_text(value: float) -> str:
    """A time in the unit that suits it."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def percent_text(share: float) -> str:
    """A proportion as per cent: one decimal below ten."""
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


def category_text(name: str) -> str:
    """A memory category or a part of the cycles in words."""
    return {"host": "host streams"}.get(name, name.replace("_", " "))


def full_name(path: str, name: str) -> str:
    """Name of an operation with the scopes around it."""
    return f"{path}/{name}" if path else name


def source_text(file: str, line: int) -> str:
    """Source line as ``folder/file.py:12``, or a dash; the ops table has the full path."""
    if not file:
        return "–"
    short = "/".join(Path(file).parts[-2:])
    return f"{short}:{line}" if line else short


def aligned_lines(rows: Iterable[tuple[str, ...]], sides: str) -> list[str]:
    """Rows of a table as lines, each column to the side that ``sides`` names for it: ``<`` or ``>``."""
    listed = list(rows)
    width = [max(map(len, column)) for column in zip(*listed, strict=True)]
    return ["  ".join(f"{c:{s}{w}}" for c, s, w in zip(row, sides, width, strict=True)).rstrip() for row in listed]
