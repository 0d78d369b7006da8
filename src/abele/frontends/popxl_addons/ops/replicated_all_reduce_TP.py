# ruff: noqa: N999  (the original's name)
"""Sums over replicas that share a model: three, which differ in their gradients.

===========================================  ==============  =====================
op                                           forward         gradient
===========================================  ==============  =====================
``replicated_all_reduce``                    sum             sum of gradients
``replicated_all_reduce_identical_inputs``   nothing         sum of gradients
``replicated_all_reduce_identical_grad_…``   sum             nothing
===========================================  ==============  =====================

A layer whose weights lie on several replicas begins with the second, as each replica makes another part of the gradient
of its input. It ends with the third, after which all replicas compute the same. They are f and g of Megatron-LM. For
example, on 2 replicas a ``Linear`` from 8 to 16 features with 8 of them on each, then one from these 8 back to 8.
"""

from __future__ import annotations

from abele.errors import UnsupportedOpError
from abele.frontends.popxl.ops.collectives import replicated_all_reduce, replicated_all_reduce_
from abele.frontends.popxl.ops.common import checked, emit
from abele.frontends.popxl.replicas import ReplicaGrouping
from abele.frontends.popxl.tensors import Tensor
from abele.frontends.popxl_addons.ops.groups import comm_group
from abele.network.ops import build


def replicated_all_reduce_identical_inputs(t: Tensor, op: str = "add", group: ReplicaGrouping | None = None) -> Tensor:
    """The tensor itself, alike on all replicas of a group, whose gradients are summed over them."""
    kind = "replicated_all_reduce_identical_inputs"
    checked(kind, t)
    _check_sum(kind, op)
    members = comm_group(group)
    return emit(kind, lambda net, v: build.replica_copy(net, v, members), t)


def replicated_all_reduce_identical_grad_inputs(
    t: Tensor, op: str = "add", group: ReplicaGrouping | None = None
) -> Tensor:
    """The sum over a group of replicas, whose gradient is alike on all of them and stays as it is."""
    kind = "replicated_all_reduce_identical_grad_inputs"
    checked(kind, t)
    _check_sum(kind, op)
    members = comm_group(group)
    return emit(kind, lambda net, v: build.replica_sum(net, v, members), t)


def _check_sum(kind: str, op: str) -> None:
    if op != "add":
        raise UnsupportedOpError(
            f"{kind} of {op!r} has no such gradient", remedy="op='add', or popxl.ops.collectives.replicated_all_reduce"
        )


__all__ = [
    "replicated_all_reduce",
    "replicated_all_reduce_",
    "replicated_all_reduce_identical_grad_inputs",
    "replicated_all_reduce_identical_inputs",
]
