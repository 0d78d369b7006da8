"""Collectives between the replicas of a graph."""

from __future__ import annotations

import numpy as np

from abele.errors import TensorError
from abele.graph import Graph, Tensor, concat
from abele.graph.program import Copy
from abele.poplibs.gcl.calls import BroadcastCall, ReduceIntoCall, ReplicasCall, ReplicasReduceCall, check_type
from abele.poplibs.gcl.groups import CommGroup
from abele.poplibs.gcl.operators import CollectiveOperator, after_receiving, before_sending
from abele.poplibs.gcl.ring import Ring
from abele.poplibs.poputil.layout import clone
from abele.poplibs.poputil.mapping import map_tensor_linearly
from abele.poplibs.poputil.record_calls import takes_fields_of
from abele.words import counted


@takes_fields_of(ReplicasReduceCall, name="all_reduce")
def all_reduce_cross_replica(call: ReplicasReduceCall) -> Tensor:
    """``data`` combined over the replicas of each group; all of them have the result, a new tensor like ``data``.

    Args:
        graph: A graph of replicas.
        data: Any shape.
        op: A :class:`CollectiveOperator` or its name.
        prog: Sequence that the steps are appended to.
        group: Who communicates.
        options: See :data:`COLLECTIVE_OPTIONS`.
        name: Name of the steps.

    Raises:
        InvalidOptionError: A misspelt operator or option.
        TypeMismatchError: The operator does not take elements of this type.
        GraphReplicationError: The replicas do not divide into such groups.

    Model: reduce-scatter and all-gather on a ring: 2·(n−1)/n of the bytes go over each link.
    """
    out = clone(call.graph, call.data, f"{call.name}/out")
    _all_reduce(call, out)
    return out


@takes_fields_of(ReplicasReduceCall, name="all_reduce")
def all_reduce_cross_replica_in_place(call: ReplicasReduceCall) -> None:
    """Overwrite ``data`` with what it is over the group; see :func:`all_reduce_cross_replica`."""
    _all_reduce(call, call.data)


@takes_fields_of(ReduceIntoCall, name="all_reduce")
def all_reduce_cross_replica_to_destination(call: ReduceIntoCall) -> None:
    """As :func:`all_reduce_cross_replica`, into a tensor of the same type and shape.

    Raises:
        TensorError: The shapes differ.
        TypeMismatchError: The types differ.
    """
    data, destination = call.data, call.destination
    check_type(call.name, data, destination)
    if data.shape != destination.shape:
        raise TensorError(f"{call.name}: {data!r} cannot become {destination!r}: their shapes differ")
    _all_reduce(call.reduction(), destination)


def _all_reduce(call: ReplicasReduceCall, destination: Tensor) -> None:
    graph, prog, kind, directions = call.graph, call.prog, call.kind(), call.directions()
    with graph.scope(call.name):
        if kind is CollectiveOperator.LOCAL:
            prog.add(Copy(call.data, destination))
            return
        sent = before_sending(graph, kind, call.data, prog, "all_reduce")
        for n, (ring, rows, begin, end) in enumerate(_parts(graph, sent, call.group, directions)):
            own = ring.reduce_scatter(rows, kind, prog, f"reduce_scatter{n}")
            after_receiving(graph, kind, own, ring.size, prog, f"reduce_scatter{n}")
            whole = ring.all_gather(own, prog, f"all_gather{n}")
            prog.add(Copy(whole.flatten()[: end - begin], destination.flatten()[begin:end]))


@takes_fields_of(ReplicasReduceCall, name="reduce_scatter")
def reduce_scatter_cross_replica(call: ReplicasReduceCall) -> Tensor:
    """The replica's part of ``data`` combined over its group: [⌈n/size⌉] of n elements.

    The replica of rank r has elements r·⌈n/size⌉ on; what lies behind the last element is zero before ``op``.
    ``LOCAL`` gives each replica its part of its own data. Arguments and errors as of :func:`all_reduce_cross_replica`.
    """
    graph, prog, kind, directions = call.graph, call.prog, call.kind(), call.directions()
    with graph.scope(call.name):
        sent = before_sending(graph, kind, call.data, prog, "reduce_scatter")
        ring = Ring(graph, call.group, directions[0])
        rows = _rows(graph, sent.flatten(), ring.size)
        if kind is CollectiveOperator.LOCAL:
            return ring.own_row(rows, prog, "own")
        pieces = []
        cuts = np.arange(len(directions) + 1) * rows.shape[1] // len(directions)
        for n, clockwise in enumerate(directions):
            part = rows[:, int(cuts[n]) : int(cuts[n + 1])]
            if part.size:
                pieces.append(Ring(graph, call.group, clockwise).reduce_scatter(part, kind, prog, f"part{n}"))
        own = concat(pieces)
        after_receiving(graph, kind, own, ring.size, prog, "own")
        return own


