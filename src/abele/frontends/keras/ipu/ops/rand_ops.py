"""``rand_ops``: dropout."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from abele.frontends.keras.private import keras


def dropout(
    x: Any, rate: float = 0.5, noise_shape: Any = None, seed: Any = None, ref: bool = False, name: str | None = None
) -> Any:
    """``x`` with a share of its elements 0, and the others divided by what is left.

    Args:
        x: Array of a float type.
        rate: The share.
        noise_shape: Shape of the mask, which broadcasts to that of ``x``.
        seed: A number, for the same mask in each call, or a ``keras.random.SeedGenerator``.
        ref: Not used.
        name: Not used.
    """
    return keras.random.dropout(jnp.asarray(x), rate, noise_shape=noise_shape, seed=seed)
