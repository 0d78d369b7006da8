"""The plan of a collective, shown before it is built."""

from __future__ import annotations

from abele.graph import Graph, Tensor
from abele.poplibs.gcl.calls import ALL, check_group
from abele.poplibs.gcl.groups import CommGroup
from abele.poplibs.gcl.levels import Levels, levels_of
from abele.poplibs.gcl.options import read_method
from abele.poplibs.poputil.options import Options


def explain_all_reduce(
    graph: Graph, data: Tensor, group: CommGroup = ALL, *, options: Options = None, name: str = "all_reduce"
) -> Levels:
    """Plan of an all-reduce of ``data``: its rings, their methods, and estimated times of links and barriers.

    Args:
        graph: A graph of replicas.
        data: Any shape.
        group: Replicas that communicate with each other.
        options: See :data:`COLLECTIVE_OPTIONS`.
        name: Name of the call in errors.

    Returns:
        The plan; as text it says methods, replicas and estimates.

    Raises:
        InvalidOptionError: A misspelt option, or one that names other links than those between the replicas.
        GraphReplicationError: The replicas do not divide into such groups.
        MachineError: The system has no links between the replicas of a group.
    """
    check_group(graph, group, options, name)
    return levels_of(graph, group, read_method(name, options), data.bytes)
