"""``statistics_ops``: histograms."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp


def histogram(inputs: Any, levels: Any, absolute_of_input: bool = False, name: str | None = None) -> Any:
    """Number of elements below the first level, between two levels, and from the last one on: f32[levels + 1].

    Args:
        inputs: Array of a float type.
        levels: Rising limits.
        absolute_of_input: True to count magnitudes.
        name: Not used.
    """
    x, limits = jnp.ravel(jnp.asarray(inputs)), jnp.asarray(levels)
    x = jnp.abs(x) if absolute_of_input else x
    below = jnp.sum(x[None] < limits[:, None], 1).astype(jnp.float32)
    return jnp.diff(jnp.concatenate([jnp.zeros(1), below, jnp.full(1, float(x.size))]))


def histogram_update(
    hist: Any, inputs: Any, levels: Any, absolute_of_input: bool = False, name: str | None = None
) -> Any:
    """A histogram with further elements."""
    return jnp.asarray(hist) + histogram(inputs, levels, absolute_of_input)


def histogram_normalize(hist: Any, name: str | None = None) -> Any:
    """Shares, whose sum is 1."""
    counts = jnp.asarray(hist)
    return counts / jnp.sum(counts)


def fixed_width_bins(inputs: Any, n_bins: int, name: str | None = None) -> Any:
    """Limits between so many bins of one width, from the least element to the greatest: [n_bins - 1]."""
    x = jnp.asarray(inputs)
    return jnp.linspace(jnp.min(x), jnp.max(x), n_bins + 1, dtype=x.dtype)[1:-1]
