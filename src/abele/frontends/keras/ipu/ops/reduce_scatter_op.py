"""``reduce_scatter_op``: sums over replicas, of which each gets a share."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from abele.errors import InvalidOptionError
from abele.frontends.keras.ipu.ops.primitives import SCATTER, check_replicas


def reduce_scatter(x: Any, replication_factor: int, op: str = "COLLECTIVE_OP_ADD", name: str | None = None) -> Any:
    """This replica's share of the elements of ``x`` summed over replicas: [size of x / replicas], rounded up.

    Raises:
        InvalidOptionError: Another operation than sums and means, or another number of replicas.
    """
    if op not in ("COLLECTIVE_OP_ADD", "COLLECTIVE_OP_MEAN"):
        raise InvalidOptionError(f"reduce_scatter adds, or takes means, not {op}", remedy="COLLECTIVE_OP_ADD")
    count = check_replicas(replication_factor)
    flat = jnp.ravel(jnp.asarray(x))
    flat = jnp.pad(flat, (0, -flat.size % count))
    if op == "COLLECTIVE_OP_MEAN":
        flat = flat / count
    return SCATTER.bind(flat, size=count)
