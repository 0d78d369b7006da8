"""Sync groups: tiles that advance together, and the costs of meeting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from abele.arrays import Bool, Int32, Int64
from abele.compiler.tile_vector import TileVector
from abele.graph.graph import Graph
from abele.machine import System

Meets = tuple[tuple[int, ...], ...]
"""Sets of groups that meet in one part of a step; groups of different sets pass it without one another."""
Link = tuple[str, int]
"""A way out of the chip that groups share: its kind, and its number among those."""


@dataclass(frozen=True, eq=False, slots=True)
class SyncGroups:
    """The disjoint sets of tiles that advance on their own until a step touches several of them.

    Attributes:
        names: Name of each group: as the user gave it, or ``IPU i`` for the tiles of an IPU that are in no other.
        of_tile: Group of each tile, int32[tiles].
        tiles: Tiles of each group, int64[groups].
        on_ipu: True where a group has tiles on an IPU, bool[groups, ipus].
        system: The machine of one replica.
        all: Every group.
        of_ipus: The groups that are the tiles of an IPU which no other group has.
        hosts_apart: True if IPUs meet the host without one another.
    """

    names: tuple[str, ...]
    of_tile: Int32
    tiles: Int64
    on_ipu: Bool
    system: System
    all: tuple[int, ...]
    of_ipus: frozenset[int]
    hosts_apart: bool

    @staticmethod
    def of(graph: Graph) -> SyncGroups:
        """The groups of a graph: one per IPU, less the tiles of the user's groups."""
        system = graph.system
        num_ipus, each = system.num_ipus, system.ipu.num_tiles
        # Every tile belongs to its IPU's group first; the user's groups then take theirs out.
        label = np.repeat(np.arange(num_ipus, dtype=np.int32), each)
        on_ipu = np.zeros((num_ipus + len(graph.sync_groups), num_ipus), dtype=bool)
        for number, group in enumerate(graph.sync_groups):
            label[group.tiles] = num_ipus + number
            on_ipu[num_ipus + number, group.tiles // each] = True
        tiles = np.bincount(label, minlength=len(on_ipu))
        np.fill_diagonal(on_ipu, tiles[:num_ipus] > 0)
        used = np.flatnonzero(tiles)
        every = [*(f"IPU {i}" for i in range(num_ipus)), *(g.name for g in graph.sync_groups)]
        names = tuple(every[int(n)] for n in used)
        number_of = np.zeros(len(tiles), dtype=np.int32)
        number_of[used] = np.arange(len(used))
        return SyncGroups(
            names,
            number_of[label],
            tiles[used],
            on_ipu[used],
            system,
            tuple(range(len(names))),
            of_ipus=frozenset(np.flatnonzero(used < num_ipus).tolist()),
            hosts_apart=graph.sync_pattern != "full",
        )

    def __len__(self) -> int:
        return len(self.names)

    def num_tiles(self, groups: Iterable[int]) -> int:
        """Tiles of some groups together."""
        return int(self.tiles[list(groups)].sum())

    def touched(self, amount: TileVector) -> tuple[int, ...]:
        """The groups of the tiles whose number is not zero."""
        if len(self.names) == 1:
            return (0,) if amount.any() else ()
        # Only listed tiles are busy; otherwise all are but those that are listed with zero.
        if not amount.elsewhere:
            return self.holding([amount.nonzero()])
        idle = amount.tile_set.tiles[amount.values[:-1] == 0]
        busy = self.tiles - np.bincount(self.of_tile[idle], minlength=len(self.names))
        return self.all if bool(busy.all()) else tuple(np.flatnonzero(busy).tolist())

    def holding(self, tiles: Sequence[Int32]) -> tuple[int, ...]:
        """The groups of some tiles, given as columns."""
        if not tiles:
            return ()
        if len(self.names) == 1:
            return (0,) if any(map(len, tiles)) else ()
        found = [np.unique(self.of_tile[column]) for column in tiles]
        return tuple((np.unique(np.concatenate(found)) if len(found) > 1 else found[0]).tolist())

    def between_ipus(self, groups: tuple[int, ...]) -> tuple[int, ...]:
        """Groups at the barrier of an exchange between IPUs: those of all IPUs.

        Tiles with a group of their own are there where they take part, and pass it where they do not.
        """
        return tuple(sorted(self.of_ipus.union(groups))) if self.of_ipus.intersection(groups) else groups

    def at_host(self, groups: tuple[int, ...]) -> tuple[int, ...]:
        """The groups at the barrier of some groups that exchange data with the host."""
        return groups if self.hosts_apart else self.between_ipus(groups)

    def ipus(self, groups: Iterable[int]) -> tuple[int, ...]:
        """The IPUs on which some groups have tiles."""
        return tuple(np.flatnonzero(self.on_ipu[list(groups)].any(axis=0)).tolist())

    def sync_cycles(self, groups: Iterable[int]) -> int:
        """Cycles of a barrier of some groups: within an IPU the on-chip sync, else the sync of the IPUs that take part.

        Source: ``Sync`` of the machine.
        """
        ipus = self.ipus(groups)
        racks = {ipu // self.system.ipu_links.ipus_per_rack for ipu in ipus}
        return self.system.sync_cycles_of(max(1, len(ipus)), max(1, len(racks)))

    @property
    def apart(self) -> Meets:
        """Every group by itself."""
        return tuple((g,) for g in self.all)

    @property
    def by_ipu(self) -> Meets:
        """Groups that share an IPU meet, others do not."""
        meets: list[set[int]] = []
        for here in self.on_ipu.T:
            joined = set(np.flatnonzero(here).tolist())
            apart = [m for m in meets if not m & joined]
            # Union of overlapping sets: groups over two IPUs tie both IPUs together.
            meets = [*apart, joined.union(*(m for m in meets if m & joined))]
        return tuple(tuple(sorted(m)) for m in sorted(meets, key=min))

    def host_links(self, groups: Iterable[int]) -> tuple[Link, ...]:
        """The links to the host that the IPUs of some groups share with others."""
        return _shared("host", self.ipus(groups), self.system.host.ipus_per_link)

    def drams(self, groups: Iterable[int]) -> tuple[Link, ...]:
        """The streaming memories of those IPUs; the host's links where the system has none."""
        dram = self.system.dram
        return self.host_links(groups) if dram is None else _shared("dram", self.ipus(groups), dram.ipus_per_dram)


def _shared(kind: str, ipus: Iterable[int], ipus_per_link: int) -> tuple[Link, ...]:
    return tuple(dict.fromkeys((kind, ipu // ipus_per_link) for ipu in ipus))
