"""Sync groups: tiles that meet at barriers of their own."""

from __future__ import annotations

from dataclasses import dataclass

from abele.graph.debug import DebugInfo
from abele.graph.mapping import Int32
from abele.words import counted


@dataclass(frozen=True, eq=False, slots=True)
class SyncGroup:
    """Tiles whose supersteps wait for one another, and for other groups only where a step touches both.

    Attributes:
        name: What the group is called in reports.
        tiles: Its tiles, ascending int32[n].
        debug: Where the user made it.
    """

    name: str
    tiles: Int32
    debug: DebugInfo

    def __repr__(self) -> str:
        return f"SyncGroup({self.name!r}, {counted(len(self.tiles), 'tile')})"
