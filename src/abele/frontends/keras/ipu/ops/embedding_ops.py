"""``embedding_ops``: rows of tables."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from abele.errors import InvalidOptionError, UnsupportedOpError


def embedding_lookup(
    params: Any,
    ids: Any,
    name: str | None = None,
    serialization_factor: int = 1,
    indices_are_sorted: bool = False,
    implicit_slice_planning: bool = True,
) -> Any:
    """Rows of a table [rows, width] by number: [*shape of ids, width].

    Args:
        params: The table.
        ids: Numbers of rows.
        name: Not used.
        serialization_factor: Parts of the table that are looked up one after the other; it divides the rows. The
            planner chooses by itself, so it is checked alone.
        indices_are_sorted: Not used.
        implicit_slice_planning: Not used.

    Raises:
        InvalidOptionError: A factor that does not divide the rows.
    """
    table = jnp.asarray(params)
    if serialization_factor < 1 or table.shape[0] % serialization_factor:
        raise InvalidOptionError(f"a table of {table.shape[0]} rows does not divide into {serialization_factor} parts")
    return jnp.take(table, jnp.asarray(ids), axis=0)


def create_host_embedding(*args: Any, **kwargs: Any) -> Any:
    """Refused.

    Raises:
        UnsupportedOpError: Always.
    """
    raise UnsupportedOpError(
        "tables on the host are not looked up from the device",
        remedy="an Embedding layer; weights in streaming memory by Locations (docs/memory.md)",
    )
