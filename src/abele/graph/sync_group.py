"""Sync groups: tiles that meet at barriers of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from abele.arrays import Int32
from abele.errors import TileMappingError
from abele.graph.debug import DebugRecord
from abele.words import counted


@dataclass(frozen=True, eq=False, slots=True)
class SyncGroup:
    """Tiles whose supersteps wait for one another, and for other groups only where a step touches both.

    Attributes:
        name: Name of the group in reports.
        tiles: Its tiles, ascending int32[n].
        debug: Source line at which the user made it.
    """

    name: str
    tiles: Int32
    debug: DebugRecord

    def __repr__(self) -> str:
        return f"SyncGroup({self.name!r}, {counted(len(self.tiles), 'tile')})"


def new_sync_group(others: Iterable[SyncGroup], name: str, tiles: Int32, debug: DebugRecord) -> SyncGroup:
    """A group of tiles, ascending int32[n], that are in none of the others.

    Raises:
        TileMappingError: One is in another group.
    """
    for other in others:
        common = np.intersect1d(tiles, other.tiles)
        if len(common):
            raise TileMappingError(
                f"tile {common[0]} is in sync group {name!r} and in {other.name!r}",
                at=debug.location,
                because=f"{other.name!r} was made at {other.debug.location}" if other.debug.file else None,
            )
    return SyncGroup(debug.full_name, tiles, debug)
