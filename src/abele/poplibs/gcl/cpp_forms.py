"""Orders of arguments in GCL's headers that are not our own; see :mod:`abele.poplibs.poputil.arguments`."""

from __future__ import annotations

from abele.poplibs.poputil.arguments import Forms

_ALL = "name:label?"
"""A call without a group is one of all replicas; a word in capitals is the name of a kind of group, not of a step."""

FORMS: Forms = {
    "all_gather_cross_replica": (f"data prog {_ALL}",),
    "all_gather_cross_replica_to_destination": (f"data destination prog {_ALL}",),
    "all_reduce_cross_replica": (f"data op prog {_ALL}",),
    "all_reduce_cross_replica_in_place": (f"data op prog {_ALL}",),
    "all_reduce_cross_replica_to_destination": (f"data destination op prog {_ALL}",),
    "all_to_all_cross_replica": (f"data prog {_ALL}",),
    "broadcast_cross_replica": (f"data prog {_ALL}",),
    "reduce_scatter_cross_replica": (f"data op prog {_ALL}",),
    "reduce_scatter_cross_replica_to_destination": (f"data destination op prog {_ALL}",),
}
