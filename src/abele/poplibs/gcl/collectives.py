"""Collectives between the replicas of a graph."""

from __future__ import annotations

from abele.errors import TensorError
from abele.graph import Graph, Tensor, concat
from abele.graph.gather import reorder_to_simplify
from abele.graph.program import Copy, Sequence
from abele.poplibs.gcl.calls import ALL, BroadcastCall, ReduceIntoCall, ReplicasCall, ReplicasReduceCall, check_type
from abele.poplibs.gcl.groups import CommGroup
from abele.poplibs.gcl.levels import levels_of, members_of
from abele.poplibs.gcl.operators import CollectiveOperator, after_receiving, before_sending
from abele.poplibs.gcl.pairwise import Pairwise, all_reduce_plan
from abele.poplibs.gcl.ring import Ring
from abele.poplibs.gcl.tile_order import TileOrder
from abele.poplibs.poputil.layout import clone
from abele.poplibs.poputil.mapping import map_tensor_linearly
from abele.poplibs.poputil.options import Options
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
        group: Replicas that communicate with each other.
        options: See :data:`COLLECTIVE_OPTIONS`.
        name: Name of the steps.

    Raises:
        InvalidOptionError: A misspelt operator or option.
        TypeMismatchError: The operator does not take elements of this type.
        GraphReplicationError: The replicas do not divide into such groups.

    Model: reduce-scatter and all-gather on a ring: 2·(n−1)/n of the bytes go over each link, half of it each way where
    the method runs both ways. Over several racks, within each of them and between them one after the other
    (:mod:`abele.poplibs.gcl.levels`). Small tensors are swapped whole two by two, where that is estimated to take less
    time (:mod:`abele.poplibs.gcl.pairwise`). All replicas have the same bits.
    """
    out = clone(call.graph, call.data, f"{call.name}/out")
    _all_reduce(call, out)
    return out


@takes_fields_of(ReplicasReduceCall, name="all_reduce")
def all_reduce_cross_replica_in_place(call: ReplicasReduceCall) -> None:
    """Overwrite ``data`` with its reduction over the group; see :func:`all_reduce_cross_replica`."""
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
    graph, prog, kind, method = call.graph, call.prog, call.kind(), call.method()
    with graph.scope(call.name):
        if kind is CollectiveOperator.LOCAL or not call.data.size:
            prog.add(Copy(call.data, destination))
            return
        sent = before_sending(graph, kind, call.data, prog, "all_reduce").flatten()
        plan = all_reduce_plan(graph, call.group, method, kind, sent.bytes)
        if isinstance(plan, Pairwise):
            # What is overwritten with its own sum is one tensor.
            flat = (
                sent
                if destination is call.data and kind is not CollectiveOperator.SQUARE_ADD
                else destination.flatten()
            )
            plan.all_reduce(sent, flat, kind, prog, "swap")
            after_receiving(graph, kind, flat, plan.size, prog, "swap")
            return
        # In the order of memory they are few pieces; the sum does not care about the order.
        sent, (goal,) = reorder_to_simplify(sent, [destination.flatten()])
        order = TileOrder.of(graph, sent, plan.size)
        own = plan.reduce_scatter(order.arranged(sent), kind, prog, "reduce_scatter")
        after_receiving(graph, kind, own, plan.size, prog, "reduce_scatter")
        whole = plan.all_gather(own, prog, "all_gather")
        prog.add(Copy(*order.paired(whole, goal)))


@takes_fields_of(ReplicasReduceCall, name="reduce_scatter")
def reduce_scatter_cross_replica(call: ReplicasReduceCall) -> Tensor:
    """The replica's part of ``data`` combined over its group: [⌈n/size⌉] of n elements.

    The replica of rank r has elements r·⌈n/size⌉ on; what lies behind the last element is zero before ``op``.
    ``LOCAL`` gives each replica its part of its own data. Arguments and errors as of :func:`all_reduce_cross_replica`.
    """
    graph, prog, kind, method = call.graph, call.prog, call.kind(), call.method()
    with graph.scope(call.name):
        sent = before_sending(graph, kind, call.data, prog, "reduce_scatter").flatten()
        if kind is CollectiveOperator.LOCAL:
            alone = Ring(graph, members_of(graph, call.group))
            return alone.own_row(_rows(graph, sent, alone.size), prog, "own")
        levels = levels_of(graph, call.group, method, sent.bytes, lambda plan: plan.scatter_seconds)
        rows = _rows(graph, sent, levels.size)
        own = levels.reduce_scatter(rows, kind, prog, "reduce_scatter")
        after_receiving(graph, kind, own, levels.size, prog, "own")
        return own


@takes_fields_of(ReplicasCall, name="all_gather")
def all_gather_cross_replica(call: ReplicasCall) -> Tensor:
    """``data`` of all replicas of the group by rank: [size, *shape].

    Arguments as of :func:`all_reduce_cross_replica`.

    Raises:
        InvalidOptionError: A misspelt option.
        GraphReplicationError: The replicas do not divide into such groups.
    """
    graph, method, flat = call.graph, call.method(), call.data.flatten()
    with graph.scope(call.name):
        size = members_of(graph, call.group).shape[1]
        levels = levels_of(graph, call.group, method, size * flat.bytes, lambda plan: plan.gather_seconds)
        whole = levels.all_gather(flat, call.prog, "all_gather")
    return whole.reshape((size, *call.data.shape))


@takes_fields_of(ReplicasCall, name="all_to_all")
def all_to_all_cross_replica(call: ReplicasCall) -> Tensor:
    """Row r of the replica of rank p becomes row p of the replica of rank r: [size, …] → [size, …].

    Raises:
        TensorError: ``data`` does not have one row for each replica of the group.
    """
    graph, data, name = call.graph, call.data, call.name
    call.method()
    ring = Ring(graph, members_of(graph, call.group))
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
    call.method()
    ring = Ring(graph, members_of(graph, call.group))
    if not 0 <= root < ring.size:
        raise TensorError(f"{call.name}: no rank {root} in groups of {counted(ring.size, 'replica')}")
    with graph.scope(call.name):
        return ring.broadcast(data.flatten().reshape((1, -1)), root, call.prog, "send").reshape(data.shape)


def _rows(graph: Graph, flat: Tensor, size: int) -> Tensor:
    """``flat`` with zeros behind it as [size, width]."""
    width = -(-flat.size // size)
    missing = width * size - flat.size
    if missing:
        zeros = graph.constant(flat.dtype, (missing,), 0, name="padding")
        flat = concat([flat, map_tensor_linearly(graph, zeros)])
    return flat.reshape((size, width))


# Collectives between replicas into given tensors.


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
