"""Calls of collectives: their arguments, and checks and options that they share."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from abele.errors import TypeMismatchError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.machine.routes import check_joined
from abele.poplibs.gcl.groups import CommGroup
from abele.poplibs.gcl.levels import Levels
from abele.poplibs.gcl.operators import CollectiveOperator, read_operator
from abele.poplibs.gcl.options import Wanted, check_links, read_method
from abele.poplibs.gcl.pairwise import Pairwise, all_reduce_plan
from abele.poplibs.poputil.options import Options
from abele.words import counted

ALL = CommGroup()
Op = CollectiveOperator | str


@dataclass(frozen=True)
class CollectiveCall:
    """Arguments that every collective takes.

    Attributes:
        graph: The graph.
        data: Tensor to communicate.
        options: See :data:`COLLECTIVE_OPTIONS`.
        name: Name of the steps.
    """

    graph: Graph
    data: Tensor
    _: KW_ONLY
    options: Options = None
    name: str = ""

    def method(self) -> Wanted:
        """The method that the options name.

        Raises:
            InvalidOptionError: A misspelt option, or a value that it does not take.
        """
        return read_method(self.name, self.options)


@dataclass(frozen=True)
class ReplicasCall(CollectiveCall):
    """A collective that moves data between replicas.

    Attributes:
        prog: Sequence that the steps are appended to.
        group: Replicas that communicate with each other.
    """

    prog: Sequence
    group: CommGroup = ALL

    def method(self) -> Wanted:
        """As of every collective, of groups that links join.

        Raises:
            InvalidOptionError: A misspelt option, or one that names other links than those between the replicas.
            GraphReplicationError: The replicas do not divide into such groups.
            MachineError: The system has no links between the replicas of a group.
        """
        check_group(self.graph, self.group, self.options, self.name)
        return super().method()


@dataclass(frozen=True)
class BroadcastCall(ReplicasCall):
    """Data of one replica for all of its group.

    Attributes:
        root: Rank of that replica.
    """

    root: int = 0


@dataclass(frozen=True)
class ReduceCall(CollectiveCall):
    """A collective that combines data.

    Attributes:
        op: A :class:`CollectiveOperator` or its name.
        prog: Sequence that the steps are appended to.
    """

    op: Op
    prog: Sequence

    def kind(self) -> CollectiveOperator:
        """The operator.

        Raises:
            InvalidOptionError: A misspelt operator.
            TypeMismatchError: It does not take elements of this type.
        """
        return read_operator(self.op, self.data.dtype, self.name)


@dataclass(frozen=True)
class ReplicasReduceCall(ReduceCall):
    """A collective that combines data over groups of replicas.

    Attributes:
        group: Replicas that communicate with each other.
    """

    group: CommGroup = ALL

    def method(self) -> Wanted:
        """As of :meth:`ReplicasCall.method`."""
        check_group(self.graph, self.group, self.options, self.name)
        return super().method()


@dataclass(frozen=True)
class ReduceIntoCall(CollectiveCall):
    """A collective that combines data over groups of replicas, into a given tensor.

    Attributes:
        destination: The tensor.
        op: A :class:`CollectiveOperator` or its name.
        prog: Sequence that the steps are appended to.
        group: Replicas that communicate with each other.
    """

    destination: Tensor
    op: Op
    prog: Sequence
    group: CommGroup = ALL

    def reduction(self) -> ReplicasReduceCall:
        """The same without the destination."""
        return ReplicasReduceCall(
            self.graph, self.data, self.op, self.prog, self.group, options=self.options, name=self.name
        )


def check_group(graph: Graph, group: CommGroup, options: Options, name: str) -> None:
    """Refuse groups without links between them, and options that name other links.

    Raises:
        TypeMismatchError: The group is no :class:`CommGroup`.
        GraphReplicationError: The replicas do not divide into such groups.
        InvalidOptionError: The options name links that the groups do not use.
        MachineError: The system has no links between the replicas of a group.
    """
    if not isinstance(group, CommGroup):
        raise TypeMismatchError(f"the group of a collective must be a CommGroup, got {group!r}")
    each, whole = graph.system.num_ipus, graph.whole_system
    ipus = group.members(graph.replicas) * each
    if ipus.shape[1] == 1:
        return
    check_joined(ipus[0], whole, f"{name} over groups of {counted(ipus.shape[1], 'replica')}")
    racks = ipus // whole.ipu_links.ipus_per_rack
    check_links(name, options, each, between_racks=bool((racks != racks[:, :1]).any()))


def check_type(name: str, data: Tensor, destination: Tensor) -> None:
    """Refuse a destination of another type.

    Raises:
        TypeMismatchError: The types differ.
    """
    if destination.dtype != data.dtype:
        raise TypeMismatchError(f"{name}: {data!r} cannot become {destination!r}: their types differ")


# The plan of a collective, shown before it is built.


def explain_all_reduce(
    graph: Graph, data: Tensor, group: CommGroup = ALL, *, options: Options = None, name: str = "all_reduce"
) -> Levels | Pairwise:
    """Plan of a sum of ``data``: rings and their methods, or swaps, and estimated times of links and barriers.

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
    return all_reduce_plan(graph, group, read_method(name, options), CollectiveOperator.ADD, data.bytes)
