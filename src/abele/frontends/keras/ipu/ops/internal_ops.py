"""``internal_ops``: prints and marks."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from abele.errors import UnsupportedOpError
from abele.frontends.keras.ipu.ops.primitives import PRINT


def print_tensor(x: Any, name: str = "") -> Any:
    """``x``, which the host prints whenever it was computed."""
    return PRINT.bind(jnp.asarray(x), title=name or "tensor")


def remap(x: Any, name: str | None = None) -> Any:
    """``x`` itself: layouts follow from what reads it."""
    return x


def remap_deduce(x: Any, name: str | None = None) -> Any:
    """``x`` itself: layouts follow from what reads it."""
    return x


def fifo(tensor: Any, depth: int, offload: bool = False, name: str | None = None) -> Any:
    """Refused.

    Raises:
        UnsupportedOpError: Always.
    """
    raise UnsupportedOpError(
        "a queue inside of a program has no lowering",
        remedy="stages of a pipeline, which keep what is on its way themselves",
    )
