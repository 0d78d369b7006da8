"""Random numbers of replicas: each draws its own.

A layer's ``SeedGenerator`` has one state on all replicas. What it draws on replica ``r`` has the first word of its key
xored with ``r`` times an odd constant: the first replica has Keras' numbers, and no two have the same key.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax.numpy as jnp

from abele.frontends.keras.private import seed_generator

_STRIDE = 0x9E3779B1
"""An odd number whose multiples differ in high bits too: 2**32 over the golden ratio."""


class SeedChoice:
    """Choice of ``reset_ipu_seed``.

    Attributes:
        identical: True if replicas draw alike.
    """

    identical = False


@contextmanager
def seeds_of_replicas(replicas: int) -> Iterator[None]:
    """Generators that are traced inside draw other numbers on each of several replicas."""
    if replicas == 1 or SeedChoice.identical:
        yield
        return
    from abele.frontends.keras.ipu.ops.replication_ops import replication_index  # It imports models' scopes.

    kind = seed_generator.SeedGenerator
    own = kind.next

    def drawn(self: Any, ordered: bool = True) -> Any:
        key = own(self, ordered)
        return key.at[0].set(key[0] ^ (replication_index().astype(key.dtype) * jnp.array(_STRIDE, key.dtype)))

    kind.next = drawn
    try:
        yield
    finally:
        kind.next = own
