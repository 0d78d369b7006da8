"""Groups of replicas as collectives of networks take them."""

from __future__ import annotations

from abele.frontends.popxl.graph import gir
from abele.frontends.popxl.replicas import ReplicaGrouping, checked_grouping
from abele.poplibs.gcl import CommGroup


def comm_group(group: ReplicaGrouping | None = None) -> CommGroup:
    """The replicas that a collective of the current graph is between.

    Args:
        group: A replica grouping; by default all replicas of the Ir.
    """
    return checked_grouping(gir(), group, is_constant=True).comm_group


__all__ = ["comm_group"]
