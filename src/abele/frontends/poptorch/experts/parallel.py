"""Experts over replicas: each replica of a group has some of them, and tokens travel there and back by all-to-all.

Replicas have inputs of their own. Of E experts each of R replicas has E / R; what a replica routed lies in the slots of
all E experts, [E, C, dim], and row r of [R, E / R, C, dim] is for replica r. After the exchange a replica has the slots
that all made for its experts, [E / R, R · C, dim]: the same order as groups of tokens have on one IPU.
"""

from __future__ import annotations

import torch

from abele.frontends.poptorch.capture import collectives
from abele.frontends.poptorch.functions.split_layers import together
from abele.frontends.poptorch.program.recording import isRunningOnIpu

assert collectives, "importing it registers its operators"


def exchange_in_group(value: torch.Tensor, group_size: int) -> torch.Tensor:
    """Row r of the replica of rank p as row p of the replica of rank r, for ``value`` [group_size, …].

    Its gradient goes back the same way. On the host, and in groups of one, it gives what it is given.
    """
    return torch.ops.abele.replica_exchange(value, group_size) if together(group_size) else value


def largest_of_replicas(value: torch.Tensor) -> torch.Tensor:
    """The largest ``value`` over all replicas, by which their loops may go; it has no gradient."""
    return torch.ops.abele.largest_of_replicas(value) if isRunningOnIpu() else value


def to_experts(slots: torch.Tensor, group_size: int) -> torch.Tensor:
    """Slots of all experts, [experts, capacity, dim], as those that all replicas have for the own experts."""
    if not together(group_size):
        return slots
    experts, capacity, dim = slots.shape
    sent = slots.reshape(group_size, experts // group_size, capacity, dim)
    came = exchange_in_group(sent, group_size)
    return came.transpose(0, 1).reshape(experts // group_size, group_size * capacity, dim)


def from_experts(made: torch.Tensor, group_size: int) -> torch.Tensor:
    """Results of the own experts for all replicas, as the slots of all experts for the own tokens."""
    if not together(group_size):
        return made
    own, slots, dim = made.shape
    sent = made.reshape(own, group_size, slots // group_size, dim).transpose(0, 1)
    came = exchange_in_group(sent.contiguous(), group_size)
    return came.reshape(own * group_size, slots // group_size, dim)
