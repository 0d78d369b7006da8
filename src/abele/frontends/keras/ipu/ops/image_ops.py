"""``image_ops``: images as networks take them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp


def normalise_image(
    image: Any, channel_offsets: Any, channel_scales: Any, scale: float = 1, name: str | None = None
) -> Any:
    """``(image * scale - offset) * channel_scale`` of each channel; images of 3 channels get a fourth of zeros.

    Args:
        image: Images [..., channels] of 3 or 4 channels, u8 or float.
        channel_offsets: One number per channel.
        channel_scales: One number per channel.
        scale: Number that images are multiplied by first.
        name: Not used.
    """
    offsets, scales = jnp.asarray(channel_offsets), jnp.asarray(channel_scales)
    found = (jnp.asarray(image).astype(offsets.dtype) * scale - offsets) * scales
    missing = max(4 - found.shape[-1], 0)
    return jnp.pad(found, [(0, 0)] * (found.ndim - 1) + [(0, missing)])
