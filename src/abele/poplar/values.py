"""Poplar's small value classes: intervals, layouts, sequences for its references."""

from __future__ import annotations

from abele.codelet import layouts
from abele.graph.intervals import Interval

__all__ = ["ArrayRef", "Interval", "StringRef", "VectorLayout", "VectorListLayout"]

ArrayRef = list
"""Poplar's view of an array: any sequence does."""
StringRef = str
"""Poplar's view of text."""


class VectorLayout:
    """How a vertex describes a vector: the second argument of ``Vector[type, layout]``."""

    SPAN = layouts.SPAN
    SHORT_SPAN = layouts.SHORT_SPAN
    ONE_PTR = layouts.ONE_PTR
    COMPACT_PTR = layouts.COMPACT_PTR
    SCALED_PTR32 = layouts.SCALED_PTR32
    SCALED_PTR64 = layouts.SCALED_PTR64
    SCALED_PTR128 = layouts.SCALED_PTR128


class VectorListLayout:
    """How a vertex describes a list of vectors."""

    DELTAN = layouts.DELTAN
    DELTANELEMENTS = layouts.DELTANELEMENTS
