"""``math_ops``: products in parts, sums of segments."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from abele.errors import InvalidOptionError

_DIMENSIONS = ("a_columns", "a_rows_b_columns", "b_rows")


def serialized_matmul(
    a: Any,
    b: Any,
    serialization_factor: int,
    serialization_dimension: str,
    transpose_a: bool = False,
    transpose_b: bool = False,
    name: str | None = None,
) -> Any:
    """A product in parts, one after the other.

    Args:
        a: Left operand.
        b: Right operand.
        serialization_factor: Number of parts; it divides the dimension.
        serialization_dimension: ``a_columns``, ``a_rows_b_columns`` or ``b_rows``, by TensorFlow's names: a's rows, the
            dimension that is summed, or b's columns.
        transpose_a: True to turn ``a`` first.
        transpose_b: True to turn ``b`` first.
        name: Not used.

    Raises:
        InvalidOptionError: An unknown dimension, or one that the factor does not divide.
    """
    a, b = jnp.asarray(a), jnp.asarray(b)
    a = jnp.swapaxes(a, -1, -2) if transpose_a else a
    b = jnp.swapaxes(b, -1, -2) if transpose_b else b
    if serialization_dimension not in _DIMENSIONS:
        raise InvalidOptionError(
            f"serialization_dimension is one of {', '.join(_DIMENSIONS)}, not {serialization_dimension!r}"
        )
    extent = {"a_columns": a.shape[-2], "a_rows_b_columns": a.shape[-1], "b_rows": b.shape[-1]}[serialization_dimension]
    if serialization_factor < 1 or extent % serialization_factor:
        raise InvalidOptionError(f"{extent} does not divide into {serialization_factor} parts")
    if serialization_dimension == "a_columns":
        return jnp.concatenate([p @ b for p in jnp.split(a, serialization_factor, axis=-2)], axis=-2)
    if serialization_dimension == "b_rows":
        return jnp.concatenate([a @ p for p in jnp.split(b, serialization_factor, axis=-1)], axis=-1)
    pairs = zip(jnp.split(a, serialization_factor, axis=-1), jnp.split(b, serialization_factor, axis=-2), strict=True)
    return sum((p @ q for p, q in pairs), jnp.zeros((), a.dtype))


def segment_sum(data: Any, segment_ids: Any, num_segments: int, name: str | None = None) -> Any:
    """Sums of rows with the same number: [num_segments, …]."""
    return jax.ops.segment_sum(jnp.asarray(data), jnp.asarray(segment_ids), num_segments)