@takes_fields_of(ReplicasCall, name="all_gather")
def all_gather_cross_replica(call: ReplicasCall) -> Tensor:
    """``data`` of all replicas of the group by rank: [size, *shape].

    Arguments as of :func:`all_reduce_cross_replica`.

    Raises:
        InvalidOptionError: A misspelt option.
        GraphReplicationError: The replicas do not divide into such groups.
    """
    graph, directions, flat = call.graph, call.directions(), call.data.flatten()
    cuts = np.arange(len(directions) + 1) * flat.size // len(directions)
    with graph.scope(call.name):
        pieces = []
        for n, clockwise in enumerate(directions):
            part = flat[int(cuts[n]) : int(cuts[n + 1])]
            if part.size:
                pieces.append(Ring(graph, call.group, clockwise).all_gather(part, call.prog, f"part{n}"))
        whole = concat(pieces, 1)
    return whole.reshape((whole.shape[0], *call.data.shape))


@takes_fields_of(ReplicasCall, name="all_to_all")
def all_to_all_cross_replica(call: ReplicasCall) -> Tensor:
    """Row r of the replica of rank p becomes row p of the replica of rank r: [size, …] → [size, …].

    Raises:
        TensorError: ``data`` does not have one row for each replica of the group.
    """
    graph, data, name = call.graph, call.data, call.name
    ring = Ring(graph, call.group, call.directions()[0])
    if data.ndim == 0 or data.shape[0] != ring.size:
        raise TensorError(
            f"{name}: {data!r} does not have one row for each of the {counted(ring.size, 'replica')} of a group",
            remedy=f"shape ({ring.size}, …)",
        )
    with graph.scope(name):
        return ring.all_to_all(data.reshape((ring.size, -1)), call.prog, "exchange").reshape(data.shape)


@takes_fields_of(BroadcastCall, name="broadcast")
def broadcast_cross_replica(call: BroadcastCall) -> Tensor:
    """``data`` of the replica of rank ``root`` in all replicas of its group.

    Raises:
        TensorError: The group has no such rank.
    """
    graph, data, root = call.graph, call.data, call.root
    ring = Ring(graph, call.group, call.directions()[0])
    if not 0 <= root < ring.size:
        raise TensorError(f"{call.name}: no rank {root} in groups of {counted(ring.size, 'replica')}")
    with graph.scope(call.name):
        return ring.broadcast(data.flatten().reshape((1, -1)), root, call.prog, "send").reshape(data.shape)


def _parts(
    graph: Graph, data: Tensor, group: CommGroup, directions: tuple[bool, ...]
) -> list[tuple[Ring, Tensor, int, int]]:
    """Ring, rows by rank, and range of elements of each part that takes a ring of its own."""
    flat = data.flatten()
    cuts = np.arange(len(directions) + 1) * flat.size // len(directions)
    parts = []
    for n, clockwise in enumerate(directions):
        begin, end, ring = int(cuts[n]), int(cuts[n + 1]), Ring(graph, group, clockwise)
        if end > begin:
            parts.append((ring, _rows(graph, flat[begin:end], ring.size), begin, end))
    return parts


def _rows(graph: Graph, flat: Tensor, size: int) -> Tensor:
    """``flat`` with zeros behind it as [size, width]."""
    width = -(-flat.size // size)
    missing = width * size - flat.size
    if missing:
        zeros = graph.constant(flat.dtype, (missing,), 0, name="padding")
        flat = concat([flat, map_tensor_linearly(graph, zeros)])
    return flat.reshape((size, width))
