"""``custom_ops``: operations of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from abele.errors import UnsupportedOpError


def codelet_expression_op(vertex_expression: Callable[..., Any], *args: Any) -> Any:
    """An element-wise function of arrays."""
    return vertex_expression(*map(jnp.asarray, args))


def precompiled_user_op(inputs: Any, library_path: str, *args: Any, **kwargs: Any) -> Any:
    """Refused: libraries are compiled for the host of a real machine.

    Raises:
        UnsupportedOpError: Always.
    """
    raise UnsupportedOpError(
        f"{library_path} is compiled code for Poplar, which Abele cannot run",
        remedy="abele.jax.tessellate's create_ipu_tile_primitive for vertices in C++, or jax.numpy",
    )


cpu_user_op = precompiled_user_op
