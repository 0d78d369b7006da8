"""Poplar's small value classes: intervals, layouts, options as JSON, sequences for its references."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from abele.codelet import layouts
from abele.errors import InvalidOptionError, nearest
from abele.graph.intervals import Interval

# Poplar's option flags: text by name. What takes them reads them through its table of options.


class OptionFlags(dict[str, str]):
    """Options as Poplar has them; values may be given as text, numbers or truth values.

    Raises:
        InvalidOptionError: A value that is none of these.
    """

    def __init__(self, options: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), **more: Any) -> None:
        super().__init__()
        for name, value in {**dict(options), **more}.items():
            self.set(name, value)

    def set(self, name: str | Mapping[str, Any], value: Any = None) -> OptionFlags:
        """Set one option, or those of a mapping; returns the flags."""
        items = name if isinstance(name, Mapping) else {name: value}
        for key, item in items.items():
            super().__setitem__(str(key), _text(key, item))
        return self

    def __setitem__(self, name: str, value: Any) -> None:
        self.set(name, value)

    def at(self, name: str) -> str:
        """The value of an option that was set.

        Raises:
            InvalidOptionError: It was not.
        """
        if name not in self:
            raise InvalidOptionError(f"option {name!r} is not set", remedy=_suggestion(name, self))
        return self[name]


def _text(name: Any, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise InvalidOptionError(f"option {name!r} is {value!r}", remedy="text, a number, True or False")


def _suggestion(name: str, names: Iterable[str]) -> str | None:
    known = list(names)
    close = nearest(name, known)
    return f"did you mean {close!r}?" if close else ("one of " + ", ".join(known) if known else None)


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
