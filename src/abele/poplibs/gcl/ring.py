"""Collectives on rings of replicas: the moves of a method as steps of the program.

All replicas run one program, so what differs between them can only be data: rows are renumbered by distance from the
replica's own place (:meth:`Ring.to_ring`), and then "send row j to the next" is the same step everywhere. In a
reduce-scatter or an all-gather each link carries (n − 1) / n of the data one way, or half of that both ways, which no
algorithm can beat for large data; trees would take log n steps, but move whole tensors in each of them. What is sent
in which step is told by :mod:`abele.poplibs.gcl.methods`.
"""

from __future__ import annotations

from collections.abc import Sequence as List
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.graph import Graph, Tensor, concat
from abele.graph.program import Copy, Sequence, WriteUndef
from abele.graph.replica_copies import CrossReplicaCopy, CrossReplicaExchange
from abele.poplibs.gcl.methods import Method, Move, gather_steps, lanes_of, num_parts, scatter_steps
from abele.poplibs.gcl.operators import CollectiveOperator, combine
from abele.poplibs.gcl.order import ring_order
from abele.poplibs.gcl.rows import column_parts, columns, look_up, look_up_distances, pick_rows


@dataclass(frozen=True, eq=False)
class Ring:
    """The rings of some groups of replicas, which all run at the same time.

    In the rows of a working tensor, row j of the replica at position p belongs to position p+j of its ring, so that
    every replica sends the same row in the same step.

    Attributes:
        graph: Graph in which steps are made.
        members: Replicas by group and rank, int64[groups, size]; each replica is in one group.
    """

    graph: Graph
    members: Int64

    @property
    def size(self) -> int:
        """Replicas of a group."""
        return int(self.members.shape[1])

    @cached_property
    def order(self) -> Int64:
        """Rank by position on the ring."""
        return ring_order(self.members, self.graph.system.num_ipus, self.graph.whole_system)

    @cached_property
    def position(self) -> Int64:
        """Position on the ring by rank."""
        return np.argsort(self.order)

    def to_ring(self, rows: Tensor, prog: Sequence, name: str) -> Tensor:
        """``rows`` [size, width] by rank → [size, width] by distance from the replica's own position."""
        which = None
        if self.size > 1:
            twice = np.concatenate([self.order, self.order])
            position = self._by_replica(self.position)
            which = look_up(self.graph, twice, position, self.size, prog, f"{name}/to_ring/rows")
        return self._picked(rows, which, self.size, prog, f"{name}/to_ring")

    def from_ring(self, rows: Tensor, prog: Sequence, name: str) -> Tensor:
        """The inverse of :meth:`to_ring`."""
        if self.size == 1:
            return rows
        own = self._by_replica(self.position)
        which = look_up_distances(self.graph, self.position, own, prog, f"{name}/from_ring/rows")
        return self._picked(rows, which, self.size, prog, f"{name}/from_ring")

    def shift(self, source: Tensor, destination: Tensor, distance: int) -> CrossReplicaCopy:
        """A copy from each replica to the one that is ``distance`` further on its ring."""
        ring = self.members[:, self.order]
        onto = np.roll(ring, -distance, axis=1)
        pairs = zip(ring.ravel().tolist(), onto.ravel().tolist(), strict=True)
        return CrossReplicaCopy(source, destination, dict(pairs))

    def reduce_scatter(self, rows: Tensor, op: CollectiveOperator, method: Method, prog: Sequence, name: str) -> Tensor:
        """Each replica's own row [width], reduced over its ring; ``rows`` is [size, width] by rank."""
        own = self.to_ring(rows, prog, name)
        if self.size == 1:
            return own[0]
        lanes = lanes_of(method, self.size)
        parts = column_parts(self.graph, rows.dtype, rows.shape[1], num_parts(lanes))
        received = columns(self.graph, rows.dtype, len(lanes), rows.shape[1], f"{name}/received")
        prog.add(WriteUndef(received))
        for number, moves in enumerate(scatter_steps(lanes, self.size)):
            going = [m for m in moves if m.part < len(parts)]
            ends = [(own[m.sent, parts[m.part]], received[m.lane, parts[m.part]], m.way) for m in going]
            self._exchange(ends, prog)
            for together in apart(going):
                into = concat([own[m.received, parts[m.part]] for m in together])
                other = concat([received[m.lane, parts[m.part]] for m in together])
                combine(self.graph, op, into, other, prog, f"{name}/step{number}")
        return own[0]

    def all_gather(self, row: Tensor, method: Method, prog: Sequence, name: str) -> Tensor:
        """The rows [size, width] of the group by rank; ``row`` [width] is the replica's own."""
        gathered = columns(self.graph, row.dtype, self.size, row.size, f"{name}/gathered")
        prog.add(WriteUndef(gathered))
        prog.add(Copy(row, gathered[0]))
        if self.size == 1:
            return gathered
        lanes = lanes_of(method, self.size)
        parts = column_parts(self.graph, row.dtype, row.size, num_parts(lanes))
        for moves in gather_steps(lanes, self.size):
            going = [m for m in moves if m.part < len(parts)]
            ends = [(gathered[m.sent, parts[m.part]], gathered[m.received, parts[m.part]], m.way) for m in going]
            self._exchange(ends, prog)
        return self.from_ring(gathered, prog, name)

    def all_to_all(self, rows: Tensor, prog: Sequence, name: str) -> Tensor:
        """Row r of the replica of rank p becomes row p of the replica of rank r; ``rows`` [size, width]."""
        own = self.to_ring(rows, prog, name)
        received = columns(self.graph, rows.dtype, self.size, rows.shape[1], f"{name}/received")
        prog.add(Copy(own[0], received[0]))
        # Nothing that is sent waits for something that arrives: one exchange carries it all.
        self._exchange([(own[d], received[-d], d) for d in range(1, self.size)], prog)
        return self.from_ring(received, prog, name)

    def broadcast(self, row: Tensor, root: int, prog: Sequence, name: str) -> Tensor:
        """The row [1, width] of rank ``root`` in all replicas of its group; the replicas that have it double."""
        distance_from_root = (self.position - self.position[root]) % self.size
        current, distance = row, 1
        while distance < self.size:
            received = columns(self.graph, row.dtype, 1, row.shape[1], f"{name}/received{distance}")
            prog.add(self.shift(current, received, distance))
            # Replicas at distances [d, 2d) from the root have just been sent the row; all others keep what they have.
            takes = (distance_from_root >= distance) & (distance_from_root < 2 * distance)
            both = concat([current, received], 0)
            start, step = self._by_replica(takes), f"{name}/take{distance}"
            which = look_up(self.graph, np.arange(2), start, 1, prog, f"{step}/rows")
            current = self._picked(both, which, 1, prog, step)
            distance *= 2
        return current

    def own_row(self, rows: Tensor, prog: Sequence, name: str) -> Tensor:
        """The row [width] of ``rows`` [size, width] that has the replica's own rank."""
        every = np.arange(self.size)
        rank = look_up(self.graph, every, self._by_replica(every), 1, prog, f"{name}/rows") if self.size > 1 else None
        return self._picked(rows, rank, 1, prog, name)[0]

    def _by_replica(self, by_rank: npt.NDArray[np.generic]) -> Int64:
        """A number by rank as one by replica, int64[replicas]."""
        table = np.empty(self.graph.replicas, np.int64)
        # Each replica looks its own up by its number at run time.
        table[self.members] = by_rank
        return table

    def _picked(self, rows: Tensor, which: Tensor | None, count: int, prog: Sequence, name: str) -> Tensor:
        out = columns(self.graph, rows.dtype, count, rows.shape[1], name)
        if which is None:
            prog.add(Copy(rows, out))
        else:
            pick_rows(self.graph, rows, which, out, prog, name)
        return out

    def _exchange(self, ends: List[tuple[Tensor, Tensor, int]], prog: Sequence) -> None:
        """Copies from one view to another, so many places further on, in one exchange."""
        copies = [self.shift(*each) for each in ends]
        if copies:
            prog.add(copies[0] if len(copies) == 1 else CrossReplicaExchange(copies))


def apart(moves: List[Move]) -> list[list[Move]]:
    """The moves in sets that are combined at once, in order.

    Those of different columns, whose tiles work side by side; rows of the same columns would have to be put next to
    each other for it, and where two lanes meet they are one.
    """
    sets: list[list[Move]] = []
    for move in moves:
        fitting = next((s for s in sets if all(move.part != other.part for other in s)), None)
        if fitting is None:
            sets.append([move])
        else:
            fitting.append(move)
    return sets
