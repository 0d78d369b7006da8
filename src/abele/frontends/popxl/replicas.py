"""Groups of replicas, and the host's arrays of variables with values by group.

A grouping cuts the replicas of an Ir into groups. With 8 replicas, ``ir.replica_grouping(stride=2, group_size=2)`` has
the groups 0 2, 1 3, 4 6 and 5 7, in this order: its assignment is [0, 1, 0, 1, 2, 3, 2, 3]. A variable of shape [4, 3]
with that grouping is [4, 4, 3] on the host, a row for each group.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from abele.arrays import Array, Int64
from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError
from abele.poplibs.gcl import CommGroup
from abele.words import counted

if TYPE_CHECKING:
    from abele.frontends.popxl.ir import Ir

RETRIEVAL_MODES = ("one_per_group", "all_replicas")
"""Choices of the replicas whose values of a variable come back to the host."""


class ReplicaGrouping:
    """A partition of the replicas of an Ir into groups.

    Args:
        ir: The Ir.
        assignment: Group of each replica; groups count from 0 and each has a replica.

    Raises:
        GraphArgumentError: Another number of replicas, or numbers of groups with gaps.
    """

    def __init__(self, ir: Ir, assignment: Iterable[int]) -> None:
        numbers = [_whole(n, "the group of a replica") for n in assignment]
        if len(numbers) != ir.replication_factor:
            raise GraphArgumentError(
                f"the assignment has {len(numbers)} entries, the Ir {counted(ir.replication_factor, 'replica')}",
                remedy="the number of a group for each replica",
            )
        if set(numbers) != set(range(max(numbers) + 1)):
            raise GraphArgumentError(
                f"the assignment {numbers} leaves groups out", remedy="numbers from 0 on, of groups with replicas"
            )
        self._ir, self._assignment = ir, tuple(numbers)

    @property
    def assignment(self) -> list[int]:
        """The group of each replica."""
        return list(self._assignment)

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return max(self._assignment) + 1

    @property
    def is_const(self) -> bool:
        """True if all groups have one size, and one stride between their replicas."""
        return self._strided() is not None

    @property
    def stride(self) -> int:
        """Distance between neighbours of a group; 1 for groups of one replica.

        Raises:
            GraphArgumentError: It is not the same everywhere.
        """
        return self._constant("stride")[0]

    @property
    def group_size(self) -> int:
        """Replicas of a group.

        Raises:
            GraphArgumentError: Groups have several sizes, or strides.
        """
        return self._constant("group size")[1]

    def _constant(self, what: str) -> tuple[int, int]:
        found = self._strided()
        if found is None:
            raise GraphArgumentError(
                f"The replica grouping {list(self._assignment)} has no constant {what}",
                remedy="ir.replica_grouping(stride, group_size), or its assignment",
            )
        return found

    def _strided(self) -> tuple[int, int] | None:
        """Stride and size of the groups, where these are the same everywhere."""
        first = [n for n, group in enumerate(self._assignment) if group == 0]
        stride, size = first[1] - first[0] if len(first) > 1 else 1, len(first)
        replicas = len(self._assignment)
        if replicas % (stride * size) or tuple(_assigned(replicas, stride, size)) != self._assignment:
            return None
        return stride, size

    @property
    def members(self) -> list[Int64]:
        """Replicas of each group by rank."""
        groups = np.asarray(self._assignment)
        return [np.flatnonzero(groups == n) for n in range(self.num_groups)]

    @property
    def comm_group(self) -> CommGroup:
        """The groups, as the machine has them.

        Raises:
            GraphArgumentError: Their stride or size is not constant.
        """
        stride, size = self._constant("stride")
        replicas = len(self._assignment)
        if size == 1:
            return CommGroup.none()
        if size == replicas:
            return CommGroup("ALL", size)
        if stride == 1:
            return CommGroup.consecutive(size)
        return CommGroup.orthogonal(size) if stride * size == replicas else CommGroup.strided(size, stride)

    def transpose(self) -> ReplicaGrouping:
        """The grouping whose n-th group has the n-th replica of each group of this one.

        Raises:
            GraphArgumentError: Groups have several sizes.
        """
        members = self.members
        if len({len(m) for m in members}) > 1:
            raise GraphArgumentError(f"groups of several sizes have no transpose: {list(self._assignment)}")
        rank = np.empty(len(self._assignment), np.intp)
        for group in members:
            rank[group] = np.arange(len(group))
        return ReplicaGrouping(self._ir, rank.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReplicaGrouping):
            return NotImplemented
        return self._ir == other._ir and self._assignment == other._assignment

    def __hash__(self) -> int:
        return hash((self._ir.id, self._assignment))

    def __repr__(self) -> str:
        found = self._strided()
        shown = f"stride={found[0]}, group_size={found[1]}" if found else f"assignment={list(self._assignment)}"
        return f"ReplicaGrouping(num_groups={self.num_groups}, {shown})"

    def __str__(self) -> str:
        return repr(self)


def _assigned(replicas: int, stride: int, size: int) -> list[int]:
    """The group of each replica, for groups of a stride and a size."""
    return [n // (stride * size) * stride + n % stride for n in range(replicas)]


def _whole(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise GraphArgumentError(f"{what} is a whole number, not {value!r}")
    return int(value)


def strided_grouping(ir: Ir, stride: int | None, group_size: int | None) -> ReplicaGrouping:
    """Groups of a stride and a size.

    Args:
        ir: The Ir.
        stride: Distance between neighbours of a group; 1 if left out.
        group_size: Replicas of a group; as many as there are for the stride if left out.

    Raises:
        GraphArgumentError: The replicas do not divide so.
    """
    replicas = ir.replication_factor
    by = 1 if stride is None else _whole(stride, "the stride of a group")
    # As many as there are for the stride; where it does not divide the replicas, one too many for the check below.
    size = -(-replicas // max(1, by)) if group_size is None else _whole(group_size, "the size of a group")
    if size == 1 and by > 0:
        by = 1
    if by < 1 or size < 1 or replicas % (by * size):
        raise GraphArgumentError(
            f"{counted(replicas, 'replica')} do not divide into groups of {size} with stride {by}",
            because=f"{replicas} is no multiple of {by} · {size}" if by and size else None,
            remedy="a stride and a size whose product divides the number of replicas",
        )
    return ReplicaGrouping(ir, _assigned(replicas, by, size))


def checked_grouping(ir: Ir, grouping: Any, *, is_constant: bool = False) -> ReplicaGrouping:
    """A grouping of an Ir's replicas; all of them in one group for None.

    Raises:
        GraphTypeError: It is no grouping.
        GraphArgumentError: It is of another Ir or number of replicas, or not constant where it has to be.
    """
    if grouping is None:
        return ir.replica_grouping()
    if not isinstance(grouping, ReplicaGrouping):
        raise GraphTypeError(f"a group of replicas is a ReplicaGrouping, not {grouping!r}")
    if grouping._ir != ir or len(grouping.assignment) != ir.replication_factor:
        raise GraphArgumentError(f"{grouping!r} is not of {ir!r} with {counted(ir.replication_factor, 'replica')}")
    if is_constant:
        _ = grouping.stride
    return grouping


@dataclass(frozen=True)
class HostRows:
    """Relation of the rows of a variable in a session to the array on the host.

    Attributes:
        shape: Shape of the whole variable of one group.
        grouping: Groups with values of their own; None for one group of all, whatever their number.
        all_replicas: True if the values of every replica come back, where a group has several.
        shards: Groups whose replicas have a part each; None if each has all.
    """

    shape: tuple[int, ...]
    grouping: ReplicaGrouping | None = None
    all_replicas: bool = False
    shards: ReplicaGrouping | None = None

    @property
    def groups(self) -> CommGroup | None:
        """Replicas that have one row; None if all have the same."""
        grouping = self.grouping
        if self.shards is not None or self.all_replicas:
            return CommGroup.none()
        if grouping is None or grouping.num_groups == 1:
            return None
        return grouping.comm_group if grouping.is_const else CommGroup.none()

    @property
    def host_shape(self) -> tuple[int, ...]:
        """Shape of what the host gives: a first dimension of the groups, absent for one."""
        count = 1 if self.grouping is None else self.grouping.num_groups
        return self.shape if count == 1 else (count, *self.shape)

    @property
    def retrieved_shape(self) -> tuple[int, ...]:
        """Shape of what comes back: of the groups, or of all replicas."""
        if not self.all_replicas or self.grouping is None:
            return self.host_shape
        count = len(self.grouping.assignment)
        return self.shape if count == 1 else (count, *self.shape)

    def fits(self, shape: Sequence[int]) -> bool:
        """True if the host may give an array of a shape."""
        return tuple(shape) in (self.host_shape, self.retrieved_shape)

    def retrieved(self, array: Array) -> Array:
        """The array of the host in the shape that comes back."""
        if array.shape == self.retrieved_shape or self.grouping is None:
            return array
        rows = array.reshape(-1, *self.shape)
        return rows[self.grouping.assignment].reshape(self.retrieved_shape)

    @property
    def replica_shape(self) -> tuple[int, ...]:
        """Shape of what a replica has: all of it, or a part in one dimension."""
        if self.shards is None:
            return self.shape
        return (-(-math.prod(self.shape) // self.shards.group_size),)

    @property
    def _is_by_group(self) -> bool:
        """True if the session has rows of groups, as the host has."""
        return self.shards is None and not self.all_replicas and self.groups != CommGroup.none()

    def spread(self, array: Array, replicas: int) -> Array:
        """Rows of several replicas, of an array in the shape that comes back."""
        if self.grouping is None:
            return np.broadcast_to(array, (replicas, *array.shape))
        rows = array.reshape(-1, *self.shape)
        if self.shards is not None:
            flat, size = rows.reshape(len(rows), -1), self.shards.group_size
            padded = np.pad(flat, ((0, 0), (0, size * self.replica_shape[0] - flat.shape[1])))
            cut: Array = padded.reshape(len(rows), size, -1)[self.grouping.assignment, self._ranks()]
            return cut
        chosen: Array = rows if self.all_replicas else rows[self.grouping.assignment]
        return chosen

    def collected(self, rows: Array) -> Array:
        """The array in the shape that comes back, of rows of replicas."""
        if self.grouping is None:
            first: Array = rows[0]
            return first
        if self.shards is not None:
            whole = rows[np.stack(self._sharers())].reshape(self.grouping.num_groups, -1)
            return whole[:, : math.prod(self.shape)].reshape(self.host_shape)
        if not self.all_replicas:
            rows = rows[[group[0] for group in self.grouping.members]]
        return rows.reshape(self.retrieved_shape)

    def to_rows(self, array: Array) -> Array:
        """The session's array, of one in the shape that comes back."""
        if self._is_by_group or self.grouping is None:
            return array
        return self.spread(array, len(self.grouping.assignment))

    def from_rows(self, rows: Array) -> Array:
        """The array in the shape that comes back, of the session's."""
        if self._is_by_group or self.grouping is None:
            return rows.reshape(self.host_shape)
        return self.collected(rows)

    def _ranks(self) -> list[int]:
        """Rank of each replica among those that share its part."""
        assert self.shards is not None
        return self.shards.transpose().assignment

    def _sharers(self) -> list[Int64]:
        """Of each group the replicas with its parts, in the order of these."""
        assert self.grouping is not None
        assert self.shards is not None
        sharing = self.shards.members
        return [next(m for m in sharing if group[0] in m) for group in self.grouping.members]


__all__ = ["RETRIEVAL_MODES", "HostRows", "ReplicaGrouping", "checked_grouping", "strided_grouping"]
