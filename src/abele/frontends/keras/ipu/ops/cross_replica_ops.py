"""``cross_replica_ops``: sums and means over replicas."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from abele.errors import InvalidOptionError
from abele.frontends.keras.ipu.ops.primitives import SUM, replicas


def _size(replica_group_size: int | None) -> int:
    count = replicas()
    size = replica_group_size or count
    if count > 1 and (size < 1 or count % size):
        raise InvalidOptionError(f"{count} replicas do not divide into groups of {size}")
    return min(size, count)


def cross_replica_sum(x: Any, replica_group_size: int | None = None, name: str | None = None) -> Any:
    """The sum of ``x`` over the replicas of a group of consecutive ones; over all if no size is given.

    Raises:
        InvalidOptionError: The replicas do not divide into such groups.
    """
    return SUM.bind(jnp.asarray(x), size=_size(replica_group_size))


def cross_replica_mean(x: Any, replica_group_size: int | None = None, name: str | None = None) -> Any:
    """The mean of ``x`` over the replicas of a group; each divides before it sends."""
    x, size = jnp.asarray(x), _size(replica_group_size)
    return SUM.bind(x / size, size=size)


def assume_equal_across_replicas(tensors: Any, inplace: bool = False) -> Any:
    """The tensors themselves."""
    return tensors
