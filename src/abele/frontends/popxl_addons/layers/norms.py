"""Norms of layers and of groups of channels, also of features that lie on several replicas."""

from __future__ import annotations

from functools import partial

import numpy as np

from abele.expr import apply
from abele.expr.derivative import arg
from abele.frontends.popxl import ops
from abele.frontends.popxl.graph import gir
from abele.frontends.popxl.ops.common import checked, emit
from abele.frontends.popxl.replicas import ReplicaGrouping
from abele.frontends.popxl.tensors import Tensor
from abele.frontends.popxl_addons.module import Module
from abele.frontends.popxl_addons.ops.groups import comm_group
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops.replicas import APART
from abele.numerics import f32


class LayerNorm(Module):
    """Normalisation over the last axis, with the variables ``weight`` of ones and ``bias`` of zeros.

    Args:
        cache: Give the graph made before where arguments are like those before.
        replica_grouping: Replicas that hold the same variables.
    """

    def __init__(self, cache: bool = False, replica_grouping: ReplicaGrouping | None = None) -> None:
        super().__init__(cache=cache)
        self.replica_grouping = replica_grouping

    def build(self, x: Tensor, eps: float = 1e-5) -> Tensor:
        """``x`` normalised."""
        return ops.layer_norm(x, *self.variables(x, x.shape[-1], self.replica_grouping), eps=eps)

    def variables(self, x: Tensor, width: int, same: ReplicaGrouping | None) -> tuple[Tensor, Tensor]:
        """Inputs for weight and bias, which some replicas hold alike."""
        weight = self.add_variable_input("weight", partial(np.ones, width), x.dtype, replica_grouping=same)
        bias = self.add_variable_input("bias", partial(np.zeros, width), x.dtype, replica_grouping=same)
        return weight, bias


class GroupNorm(LayerNorm):
    """Normalisation of groups of channels of [batch, channels, …], with the variables ``weight`` and ``bias``.

    Args:
        num_groups: Groups of channels.
        cache: Give the graph made before where arguments are like those before.
        replica_grouping: Replicas that hold the same variables.
    """

    def __init__(self, num_groups: int, cache: bool = False, replica_grouping: ReplicaGrouping | None = None) -> None:
        super().__init__(cache, replica_grouping)
        self.num_groups = num_groups

    def build(self, x: Tensor, eps: float = 1e-5) -> Tensor:
        """``x`` normalised."""
        return ops.group_norm(
            x, *self.variables(x, x.shape[1], self.replica_grouping), num_groups=self.num_groups, eps=eps
        )


class LayerNormDistributed(LayerNorm):
    """A layer norm of features that lie on several replicas: each has a shard of them, and of both variables.

    Args:
        replica_grouping: Groups of replicas that hold the same shard; the transposed groups have all features. By
            default all replicas hold one shard each.
        cache: Give the graph made before where arguments are like those before.
    """

    def __init__(self, replica_grouping: ReplicaGrouping | None = None, cache: bool = False) -> None:
        super().__init__(cache, replica_grouping)

    def build(self, x: Tensor, eps: float = 1e-5) -> Tensor:
        """The replica's shard [..., features / replicas], normalised over all features."""
        same = self.replica_grouping or gir().replica_grouping(group_size=1)
        return layer_norm_distributed(x, *self.variables(x, x.shape[-1], same), eps=eps, group=same.transpose())


def layer_norm_distributed(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5, group: ReplicaGrouping | None = None
) -> Tensor:
    """Normalisation over the last axis and all replicas of a group, of which each has a shard of the features.

    Args:
        x: The replica's features, [..., shard].
        weight: Their factors.
        bias: Their addends.
        eps: Added to the variance.
        group: Replicas that have all features; by default all.
    """
    checked("layer_norm_distributed", x, weight, bias)
    members = comm_group(group)
    count = x.shape[-1] * members.size
    a, b, c, d = arg(0), arg(1), arg(2), arg(3)

    def meaning(net: BlockBuilder, v: Value, gain: Value, shift: Value) -> Value:
        def mean(value: Value) -> Value:
            # Every replica does something else with a mean, so that its gradient is the sum of theirs.
            own = build.reduce(net, value, [v.ndim - 1], keep=True, scale=1.0 / count)
            return build.replica_sum(net, own, members, APART)

        wide = build.cast(net, v, f32)
        centred = build.map_(net, a - b, [wide, mean(wide)], f32)
        variance = mean(build.map_(net, a * a, [centred], f32))
        factors = [build.cast(net, g, f32) for g in (gain, shift)]
        return build.map_(net, a * apply("rsqrt", b + float(eps)) * c + d, [centred, variance, *factors], v.dtype)

    return emit("layer_norm_distributed", meaning, x, weight, bias)


__all__ = ["GroupNorm", "LayerNorm", "LayerNormDistributed", "layer_norm_distributed"]
