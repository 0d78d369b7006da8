"""``all_to_all_op``: what each replica has, for all."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from abele.errors import InvalidOptionError
from abele.frontends.keras.ipu.ops.primitives import GATHER, RANK, check_replicas


def all_gather(x: Any, replication_factor: int, name: str | None = None) -> Any:
    """The ``x`` of all replicas: [replicas, *shape of x].

    Raises:
        InvalidOptionError: Another number than the program has.
    """
    return GATHER.bind(jnp.asarray(x), size=check_replicas(replication_factor))


def all_to_all(
    x: Any, split_dimension: int, concat_dimension: int, number_of_replicas: int, name: str | None = None
) -> Any:
    """Parts of ``x`` along one dimension, one for each replica, joined along another by the replicas they come from.

    Raises:
        InvalidOptionError: Another number of replicas than the program has, or parts that are not equal.
    """
    x, count = jnp.asarray(x), check_replicas(number_of_replicas)
    if x.shape[split_dimension] % count:
        raise InvalidOptionError(f"{x.shape[split_dimension]} elements do not divide into {count} equal parts")
    every = all_gather(x, count)
    extent = x.shape[split_dimension] // count
    start = RANK.bind(size=count) * extent
    parts = lax.dynamic_slice_in_dim(every, start, extent, axis=split_dimension + 1)
    return jnp.concatenate([parts[n] for n in range(count)], axis=concat_dimension)
