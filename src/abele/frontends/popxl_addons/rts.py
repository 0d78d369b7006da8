"""Replicated tensor sharding: graphs that make tensors whole of replicas' parts, and that reduce them to parts."""

from __future__ import annotations

import math
from typing import Any

from abele.frontends import popxl
from abele.frontends.popxl import ReplicaGrouping, Tensor, TensorSpec
from abele.frontends.popxl.errors import GraphTypeError
from abele.frontends.popxl.ops import collectives
from abele.frontends.popxl_addons.dot_tree import DotTree
from abele.frontends.popxl_addons.graph import GraphWithNamedArgs
from abele.frontends.popxl_addons.named_replica_grouping import NamedReplicaGrouping, get_ild_replica_grouping
from abele.frontends.popxl_addons.named_tensors import NamedTensors


def replica_sharded_spec(t: Any, shard_over: int | ReplicaGrouping) -> TensorSpec:
    """The spec of a replica's part of a tensor: ⌈elements / replicas⌉ in one dimension, with the whole shape.

    Args:
        t: Tensor, or anything with shape and dtype.
        shard_over: Number of replicas that have a part each, or a grouping of such groups.
    """
    count = shard_over if isinstance(shard_over, int) else shard_over.group_size
    if count <= 1:
        return TensorSpec(tuple(t.shape), t.dtype, tuple(getattr(t, "meta_shape", ()) or ()))
    return TensorSpec((-(-math.prod(t.shape) // count),), t.dtype, tuple(t.shape))


def gathered(t: Tensor, group: ReplicaGrouping | None) -> Tensor:
    """A tensor that replicas have parts of, whole; others as they are."""
    return collectives.replicated_all_gather(t, group=group) if t.meta_shape else t


def sliced(t: Tensor, group: ReplicaGrouping | None) -> Tensor:
    """A replica's part of a tensor that all have; of groups of one replica the whole."""
    if group is not None and group.group_size == 1:
        return t
    return collectives.replica_sharded_slice(t, group)


def all_gather_replica_sharded_graph(
    tensors: NamedTensors,
    use_io_tiles: bool = False,
    replica_groups: NamedReplicaGrouping | None = None,
) -> tuple[GraphWithNamedArgs, list[str]]:
    """The graph that makes tensors whole of replicas' parts, and the names of its outputs.

    ```python
    gather, names = addons.all_gather_replica_sharded_graph(NamedTensors.pack(names, load.graph.outputs))
    layer = NamedTensors.pack(names, gather.bind(parts).call())
    ```

    Args:
        tensors: Tensors like those that it is called with; those without ``meta_shape`` go through.
        use_io_tiles: No meaning here.
        replica_groups: Replicas that have the parts of each, by name; by default all.
    """
    names, found = tensors.unpack()
    made, args = popxl.gcg().ir.create_empty_graph("all_gather"), NamedTensors()
    with made, popxl.in_sequence():
        for name, tensor in zip(names, found, strict=True):
            entered = _entered(name, tensor)
            args.insert(name, entered)
            made.outputs.append(gathered(entered, _group_of(replica_groups, name)))
    return GraphWithNamedArgs(made, args), names


def reduce_replica_sharded_graph(
    tensors: NamedTensors,
    op: str = "mean",
    use_io_tiles: bool = False,
    shard_groups: NamedReplicaGrouping | None = None,
    replica_group: ReplicaGrouping | None = None,
) -> tuple[GraphWithNamedArgs, list[str]]:
    """The graph that combines replicas' tensors, such as gradients, and the names of its outputs.

    Args:
        tensors: Tensors like those that it is called with.
        op: Kind of combination: ``mean``, ``add`` and so on.
        use_io_tiles: No meaning here.
        shard_groups: Replicas over which the result of each is sharded, by name; names that are not there are whole.
        replica_group: Replicas whose tensors are combined; by default all.

    Raises:
        GraphTypeError: ``tensors`` is no tree of tensors.
    """
    if not isinstance(tensors, DotTree):
        raise GraphTypeError(f"reduce_replica_sharded_graph takes NamedTensors, not {tensors!r}")
    names, found = tensors.unpack()
    made, args = popxl.gcg().ir.create_empty_graph("reduce_scatter"), NamedTensors()
    with made, popxl.in_sequence():
        for name, tensor in zip(names, found, strict=True):
            entered = _entered(name, tensor)
            args.insert(name, entered)
            made.outputs.append(reduced(entered, op, _group_of(shard_groups, name), replica_group))
    return GraphWithNamedArgs(made, args), names


def reduced(t: Tensor, op: str, shard_group: ReplicaGrouping | None, replica_group: ReplicaGrouping | None) -> Tensor:
    """Replicas' tensors combined: whole, or a part on each replica of a group.

    Parts are combined within the groups that share them first, and then with the same parts of other groups.
    """
    if shard_group is None or shard_group.group_size == 1:
        return collectives.replicated_all_reduce(t, op, replica_group)
    part = collectives.replicated_reduce_scatter(
        t, op, shard_group, configure_output_for_replicated_tensor_sharding=True
    )
    others = _same_rank(shard_group, replica_group)
    if others.group_size == 1:
        return part
    return collectives.replicated_all_reduce(part, "add" if op == "square_add" else op, others)


def _same_rank(shard_group: ReplicaGrouping, replica_group: ReplicaGrouping | None) -> ReplicaGrouping:
    """Replicas of a group that have the same part."""
    ir = popxl.gcg().ir
    ranks = shard_group.transpose().assignment
    whole = ir.replica_grouping().assignment if replica_group is None else replica_group.assignment
    numbers: dict[tuple[int, int], int] = {}
    return ir.replica_grouping_from_assignments(
        [numbers.setdefault(pair, len(numbers)) for pair in zip(whole, ranks, strict=True)]
    )


def _entered(name: str, t: Tensor | TensorSpec) -> Tensor:
    return popxl.graph_input(t.shape, t.dtype, name, meta_shape=t.meta_shape)


def _group_of(groups: NamedReplicaGrouping | None, name: str) -> ReplicaGrouping | None:
    found = None if groups is None else groups.get(name, None)
    return found if isinstance(found, ReplicaGrouping) else None


__all__ = [
    "all_gather_replica_sharded_graph",
    "gathered",
    "get_ild_replica_grouping",
    "reduce_replica_sharded_graph",
    "reduced",
    "replica_sharded_spec",
    "sliced",
]
