"""Origins: the names and source lines of objects that a graph's user makes now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from abele.graph.debug import DebugRecord, caller


class Origins:
    """Open scopes, and their pinned source lines."""

    __slots__ = ("_locations", "_scopes")

    def __init__(self) -> None:
        self._scopes: list[str] = []
        self._locations: list[tuple[str, int, str]] = []

    def of(self, name: str) -> DebugRecord:
        """Debug information for something made now under ``name``."""
        if self._locations:
            file, line, text = self._locations[-1]
        else:
            (file, line), text = caller(), ""
        return DebugRecord(name, "/".join(self._scopes), file, line, text)

    @contextmanager
    def scope(self, name: str, location: tuple[str, int] | None, text: str) -> Iterator[None]:
        """Prefix names made inside with ``name``; pin their source line to ``location`` if given."""
        if name:
            self._scopes.append(name)
        if location is not None:
            self._locations.append((*location, text))
        try:
            yield
        finally:
            if location is not None:
                self._locations.pop()
            if name:
                self._scopes.pop()
