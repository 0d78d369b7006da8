"""Trees of replica groupings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from abele.frontends import popxl
from abele.frontends.popxl import ReplicaGrouping
from abele.frontends.popxl_addons.dot_tree import DotTree


class NamedReplicaGrouping(DotTree[Any]):
    """Replica groupings by the names of variables; None where a variable has none of its own."""

    @classmethod
    def build_groups(cls, names: Iterable[str], group: ReplicaGrouping | None) -> Self:
        """The same grouping for all of some names."""
        return cls.from_dict(dict.fromkeys(names, group))


def fill_none_group(groups: NamedReplicaGrouping, none_value: ReplicaGrouping) -> NamedReplicaGrouping:
    """The tree with a grouping for the names that have none of their own."""
    filled: NamedReplicaGrouping = groups.map(lambda group: none_value if group is None else group)
    return filled


def is_cross_instance(group: ReplicaGrouping) -> bool:
    """True if replicas of different instances are of one group."""
    return get_ild_replica_grouping(group).num_groups != group.num_groups


def get_ild_replica_grouping(replica_grouping: ReplicaGrouping | None = None) -> ReplicaGrouping:
    """Groups of replicas within one instance, for links inside of it: the groups cut where instances meet.

    Args:
        replica_grouping: Groups; by default one of all replicas.
    """
    ir = popxl.gcg().ir
    grouping = ir.replica_grouping() if replica_grouping is None else replica_grouping
    each = ir.instance_replication_factor
    numbers: dict[tuple[int, int], int] = {}
    return ir.replica_grouping_from_assignments(
        [numbers.setdefault((group, n // each), len(numbers)) for n, group in enumerate(grouping.assignment)]
    )


__all__ = ["NamedReplicaGrouping", "fill_none_group", "get_ild_replica_grouping", "is_cross_instance"]
