"""Collectives between replicas that lie apart: the same as those between neighbours, which take any stride."""

from __future__ import annotations

from abele.frontends.popxl.ops.collectives import replica_sharded_slice as replica_sharded_slice_strided
from abele.frontends.popxl.ops.collectives import replicated_all_gather
from abele.frontends.popxl.ops.collectives import replicated_all_reduce as replicated_all_reduce_strided
from abele.frontends.popxl.ops.collectives import replicated_all_reduce_ as replicated_all_reduce_strided_
from abele.frontends.popxl.ops.collectives import replicated_reduce_scatter as replicated_reduce_scatter_strided
from abele.frontends.popxl.replicas import ReplicaGrouping
from abele.frontends.popxl.tensors import Tensor
from abele.frontends.popxl_addons.ops.replicated_all_reduce_TP import (
    replicated_all_reduce_identical_grad_inputs as replicated_all_reduce_strided_identical_grad_inputs,
)
from abele.frontends.popxl_addons.ops.replicated_all_reduce_TP import (
    replicated_all_reduce_identical_inputs as replicated_all_reduce_strided_identical_inputs,
)


def replicated_all_gather_strided(
    t: Tensor, group: ReplicaGrouping | None = None, output_shape: str = "auto", axis: int = 0
) -> Tensor:
    """It of all replicas of a group, as ``popxl.ops.collectives.replicated_all_gather``; the group comes first."""
    return replicated_all_gather(t, axis, group, output_shape)


__all__ = [
    "replica_sharded_slice_strided",
    "replicated_all_gather_strided",
    "replicated_all_reduce_strided",
    "replicated_all_reduce_strided_",
    "replicated_all_reduce_strided_identical_grad_inputs",
    "replicated_all_reduce_strided_identical_inputs",
    "replicated_reduce_scatter_strided",
]
