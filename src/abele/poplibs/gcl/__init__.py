"""gcl: collectives between replicas, and between the IPUs of one."""

from abele.poplibs.gcl.balanced import CollectiveBalancedHostRearrangement, CollectiveBalancedReorder
from abele.poplibs.gcl.collectives import (
    all_gather_cross_replica,
    all_reduce_cross_replica,
    all_reduce_cross_replica_in_place,
    all_reduce_cross_replica_to_destination,
    all_to_all_cross_replica,
    broadcast_cross_replica,
    reduce_scatter_cross_replica,
)
from abele.poplibs.gcl.groups import CommGroup
from abele.poplibs.gcl.operators import CollectiveOperator
from abele.poplibs.gcl.options import COLLECTIVE_OPTIONS
from abele.poplibs.gcl.tiles import per_ipu_tiles
from abele.poplibs.gcl.within import (
    all_gather_within_replica,
    all_reduce_within_replica,
    reduce_scatter_within_replica,
)
from abele.poplibs.poputil.guard import guarded_functions
from abele.poplibs.poputil.names import camel_aliases

__all__ = [
    "COLLECTIVE_OPTIONS",
    "CollectiveBalancedHostRearrangement",
    "CollectiveBalancedReorder",
    "CollectiveOperator",
    "CommGroup",
    "all_gather_cross_replica",
    "all_gather_within_replica",
    "all_reduce_cross_replica",
    "all_reduce_cross_replica_in_place",
    "all_reduce_cross_replica_to_destination",
    "all_reduce_within_replica",
    "all_to_all_cross_replica",
    "broadcast_cross_replica",
    "per_ipu_tiles",
    "reduce_scatter_cross_replica",
    "reduce_scatter_within_replica",
]

globals().update(guarded_functions(globals(), __all__))
globals().update(camel_aliases(globals(), [n for n in __all__ if n[0].islower()]))
