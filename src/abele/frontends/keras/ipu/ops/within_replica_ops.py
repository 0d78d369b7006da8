"""``within_replica_ops``: tensors in parts, one for each IPU of a replica."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import jax.numpy as jnp

from abele.errors import InvalidOptionError

_OPERATIONS = {
    "COLLECTIVE_OP_ADD": jnp.add,
    "COLLECTIVE_OP_MUL": jnp.multiply,
    "COLLECTIVE_OP_MIN": jnp.minimum,
    "COLLECTIVE_OP_MAX": jnp.maximum,
    "COLLECTIVE_OP_LOGICAL_AND": jnp.logical_and,
    "COLLECTIVE_OP_LOGICAL_OR": jnp.logical_or,
}


def _reduced(shards: Sequence[Any], op: str) -> Any:
    if op not in _OPERATIONS:
        raise InvalidOptionError(f"{op} is none of {', '.join(_OPERATIONS)}")
    return reduce(_OPERATIONS[op], map(jnp.asarray, shards))


def all_gather(input_shards: Sequence[Any], axis: int = 0) -> list[Any]:
    """The shards joined, once for each IPU."""
    whole = jnp.concatenate([jnp.asarray(s) for s in input_shards], axis=axis)
    return [whole] * len(input_shards)


def all_reduce(input_shards: Sequence[Any], op: str = "COLLECTIVE_OP_ADD") -> list[Any]:
    """The shards reduced, once for each IPU.

    Raises:
        InvalidOptionError: An unknown operation.
    """
    return [_reduced(input_shards, op)] * len(input_shards)


def reduce_scatter(input_shards: Sequence[Any], op: str = "COLLECTIVE_OP_ADD") -> list[Any]:
    """Equal parts of the shards reduced, one for each IPU.

    Raises:
        InvalidOptionError: An unknown operation.
    """
    flat = jnp.ravel(_reduced(input_shards, op))
    count = len(input_shards)
    return list(jnp.split(jnp.pad(flat, (0, -flat.size % count)), count))
