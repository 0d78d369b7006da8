"""Copies between replicas: one at a time, and several in one exchange."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from abele.errors import ControlProgramError
from abele.graph.debug import here
from abele.graph.expect import expect_step
from abele.graph.program import Program
from abele.graph.tensor import Tensor, concat
from abele.words import counted

# Tensors of several element types as few flat ones.


def joined_by_type(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The elements of tensors as one flat tensor for each element type, in the order in which types first come."""
    by_type: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        by_type.setdefault(tensor.dtype.name, []).append(tensor.flatten())
    return [flat[0] if len(flat) == 1 else concat(flat) for flat in by_type.values()]


class CrossReplicaCopy(Program):
    """Copy a view of each replica to a view of another.

    Args:
        source: View that each replica sends.
        destination: View that receives; of the same type and size.
        map: Replica to which each replica sends, by its number: a permutation of all replicas.
    """

    def __init__(self, source: Tensor, destination: Tensor, map: Mapping[int, int]) -> None:
        for end in (source, destination):
            expect_step(end, Tensor, "a CrossReplicaCopy is between tensors")
        self.source = source
        self.destination = destination
        self.map = {int(a): int(b) for a, b in map.items()}
        self.debug = here("cross_replica_copy")
        at = self.debug.location
        if source.dtype != destination.dtype or source.size != destination.size:
            raise ControlProgramError(f"a CrossReplicaCopy from {source!r} to {destination!r}", at=at)
        if not destination.writable:
            raise ControlProgramError(f"a CrossReplicaCopy cannot write {destination!r}", at=at)
        replicas = source.graph.replicas
        if sorted(self.map) != list(range(replicas)) or sorted(self.map.values()) != list(range(replicas)):
            raise ControlProgramError(
                f"{self.map} is no permutation of the {counted(replicas, 'replica')}",
                at=at,
                remedy="name every replica once",
            )

    def reads(self) -> tuple[Tensor, ...]:
        """The source."""
        return (self.source,)

    def writes(self) -> tuple[Tensor, ...]:
        """The destination."""
        return (self.destination,)

    @property
    def copies(self) -> tuple[CrossReplicaCopy, ...]:
        """Itself: all kinds of copies between replicas consist of these."""
        return (self,)


class CrossReplicaExchange(Program):
    """Several copies between replicas in one exchange: links carry all of them side by side.

    All reads come before the first write, so a copy may send what another overwrites.

    Args:
        copies: The copies, at least one; no two write the same elements.
    """

    def __init__(self, copies: Iterable[CrossReplicaCopy]) -> None:
        self.debug = here("cross_replica_exchange")
        expect_step(copies, Iterable, "a CrossReplicaExchange is a list of CrossReplicaCopies")
        self.copies = tuple(copies)
        for copy in self.copies:
            expect_step(copy, CrossReplicaCopy, "a CrossReplicaExchange is made of CrossReplicaCopies")
        at = self.debug.location
        if not self.copies:
            raise ControlProgramError("a CrossReplicaExchange without copies", at=at)
        if len({id(tensor.graph) for tensor in self.reads() + self.writes()}) > 1:
            raise ControlProgramError("a CrossReplicaExchange between tensors of several graphs", at=at)
        self._check_apart()

    def reads(self) -> tuple[Tensor, ...]:
        """The sources."""
        return tuple(copy.source for copy in self.copies)

    def writes(self) -> tuple[Tensor, ...]:
        """The destinations."""
        return tuple(copy.destination for copy in self.copies)

    def _check_apart(self) -> None:
        # Elements of two types never share memory but in views that reinterpret it, which are few.
        joined = joined_by_type(self.writes())
        overlap = any(a.overlaps(b) for n, a in enumerate(joined) for b in joined[:n])
        if overlap or not all(tensor.writable for tensor in joined):
            raise ControlProgramError(
                "two copies of a CrossReplicaExchange write the same elements",
                at=self.debug.location,
                because="all of them arrive at the same time, so it is open which would stay",
                remedy="destinations that do not overlap, or one CrossReplicaCopy after the other",
            )
