"""Primitives that call functions: read in their place."""

from __future__ import annotations

from typing import Any

from abele.frontends.jaxpr.registry import PrimitiveCall, primitive


@primitive("jit", "pjit", "closed_call", "core_call")
def inlined(call: PrimitiveCall, *operands: Any, jaxpr: Any = None, call_jaxpr: Any = None) -> Any:
    """Results of a function that was traced by itself."""
    return tuple(call.reader.closed(jaxpr if jaxpr is not None else call_jaxpr, operands))


@primitive("custom_jvp_call", "custom_vjp_call")
def custom_derivative(call: PrimitiveCall, *operands: Any, call_jaxpr: Any) -> Any:
    """Results of a function with a derivative of its own: JAX has used that where one was asked for."""
    return tuple(call.reader.closed(call_jaxpr, operands))


@primitive("remat2", "checkpoint")
def checkpoint(call: PrimitiveCall, *operands: Any, jaxpr: Any) -> Any:
    """Results of a stretch that JAX's backward pass computes again."""
    return tuple(call.reader.jaxpr(jaxpr, (), operands))
