"""Groups of replicas that take part in a collective."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, get_args

import numpy as np

from abele.arrays import Int64
from abele.errors import GraphReplicationError, InvalidOptionError

Kind = Literal["ALL", "CONSECUTIVE", "ORTHOGONAL", "NONE", "STRIDED"]
KINDS = get_args(Kind)


class CommGroupType(StrEnum):
    """Kinds of :class:`CommGroup`; their names do as well."""

    ALL = "ALL"
    CONSECUTIVE = "CONSECUTIVE"
    ORTHOGONAL = "ORTHOGONAL"
    NONE = "NONE"
    STRIDED = "STRIDED"


@dataclass(frozen=True)
class CommGroup:
    """Groups of replicas that communicate among themselves.

    Attributes:
        kind: ``ALL`` is one group; ``CONSECUTIVE`` groups of size g are 0…g−1, g…2g−1 and so on; ``ORTHOGONAL`` ones
            are i, i+N/g, i+2N/g and so on; with ``NONE`` each replica is alone; ``STRIDED`` groups are i, i+stride,
            i+2·stride and so on within blocks of stride·size replicas.
        size: Replicas of a group; 0 stands for all.
        stride: Distance between the members of a strided group.

    Raises:
        InvalidOptionError: No such kind.
    """

    kind: Kind | CommGroupType = "ALL"
    size: int = 0
    stride: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidOptionError(f"no groups of kind {self.kind!r}", remedy=", ".join(KINDS))

    @staticmethod
    def all() -> CommGroup:
        """One group of all replicas."""
        return CommGroup()

    @staticmethod
    def consecutive(size: int) -> CommGroup:
        """Groups of neighbours."""
        return CommGroup("CONSECUTIVE", size)

    @staticmethod
    def orthogonal(size: int) -> CommGroup:
        """Groups of replicas that lie equally far apart over all of them."""
        return CommGroup("ORTHOGONAL", size)

    @staticmethod
    def none() -> CommGroup:
        """Every replica alone."""
        return CommGroup("NONE", 1)

    @staticmethod
    def strided(size: int, stride: int) -> CommGroup:
        """Groups of ``size`` replicas ``stride`` apart."""
        return CommGroup("STRIDED", size, stride)

    def members(self, replicas: int) -> Int64:
        """Replicas of each group by rank, int64[groups, size].

        Raises:
            GraphReplicationError: The replicas do not divide into such groups.
        """
        size = {"ALL": replicas, "NONE": 1}.get(self.kind, self.size or replicas)
        if size < 1 or replicas % size:
            raise self._error(replicas, f"{replicas} is no multiple of {size}")
        stride = {"ORTHOGONAL": replicas // size, "STRIDED": self.stride}.get(self.kind, 1)
        if stride < 1 or replicas % (stride * size):
            raise self._error(replicas, f"{replicas} is no multiple of size {size} times stride {stride}")
        blocks = np.arange(replicas, dtype=np.int64).reshape(-1, size, stride)
        return blocks.transpose(0, 2, 1).reshape(-1, size)

    def _error(self, replicas: int, because: str) -> GraphReplicationError:
        return GraphReplicationError(
            f"{self.kind} groups of {self.size} replicas, stride {self.stride}: {replicas} replicas do not divide so",
            because=because,
            remedy="a size that divides the number of replicas",
        )
