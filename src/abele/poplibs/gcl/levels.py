"""Collectives in levels: within racks by IPU-Links, and between racks by gateway links.

A gateway carries a fraction of what IPU-Links carry, and all IPUs of a machine share it. On one ring over several racks
every byte would pass each gateway between neighbours; in levels only what is reduced already does: a reduce-scatter
within the rack leaves each replica a part, an all-reduce over the replicas at the same place of all racks completes it,
and an all-gather within the rack spreads it. Rows are numbered by rank, which counts racks and replicas within them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64
from abele.errors import TypeMismatchError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.machine import System
from abele.poplibs.gcl.costs import cheapest, ring_seconds
from abele.poplibs.gcl.groups import CommGroup
from abele.poplibs.gcl.methods import Method
from abele.poplibs.gcl.operators import CollectiveOperator
from abele.poplibs.gcl.options import Wanted
from abele.poplibs.gcl.ring import Ring
from abele.words import counted


@dataclass(frozen=True)
class Level:
    """One level of a collective: rings of replicas and the method that they run.

    Attributes:
        ring: The rings.
        method: Method that the rings run.
        row_bytes: Bytes of one row.
    """

    ring: Ring
    method: Method
    row_bytes: int

    def seconds(self) -> tuple[float, float]:
        """Estimate for a reduce-scatter and an all-gather."""
        ring = self.ring
        system, each = ring.graph.whole_system, ring.graph.system.num_ipus
        return ring_seconds(self.method, ring.members, ring.order, each, system, self.row_bytes)


@dataclass(frozen=True)
class Levels:
    """Plan of a collective between replicas: rings within racks first, then rings between racks.

    Attributes:
        levels: From within racks to between them; replicas of one level with the same rank form the rings of the next.
    """

    levels: tuple[Level, ...]

    @property
    def size(self) -> int:
        """Replicas of a group."""
        return int(np.prod([level.ring.size for level in self.levels]))

    @property
    def scatter_seconds(self) -> float:
        """Estimate for a reduce-scatter."""
        return sum(level.seconds()[0] for level in self.levels)

    @property
    def gather_seconds(self) -> float:
        """Estimate for an all-gather."""
        return sum(level.seconds()[1] for level in self.levels)

    def __str__(self) -> str:
        where = ("within racks", "between racks") if len(self.levels) > 1 else ("",)
        parts = [
            f"{level.method} of {counted(level.ring.size, 'replica')} {place}".strip()
            for level, place in zip(self.levels, where, strict=True)
        ]
        seconds = self.scatter_seconds, self.gather_seconds
        return f"{', then '.join(parts)}; estimated {_us(seconds[0])} to scatter, {_us(seconds[1])} to gather"

    def reduce_scatter(self, rows: Tensor, op: CollectiveOperator, prog: Sequence, name: str) -> Tensor:
        """Each replica's own row [width], reduced over its group; ``rows`` is [size, width] by rank."""
        width = rows.shape[1]
        for n, level in enumerate(self.levels):
            # Rank within the level counts fastest: its ring carries what all further levels will divide.
            outer = rows.shape[0] // level.ring.size
            inner = rows.reshape((outer, level.ring.size, width)).transpose(1, 0, 2)
            inner = inner.reshape((level.ring.size, outer * width))
            own = level.ring.reduce_scatter(inner, op, level.method, prog, f"{name}{n or ''}")
            rows = own.reshape((outer, width))
        return rows[0]

    def all_gather(self, row: Tensor, prog: Sequence, name: str) -> Tensor:
        """The rows [size, width] of the group by rank; ``row`` [width] is the replica's own."""
        width, rows = row.size, row.reshape((1, row.size))
        for n, level in reversed(list(enumerate(self.levels))):
            whole = level.ring.all_gather(rows.flatten(), level.method, prog, f"{name}{n or ''}")
            outer = rows.shape[0]
            rows = whole.reshape((level.ring.size, outer, width)).transpose(1, 0, 2)
            rows = rows.reshape((outer * level.ring.size, width))
        return rows


def levels_of(
    graph: Graph,
    group: CommGroup,
    method: Wanted,
    num_bytes: int,
    cost: Callable[[Levels], float] = lambda plan: plan.scatter_seconds + plan.gather_seconds,
) -> Levels:
    """Plan that takes a collective in levels or on one ring, whichever is estimated to take less time.

    Args:
        graph: A graph of replicas.
        group: Replicas that communicate with each other.
        method: A method for all rings; ``auto`` is the cheapest for each.
        num_bytes: Bytes that are reduced, or that every replica has gathered in the end.
        cost: Seconds of a plan, which the choice minimises.
    """
    members = members_of(graph, group)
    plans = [_plan(graph, [members], method, num_bytes)]
    apart = _by_rack(members, graph.system.num_ipus, graph.whole_system)
    if apart is not None:
        plans.append(_plan(graph, list(apart), method, num_bytes))
    return min(plans, key=cost)


def members_of(graph: Graph, group: CommGroup) -> Int64:
    """Replicas of each group by rank, int64[groups, size].

    Raises:
        TypeMismatchError: The group is no :class:`CommGroup`.
        GraphReplicationError: The replicas do not divide into such groups.
    """
    if not isinstance(group, CommGroup):
        raise TypeMismatchError(f"the group of a collective must be a CommGroup, got {group!r}")
    return group.members(graph.replicas)


def _plan(graph: Graph, members: list[Int64], method: Wanted, num_bytes: int) -> Levels:
    levels = []
    left = num_bytes
    for each in members:
        ring = Ring(graph, each)
        left = -(-left // ring.size)
        chosen = method
        if chosen == "auto":
            chosen = cheapest(each, ring.order, graph.system.num_ipus, graph.whole_system, left)
        levels.append(Level(ring, chosen, left))
    return Levels(tuple(levels))


def _by_rack(members: Int64, num_ipus: int, system: System) -> tuple[Int64, Int64] | None:
    """Groups within racks and groups between them, if all racks have as many replicas of each group, several.

    Ranks count racks and, fastest, replicas within them, as the replicas themselves do.
    """
    rack = members * num_ipus // system.ipu_links.ipus_per_rack
    num_racks = len(np.unique(rack[0]))
    groups, size = members.shape
    each = size // num_racks
    if num_racks == 1 or each == 1 or each * num_racks != size:
        return None
    apart = rack.reshape(groups, num_racks, each)
    if (apart != apart[:, :, :1]).any():
        return None
    blocks = members.reshape(groups, num_racks, each)
    return blocks.reshape(groups * num_racks, each), blocks.transpose(0, 2, 1).reshape(groups * each, num_racks)


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} µs"
