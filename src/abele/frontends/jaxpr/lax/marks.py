"""Primitives that say something of values and leave them as they are: names, devices, platforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from abele.frontends.jaxpr.registry import PrimitiveCall, primitive
from abele.network import Value
from abele.network.ops import build
from abele.numerics import i32


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


@primitive("platform_index")
def platform_index(call: PrimitiveCall, *, platforms: Sequence[Sequence[str] | None]) -> Value:
    """The number of the branch for CPUs, whose results are ours, else that of no platform in particular."""
    known = [n for n, names in enumerate(platforms) if names is not None and "cpu" in names]
    known += [n for n, names in enumerate(platforms) if names is None]
    if not known:
        raise call.refuse(f"of {', '.join(p for names in platforms for p in names or ())}", "give it a default=")
    return build.full(call.net, known[0], (), i32)
