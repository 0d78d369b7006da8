"""Poplar's small value classes: intervals, layouts, options as JSON, sequences for its references."""

from __future__ import annotations

import json

from abele.codelet import layouts
from abele.errors import InvalidOptionError
from abele.graph.intervals import Interval
from abele.poplar.option_flags import OptionFlags

__all__ = ["ArrayRef", "Interval", "StringRef", "VectorLayout", "VectorListLayout", "readJSON"]


ArrayRef = list
"""Poplar's view of an array: any sequence does."""
StringRef = str
"""Poplar's view of text."""


class VectorLayout:
    """Layout of a vertex's vector: the second argument of ``Vector[type, layout]``."""

    SPAN = layouts.SPAN
    SHORT_SPAN = layouts.SHORT_SPAN
    ONE_PTR = layouts.ONE_PTR
    COMPACT_PTR = layouts.COMPACT_PTR
    SCALED_PTR32 = layouts.SCALED_PTR32
    SCALED_PTR64 = layouts.SCALED_PTR64
    SCALED_PTR128 = layouts.SCALED_PTR128


class VectorListLayout:
    """Layout of a vertex's list of vectors."""

    DELTAN = layouts.DELTAN
    DELTANELEMENTS = layouts.DELTANELEMENTS


def readJSON(text: str, flags: OptionFlags) -> OptionFlags:
    """Set the options that a JSON object names.

    Raises:
        InvalidOptionError: The text is no JSON object.
    """
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidOptionError(f"options are no JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidOptionError(f"options are a JSON {type(found).__name__}, not an object")
    return flags.set(found)
