"""All-reduces in which replicas swap whole tensors two by two: the fewest steps for small data.

Of n = 2^k replicas each swaps its tensor with the one whose rank differs in one bit, and both add what arrives: after
that has been done for each bit all have the sum. Every replica does the same in every step, and what is added lies
where it is needed. So nothing is renumbered, cut into rows or moved between tiles, as on a ring; but the whole tensor
is sent k times, where a ring sends 2·(n − 1) / n of it. Both replicas of a pair combine the same two values, and the
operators used here give the same bits in either order; so all replicas have the same bits.

Source: recursive doubling, Thakur et al., Optimization of Collective Communication Operations in MPICH (2005).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.graph.replica_copies import CrossReplicaCopy
from abele.poplibs.gcl.costs import pairwise_seconds
from abele.poplibs.gcl.groups import CommGroup
from abele.poplibs.gcl.levels import Levels, levels_of, members_of
from abele.poplibs.gcl.operators import COMMUTATIVE, CollectiveOperator, combine, combine_with_output
from abele.poplibs.gcl.options import Wanted
from abele.poplibs.poputil.layout import clone
from abele.words import counted


@dataclass(frozen=True, eq=False)
class Pairwise:
    """Swaps between the replicas of groups, all groups at the same time.

    Attributes:
        graph: Graph in which steps are made.
        members: Replicas by group and rank, int64[groups, size].
        num_bytes: Bytes of the tensor.
    """

    graph: Graph
    members: Int64
    num_bytes: int

    @staticmethod
    def can(members: Int64, op: CollectiveOperator) -> bool:
        """True for groups of 2, 4, 8, … replicas, and operators that take their operands in either order."""
        size = members.shape[1]
        return size > 1 and size & (size - 1) == 0 and op in COMMUTATIVE

    @property
    def size(self) -> int:
        """Replicas of a group."""
        return int(self.members.shape[1])

    def seconds(self) -> float:
        """Estimate of all steps."""
        return pairwise_seconds(self.members, self.graph.system.num_ipus, self.graph.whole_system, self.num_bytes)

    def __str__(self) -> str:
        return f"swaps of {counted(self.size, 'replica')}; estimated {self.seconds() * 1e6:,.1f} µs"

    def all_reduce(self, data: Tensor, into: Tensor, op: CollectiveOperator, prog: Sequence, name: str) -> None:
        """``into`` ← ``data`` reduced over each group; both have the same shape, and may be one object."""
        received = clone(self.graph, data, f"{name}/received")
        for number, onto in enumerate(self._swaps()):
            prog.add(CrossReplicaCopy(data, received, onto))
            step = f"{name}/step{number}"
            if data is into:
                combine(self.graph, op, into, received, prog, step)
            else:
                combine_with_output(self.graph, op, data, received, into, prog, name=step)
            data = into

    def _swaps(self) -> Iterator[dict[int, int]]:
        """For each step the replica that each one swaps with."""
        ranks, distance = np.arange(self.size), 1
        while distance < self.size:
            others = self.members[:, ranks ^ distance]
            yield dict(zip(self.members.ravel().tolist(), others.ravel().tolist(), strict=True))
            distance *= 2


def all_reduce_plan(
    graph: Graph, group: CommGroup, method: Wanted, op: CollectiveOperator, num_bytes: int
) -> Levels | Pairwise:
    """The plan of an all-reduce of so many bytes: swaps where ``method`` is ``auto`` and they take less time."""
    rings, members = levels_of(graph, group, method, num_bytes), members_of(graph, group)
    if method != "auto" or not Pairwise.can(members, op):
        return rings
    swaps = Pairwise(graph, members, num_bytes)
    return swaps if swaps.seconds() < rings.scatter_seconds + rings.gather_seconds else rings
