"""Collectives on rings of replicas: what is sent, step by step.

All replicas run one program, so what differs between them can only be data: rows are renumbered by distance from the
replica's own place (:meth:`Ring.to_ring`), and then "send row j to the next" is the same step everywhere. For a
reduce-scatter over n replicas, the row that a replica sends in a step is the one that it combined in the step before;
after n − 1 steps every row has passed all replicas once and lies, complete, where it belongs. An all-gather sends on
what came last, n − 1 times. Each link carries (n − 1) / n of the data in either, which no algorithm can beat for large
data; trees would take log n steps, but move whole tensors in each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from abele.errors import TypeMismatchError
from abele.graph import Graph, Tensor, concat
from abele.graph.control import CrossReplicaCopy
from abele.graph.program import Copy, Sequence
from abele.poplibs.gcl.groups import CommGroup, ring_order
from abele.poplibs.gcl.operators import CollectiveOperator, combine
from abele.poplibs.gcl.rows import columns, look_up, pick_rows

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ring:
    """The rings of all groups of replicas, run round in one direction.

    In the rows of a working tensor, row j of the replica at position p belongs to position p+j of its ring, so that
    every replica sends the same row in the same step.

    Attributes:
        graph: Where steps are made.
        group: Who communicates.
        clockwise: The direction.
    """

    graph: Graph
    group: CommGroup
    clockwise: bool = True

    @cached_property
    def members(self) -> Int64:
        """Replicas by group and rank, int64[groups, size].

        Raises:
            TypeMismatchError: The group is no :class:`CommGroup`.
        """
        if not isinstance(self.group, CommGroup):
            raise TypeMismatchError(f"the group of a collective must be a CommGroup, got {self.group!r}")
        return self.group.members(self.graph.replicas)

    @property
    def size(self) -> int:
        """Replicas of a group."""
        return int(self.members.shape[1])

    @cached_property
    def order(self) -> Int64:
        """Rank by position on the ring."""
        order = ring_order(self.graph, self.size)
        return order if self.clockwise else order[::-1].copy()

    def to_ring(self, rows: Tensor, prog: Sequence, name: str) -> Tensor:
        """``rows`` [size, width] by rank → [size, width] by distance from the replica's own position."""
        position = np.argsort(self.order)
        table = self._table(self.order[(position[:, None] + np.arange(self.size)) % self.size])
        return self._picked(rows, table, prog, f"{name}/to_ring")

    def from_ring(self, rows: Tensor, prog: Sequence, name: str) -> Tensor:
        """The inverse of :meth:`to_ring`."""
        position = np.argsort(self.order)
        table = self._table((position[None, :] - position[:, None]) % self.size)
        return self._picked(rows, table, prog, f"{name}/from_ring")

    def shift(self, source: Tensor, destination: Tensor, distance: int) -> CrossReplicaCopy:
        """A copy from each replica to the one that is ``distance`` further on its ring."""
        ring = self.members[:, self.order]
        onto = np.roll(ring, -distance, axis=1)
        pairs = zip(ring.ravel().tolist(), onto.ravel().tolist(), strict=True)
        return CrossReplicaCopy(source, destination, dict(pairs))

    def reduce_scatter(self, rows: Tensor, op: CollectiveOperator, prog: Sequence, name: str) -> Tensor:
        """What each replica's own row [width] becomes over the group; ``rows`` [size, width] by rank."""
        own = self.to_ring(rows, prog, name)
        received = columns(self.graph, rows.dtype, 1, rows.shape[1], f"{name}/received")
        for step in range(self.size - 1):
            # At distance j from its home a row has n − 1 − j replicas behind it; the neighbour has it one place nearer
            # to home.
            sent = (-1 - step) % self.size
            prog.add(self.shift(own[sent], received[0], 1))
            combine(self.graph, op, own[(sent - 1) % self.size], received[0], prog, f"{name}/step{step}")
        return own[0]

    def all_gather(self, row: Tensor, prog: Sequence, name: str) -> Tensor:
        """The rows [size, width] of the group by rank; ``row`` [width] is the replica's own."""
        gathered = columns(self.graph, row.dtype, self.size, row.size, f"{name}/gathered")
        prog.add(Copy(row, gathered[0]))
        for step in range(self.size - 1):
            # What came last came from `step` places before; it goes on to the next replica, for which it is one place
            # further off.
            prog.add(self.shift(gathered[-step % self.size], gathered[-1 - step], 1))
        return self.from_ring(gathered, prog, name)

    def all_to_all(self, rows: Tensor, prog: Sequence, name: str) -> Tensor:
        """Row r of the replica of rank p becomes row p of the replica of rank r; ``rows`` [size, width]."""
        own = self.to_ring(rows, prog, name)
        received = columns(self.graph, rows.dtype, self.size, rows.shape[1], f"{name}/received")
        prog.add(Copy(own[0], received[0]))
        for distance in range(1, self.size):
            prog.add(self.shift(own[distance], received[-distance], distance))
        return self.from_ring(received, prog, name)

    def broadcast(self, row: Tensor, root: int, prog: Sequence, name: str) -> Tensor:
        """The row [1, width] of rank ``root`` in all replicas of its group; the replicas that have it double."""
        position = np.argsort(self.order)
        distance_from_root = (position - position[root]) % self.size
        current, distance = row, 1
        while distance < self.size:
            received = columns(self.graph, row.dtype, 1, row.shape[1], f"{name}/received{distance}")
            prog.add(self.shift(current, received, distance))
            # Replicas at distances [d, 2d) from the root have just been sent the row; all others keep what they have.
            takes = (distance_from_root >= distance) & (distance_from_root < 2 * distance)
            both = concat([current, received], 0)
            current = self._picked(both, self._table(takes[:, None]), prog, f"{name}/take{distance}")
            distance *= 2
        return current

    def own_row(self, rows: Tensor, prog: Sequence, name: str) -> Tensor:
        """The row [width] of ``rows`` [size, width] that has the replica's own rank."""
        return self._picked(rows, self._table(np.arange(self.size)[:, None]), prog, name)[0]

    def _table(self, by_rank: Int64) -> Int64:
        """A table by rank as one by replica."""
        table = np.empty((self.graph.replicas, by_rank.shape[1]), np.int64)
        # Each replica looks its row up by its own number at run time.
        table[self.members] = by_rank
        return table

    def _picked(self, rows: Tensor, table: Int64, prog: Sequence, name: str) -> Tensor:
        out = columns(self.graph, rows.dtype, table.shape[1], rows.shape[1], name)
        if self.size == 1:
            prog.add(Copy(rows, out))
        else:
            pick_rows(self.graph, rows, look_up(self.graph, table, prog, f"{name}/rows"), out, prog, name)
        return out
