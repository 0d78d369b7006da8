"""Collectives of groups of consecutive replicas, which users call in the middle of a model.

On the host, and in groups of one, they give what they are given.
"""

from __future__ import annotations

import torch

from abele.frontends.poptorch.capture import collectives
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.program.recording import isRunningOnIpu

assert collectives, "importing it registers its operators"


def copy_to_group(value: torch.Tensor, group_size: int) -> torch.Tensor:
    """``value``, alike on the replicas of a group, before what differs between them: its gradient is summed.

    Args:
        value: The tensor.
        group_size: Consecutive replicas of a group.
    """
    return torch.ops.abele.replica_copy(value, group_size) if together(group_size) else value


def reduce_from_group(value: torch.Tensor, group_size: int, *, alike: bool = True) -> torch.Tensor:
    """The sum of ``value`` over the replicas of a group.

    Args:
        value: The tensor.
        group_size: Consecutive replicas of a group.
        alike: True if all replicas go on with the sum in the same way: its gradient is theirs as it is. Otherwise the
            gradient is summed as well.
    """
    return torch.ops.abele.replica_sum(value, group_size, _readers(alike)) if together(group_size) else value


def gather_from_group(value: torch.Tensor, dim: int, group_size: int, *, alike: bool = True) -> torch.Tensor:
    """The parts of the replicas of a group side by side along ``dim``; ``alike`` as of :func:`reduce_from_group`."""
    if not together(group_size):
        return value
    gathered: torch.Tensor = torch.ops.abele.replica_gather(value, dim, group_size, _readers(alike))
    return gathered


def scatter_to_group(value: torch.Tensor, dim: int, group_size: int) -> torch.Tensor:
    """The replica's part of a ``value`` that all replicas of a group have; gradients are gathered."""
    if not together(group_size):
        return value
    part: torch.Tensor = torch.ops.abele.replica_scatter(value, dim, group_size, False)
    return part


def reduce_scatter_to_group(value: torch.Tensor, dim: int, group_size: int) -> torch.Tensor:
    """The replica's part of the sum of ``value`` over a group; gradients are gathered."""
    if not together(group_size):
        return value
    part: torch.Tensor = torch.ops.abele.replica_scatter(value, dim, group_size, True)
    return part


def together(group_size: int) -> bool:
    """True on the device, in groups of more than one.

    Raises:
        Error: No size of a group.
    """
    if isinstance(group_size, bool) or not isinstance(group_size, int) or group_size < 1:
        raise Error(f"a group has a positive whole number of replicas, not {group_size!r}")
    return group_size > 1 and isRunningOnIpu()


def _readers(alike: bool) -> str:
    return "alike" if alike else "apart"
