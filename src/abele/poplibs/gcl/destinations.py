"""Collectives between replicas into given tensors."""

from __future__ import annotations

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.graph.program import Copy, Sequence
from abele.poplibs.gcl.calls import ALL, ReduceIntoCall, check_type
from abele.poplibs.gcl.collectives import all_gather_cross_replica, reduce_scatter_cross_replica
from abele.poplibs.gcl.groups import CommGroup
from abele.poplibs.poputil.options import Options
from abele.poplibs.poputil.record_calls import takes_fields_of


@takes_fields_of(ReduceIntoCall, name="reduce_scatter")
def reduce_scatter_cross_replica_to_destination(call: ReduceIntoCall) -> None:
    """:func:`reduce_scatter_cross_replica` into ``destination``, [⌈n/size⌉] of the type of ``data``.

    Raises:
        TensorError: ``destination`` has another shape.
        TypeMismatchError: ``destination`` has another type.
    """
    data, size = call.data, call.group.members(call.graph.replicas).shape[1]
    _check(call.name, data, call.destination, (-(-data.size // size),))
    made = reduce_scatter_cross_replica(**vars(call.reduction()))
    call.prog.add(Copy(made, call.destination))


def all_gather_cross_replica_to_destination(
    graph: Graph,
    data: Tensor,
    destination: Tensor,
    prog: Sequence,
    group: CommGroup = ALL,
    *,
    options: Options = None,
    name: str = "all_gather",
) -> None:
    """:func:`all_gather_cross_replica` into ``destination``, [size, *shape] of the type of ``data``.

    Raises:
        TensorError: ``destination`` has another shape.
        TypeMismatchError: ``destination`` has another type.
    """
    size = group.members(graph.replicas).shape[1]
    _check(name, data, destination, (size, *data.shape))
    made = all_gather_cross_replica(graph, data, prog, group, options=options, name=name)
    prog.add(Copy(made, destination))


def _check(name: str, data: Tensor, destination: Tensor, shape: tuple[int, ...]) -> None:
    check_type(name, data, destination)
    if destination.shape != shape:
        raise TensorError(f"{name}: {destination!r} has shape {list(destination.shape)}, the result has {list(shape)}")
