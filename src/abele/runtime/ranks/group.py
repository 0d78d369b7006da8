"""The ranks of a job, as the engine needs them: who is there, bytes to and from others, and everybody's words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from abele.errors import GraphReplicationError

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class RankMessage:
    """One message to another rank and one from it; both are used again in every exchange of their kind.

    Attributes:
        rank: The other rank.
        sent: Bytes sent to it; empty for none.
        received: Buffer of the bytes that it sends; empty for none.
    """

    rank: int
    sent: Bytes
    received: Bytes


class Ranks(Protocol):
    """Processes that run the same program in the same order.

    Every method is collective: all ranks call the same ones in the same order, each from one thread at a time.
    """

    @property
    def rank(self) -> int:
        """Number of this process, from 0."""

    @property
    def size(self) -> int:
        """Number of ranks."""

    def exchange(self, messages: Sequence[RankMessage], step: str) -> None:
        """Send and receive messages, and return when all have arrived.

        Args:
            messages: Those with other ranks, at most one for each.
            step: The program step that they belong to, for whoever asks where the process is.

        Raises:
            RankLostError: A rank does not come.
        """

    def gather(self, words: bytes, step: str) -> list[bytes]:
        """Bytes of every rank, in the order of ranks; any number of bytes each.

        Raises:
            RankLostError: A rank does not come.
        """


@dataclass(frozen=True, slots=True)
class ReplicaShare:
    """The consecutive replicas of a program that one process executes.

    Attributes:
        first: The first of them.
        count: Number of replicas.
        total: Replicas of the whole program.
    """

    first: int
    count: int
    total: int

    @staticmethod
    def of(replicas: int, ranks: Ranks | None) -> ReplicaShare:
        """This process's share of a program's replicas; all where there is one process.

        Raises:
            GraphReplicationError: The replicas do not divide into the ranks.
        """
        if ranks is None:
            return ReplicaShare(0, replicas, replicas)
        if replicas % ranks.size:
            raise GraphReplicationError(
                f"{replicas} replicas cannot be shared by {ranks.size} ranks: each runs equally many",
                remedy=f"a multiple of {ranks.size} replicas",
            )
        count = replicas // ranks.size
        return ReplicaShare(ranks.rank * count, count, replicas)

    @property
    def replicas(self) -> range:
        """Their numbers."""
        return range(self.first, self.first + self.count)

    def owner(self, replica: int) -> int:
        """The rank that executes a replica."""
        return replica // self.count

    def check(self, replica: int, what: str) -> int:
        """Place among the process's own of a replica of the whole program.

        Raises:
            GraphReplicationError: There is no such replica, or another rank executes it.
        """
        if replica not in self.replicas:
            raise GraphReplicationError(
                f"{what} of replica {replica}: "
                + (
                    f"rank {self.owner(replica)} executes it"
                    if 0 <= replica < self.total
                    else f"there are {self.total} replicas"
                ),
                remedy=f"a replica of this process, {self.first} to {self.first + self.count - 1}"
                if self.count > 1
                else f"replica {self.first}",
            )
        return replica - self.first
