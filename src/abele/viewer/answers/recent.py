"""Cache of recent results for answers: a few of each kind, the oldest forgotten."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from abele.viewer.open_reports import Opened

Found = TypeVar("Found")


def recent(opened: Opened, kind: str, key: Hashable, make: Callable[[], Found], most: int = 8) -> Found:
    """Result of ``make()`` for this key, if it was asked for lately.

    Args:
        opened: The report that it is of.
        kind: Things of one kind are kept and forgotten together.
        key: Tells one from another.
        make: Works it out.
        most: Number of results of the kind to keep.
    """
    kept: OrderedDict[Hashable, Any] = opened.once(f"recent {kind}", OrderedDict)
    with opened.lock:
        if key in kept:
            kept.move_to_end(key)
            found: Found = kept[key]
            return found
    made = make()
    with opened.lock:
        kept[key] = made
        while len(kept) > most:
            kept.popitem(last=False)
    return made
