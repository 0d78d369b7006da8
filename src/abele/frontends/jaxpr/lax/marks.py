"""Primitives that say something of values and leave them as they are: names, devices, composites."""

from __future__ import annotations

from typing import Any

from abele.frontends.jaxpr.registry import PrimitiveCall, primitive
from abele.network import Value


@primitive("name")
def name(call: PrimitiveCall, value: Value) -> Value:
    """The value, whose name rules of ``jax.checkpoint`` have used."""
    return value


@primitive("device_put")
def device_put(call: PrimitiveCall, *values: Value) -> Any:
    """The values where they are: the program has one place for each."""
    return values


@primitive("composite")
def composite(call: PrimitiveCall, *operands: Value, jaxpr: Any) -> Any:
    """Results of what a composite operation is made of."""
    return tuple(call.reader.closed(jaxpr, operands))
