"""Replicated tensor sharding: variables in streaming memory of which each replica has a part.

The host sees whole tensors. A tensor of n elements, shared by s replicas, is cut in one dimension into parts of ⌈n / s⌉
elements, the last ones filled up with zeros: [3, 3] on 4 replicas has parts of 3, of which the last is all padding. A
part has the whole's shape as its ``meta_shape``, and ``replicated_all_gather`` makes it whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError
from abele.frontends.popxl.graph import get_ir
from abele.frontends.popxl.ir import Ir
from abele.frontends.popxl.ops.remote import remote_load
from abele.frontends.popxl.remote import RemoteBuffer, RemoteVariable, in_row
from abele.frontends.popxl.replicas import HostRows, ReplicaGrouping, checked_grouping
from abele.frontends.popxl.tensors import Tensor, host_array, host_rows


def _check_replicas(what: str, ir: Ir) -> None:
    """Raise unless there are several replicas.

    Raises:
        GraphArgumentError: There is one.
    """
    if ir.replication_factor < 2:
        raise GraphArgumentError(
            f"{what} needs a replication factor greater than 1", remedy="popxl.Ir(replication=n), or popxl.variable"
        )


def _check_dimensions(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape of tensors with parts.

    Raises:
        GraphArgumentError: A scalar, which has none.
    """
    if not tuple(shape):
        raise GraphArgumentError("a tensor without dimensions has no parts", remedy="popxl.variable, or shape (1,)")
    return tuple(int(n) for n in shape)


def sharing_groups(ir: Ir, grouping: ReplicaGrouping, shard_over: int | None) -> ReplicaGrouping:
    """Groups whose replicas share tensors: as many neighbours within each group of a grouping.

    Raises:
        GraphArgumentError: A group does not divide so.
    """
    count = grouping.group_size if shard_over is None else shard_over
    if isinstance(count, bool) or not isinstance(count, int) or count < 1 or grouping.group_size % count:
        raise GraphArgumentError(
            f"tensors are to be sharded over {count!r} replicas, in groups of {grouping.group_size}",
            remedy="a number that divides the size of the group",
        )
    return ir.replica_grouping(grouping.stride, count)


def replica_sharded_buffer(
    shape: Sequence[int],
    dtype: Any,
    replica_grouping: ReplicaGrouping | None = None,
    shard_over: int | None = None,
    entries: int = 1,
) -> RemoteBuffer:
    """A buffer for parts of tensors.

    Args:
        shape: Shape of a whole tensor.
        dtype: Element type.
        replica_grouping: Groups of replicas with values of their own; by default one of all.
        shard_over: Replicas of a group that share a tensor; by default all of it.
        entries: Number of rows.

    Raises:
        GraphArgumentError: There is one replica, or a group does not divide so.
    """
    ir = get_ir()
    _check_replicas("replica_sharded_buffer", ir)
    grouping = checked_grouping(ir, replica_grouping, is_constant=True)
    sharing = sharing_groups(ir, grouping, shard_over)
    rows = HostRows(_check_dimensions(shape), grouping, shards=sharing)
    made = RemoteBuffer(ir, rows.replica_shape, dtype, entries, meta_shape=rows.shape)
    made.grouping, made.shards = grouping, sharing
    return made


def remote_replica_sharded_variable(
    data: Any,
    remote_buffer: RemoteBuffer,
    offset: int = 0,
    dtype: Any = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    retrieval_mode: str | None = None,
) -> RemoteVariable:
    """A new variable, of which replicas have parts in a row of a buffer.

    Args:
        data: Whole values; a first dimension has those of each group of replicas, absent for one group.
        remote_buffer: Buffer of :func:`replica_sharded_buffer`, or one with rows of as many elements as a part has.
        offset: Number of the row.
        dtype: Element type, by default that of the data.
        name: Its name.
        downcast: Narrow data of 64 bits.
        replica_grouping: Groups of replicas with values of their own; by default those of the buffer.
        retrieval_mode: ``one_per_group``: replicas that share a tensor have one value of it.

    Raises:
        GraphArgumentError: There is one replica, or rows have another size than parts, or it is as
            :func:`~abele.frontends.popxl.remote.remote_variable` says.
    """
    ir = get_ir()
    _check_replicas("remote_replica_sharded_variable", ir)
    if not isinstance(remote_buffer, RemoteBuffer):
        raise GraphTypeError(f"remote_replica_sharded_variable takes a RemoteBuffer, not {remote_buffer!r}")
    if retrieval_mode == "all_replicas":
        raise GraphArgumentError(
            "replicas that share a variable have no values of their own", remedy="retrieval_mode='one_per_group'"
        )
    grouping = checked_grouping(ir, replica_grouping or remote_buffer.grouping, is_constant=True)
    sharing = remote_buffer.shards or ir.replica_grouping(grouping.stride, grouping.group_size)
    if any(len({grouping.assignment[n] for n in members}) > 1 for members in sharing.members):
        raise GraphArgumentError(
            f"replicas of {sharing!r} share a tensor, and have different ones by {grouping!r}",
            remedy="the grouping of the buffer",
        )
    array, kind = host_array(data, dtype, downcast)
    whole = _check_dimensions(host_rows(ir, array.shape, grouping, retrieval_mode).shape)
    if remote_buffer.meta_shape not in ((), whole):
        raise GraphArgumentError(
            f"Tensor {name or 'v'} {kind.name}{list(whole)} does not match buffer.",
            because=f"rows of {remote_buffer!r} are parts of tensors {list(remote_buffer.meta_shape)}",
        )
    rows = HostRows(whole, grouping, shards=sharing)
    before = remote_buffer.meta_shape
    remote_buffer.meta_shape = whole
    try:
        made = in_row(remote_buffer, offset, array, kind, rows, name)
    except GraphArgumentError:
        remote_buffer.meta_shape = before
        raise
    remote_buffer.grouping, remote_buffer.shards = remote_buffer.grouping or grouping, sharing
    return made


def replica_sharded_variable(
    data: Any,
    dtype: Any = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    shard_over: int | None = None,
    retrieval_mode: str | None = None,
) -> tuple[RemoteVariable, Tensor]:
    """A new variable in a buffer of its own, and the part of it that a replica loads.

    The variable is for the host's side of sessions; ``ops.remote_store(variable.buffer, 0, part)`` changes it.
    """
    ir = get_ir()
    _check_replicas("replica_sharded_variable", ir)
    array, kind = host_array(data, dtype, downcast)
    shape = host_rows(ir, array.shape, replica_grouping, retrieval_mode).shape
    buffer = replica_sharded_buffer(shape, kind, replica_grouping, shard_over)
    made = remote_replica_sharded_variable(array, buffer, 0, kind, name, downcast, retrieval_mode=retrieval_mode)
    return made, remote_load(buffer, 0, made.name)


__all__ = ["remote_replica_sharded_variable", "replica_sharded_buffer", "replica_sharded_variable"]
