"""Calls of collectives: their arguments, and what they check and read alike."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from abele.errors import TypeMismatchError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.poplibs.gcl.groups import CommGroup
from abele.poplibs.gcl.operators import CollectiveOperator, read_operator
from abele.poplibs.gcl.options import read_directions
from abele.poplibs.poputil.options import Options

ALL = CommGroup()
Op = CollectiveOperator | str


@dataclass(frozen=True)
class CollectiveCall:
    """What every collective is given.

    Attributes:
        graph: The graph.
        data: What is communicated.
        options: See :data:`COLLECTIVE_OPTIONS`.
        name: Name of the steps.
    """

    graph: Graph
    data: Tensor
    _: KW_ONLY
    options: Options = None
    name: str = ""

    def directions(self) -> tuple[bool, ...]:
        """True for each part of the data whose ring runs clockwise.

        Raises:
            InvalidOptionError: A misspelt option, or a value that it does not take.
        """
        return read_directions(self.name, self.options)


@dataclass(frozen=True)
class ReplicasCall(CollectiveCall):
    """A collective that moves data between replicas.

    Attributes:
        prog: Sequence that the steps are appended to.
        group: Who communicates.
    """

    prog: Sequence
    group: CommGroup = ALL


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
        group: Who communicates.
    """

    group: CommGroup = ALL


@dataclass(frozen=True)
class ReduceIntoCall(CollectiveCall):
    """A collective that combines data over groups of replicas, into a given tensor.

    Attributes:
        destination: The tensor.
        op: A :class:`CollectiveOperator` or its name.
        prog: Sequence that the steps are appended to.
        group: Who communicates.
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


def check_type(name: str, data: Tensor, destination: Tensor) -> None:
    """Refuse a destination of another type.

    Raises:
        TypeMismatchError: The types differ.
    """
    if destination.dtype != data.dtype:
        raise TypeMismatchError(f"{name}: {data!r} cannot become {destination!r}: their types differ")
