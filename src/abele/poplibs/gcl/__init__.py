"""gcl: collectives between replicas, and between the IPUs of one."""

from abele.poplibs.gcl.balanced import CollectiveBalancedHostRearrangement, CollectiveBalancedReorder
from abele.poplibs.gcl.calls import explain_all_reduce
from abele.poplibs.gcl.collectives import (
    all_gather_cross_replica,
    all_gather_cross_replica_to_destination,
    all_reduce_cross_replica,
    all_reduce_cross_replica_in_place,
    all_reduce_cross_replica_to_destination,
    all_to_all_cross_replica,
    broadcast_cross_replica,
    reduce_scatter_cross_replica,
    reduce_scatter_cross_replica_to_destination,
)
from abele.poplibs.gcl.cpp_forms import FORMS
from abele.poplibs.gcl.groups import CommGroup, CommGroupType
from abele.poplibs.gcl.operators import CollectiveOperator
from abele.poplibs.gcl.options import COLLECTIVE_OPTIONS
from abele.poplibs.gcl.tiles import get_min_io_tiles, per_ipu_tiles
from abele.poplibs.gcl.within import (
    all_gather_within_replica,
    all_reduce_within_replica,
    reduce_scatter_within_replica,
)
from abele.poplibs.poputil.codelets import add_codelets
from abele.poplibs.poputil.guard import guarded_functions
from abele.poplibs.poputil.names import camel_aliases

__all__ = [
    "COLLECTIVE_OPTIONS",
    "CollectiveBalancedHostRearrangement",
    "CollectiveBalancedReorder",
    "CollectiveOperator",
    "CommGroup",
    "CommGroupType",
    "add_codelets",
    "all_gather_cross_replica",
    "all_gather_cross_replica_to_destination",
    "all_gather_within_replica",
    "all_reduce_cross_replica",
    "all_reduce_cross_replica_in_place",
    "all_reduce_cross_replica_to_destination",
    "all_reduce_within_replica",
    "all_to_all_cross_replica",
    "broadcast_cross_replica",
    "explain_all_reduce",
    "get_min_io_tiles",
    "per_ipu_tiles",
    "reduce_scatter_cross_replica",
    "reduce_scatter_cross_replica_to_destination",
    "reduce_scatter_within_replica",
]

globals().update(guarded_functions(globals(), __all__, FORMS))
globals().update(camel_aliases(globals(), [n for n in __all__ if n[0].islower()]))
perIPUTiles = per_ipu_tiles  # noqa: N816
allReduceInPlaceCrossReplica = all_reduce_cross_replica_in_place  # noqa: N816
allReduceToDestinationCrossReplica = all_reduce_cross_replica_to_destination  # noqa: N816
allGatherToDestinationCrossReplica = all_gather_cross_replica_to_destination  # noqa: N816
reduceScatterToDestinationCrossReplica = reduce_scatter_cross_replica_to_destination  # noqa: N816
