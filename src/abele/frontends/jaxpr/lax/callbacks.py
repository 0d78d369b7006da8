"""Calls of the host: functions of Python in the middle of a program, which waits for them.

Calls for an effect (``io_callback``, ``debug.print``, ``debug.callback``) run in the order of the program, in loops and
branches as well. A ``pure_callback`` whose results nothing reads does not run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from abele.arrays import Array
from abele.errors import TypeMismatchError
from abele.frontends.jaxpr.registry import PrimitiveCall, primitive
from abele.frontends.jaxpr.types import is_key, type_of
from abele.network import Value
from abele.network.ops import build
from abele.network.ops.host_call import HOST_BODIES
from abele.numerics import i32

_numbers = itertools.count()


@primitive("pure_callback")
def pure_callback(call: PrimitiveCall, *operands: Value, callback: Callable[..., Any]) -> Any:
    """Results of a function of the host that has no effect."""
    return _called(call, operands, callback)


@primitive("io_callback")
def io_callback(call: PrimitiveCall, *operands: Value, callback: Callable[..., Any]) -> Any:
    """Results of a function of the host, which runs as often as the program says."""
    return _called(call, operands, callback, has_effect=True)


@primitive("debug_callback", "debug_print")
def debug_callback(call: PrimitiveCall, *operands: Value) -> Any:
    """A function of the host that shows something: what JAX itself does with it."""
    bind, params = call.eqn.primitive.bind, call.eqn.primitive.get_bind_params(call.params)
    return _called(call, operands, lambda *given: bind(*given, **params), has_effect=True)


pure_callback.runs = True  # type: ignore[attr-defined]


def _called(
    call: PrimitiveCall, operands: Sequence[Value], function: Callable[..., Any], *, has_effect: bool = False
) -> Any:
    results = call.results
    if results and call.net.place.pipeline_stage:
        raise call.refuse(
            "has results in a stage of a pipeline",
            "call the host before the pipeline or after it, or without results",
            "stages run at the same time, and one of them would wait for the host in the midst of the others",
        )
    name = f"{call.name}.{next(_numbers)}"
    HOST_BODIES[name] = _body(call, function, results, has_effect=has_effect)
    if not has_effect:
        return build.host_call(call.net, name, operands, results)
    made = build.host_call(call.net, name, [call.reader.last_effect, *operands], [((), i32), *results])
    call.reader.order.last = made[0]
    return made[1:]


def _body(
    call: PrimitiveCall, function: Callable[..., Any], results: Sequence[Any], *, has_effect: bool
) -> Callable[..., tuple[Array, ...]]:
    """The function as the engine calls it: from NumPy's arrays to NumPy's arrays."""
    avals, where = call.avals, str(call.net.origin)

    def body(*arrays: Array) -> tuple[Array, ...]:
        given = arrays[1:] if has_effect else arrays
        leaves = jax.tree.leaves(function(*map(_to_jax, given, avals)))
        if len(leaves) != len(results):
            raise _misfit(where, f"{len(leaves)} arrays", f"{len(results)}")
        found = (_to_device(leaf, shape, dtype.np, where) for leaf, (shape, dtype) in zip(leaves, results, strict=True))
        return (arrays[0].copy(), *found) if has_effect else tuple(found)

    return body


def _to_jax(array: Array, aval: Any) -> Any:
    _, dtype = type_of(aval)
    found = jax.device_put(np.array(array, dtype.np))
    return jax.random.wrap_key_data(found, impl=aval.dtype._impl.name) if is_key(aval.dtype) else found


def _to_device(made: Any, shape: tuple[int, ...], dtype: Any, where: str) -> Array:
    if hasattr(made, "dtype") and is_key(made.dtype):
        made = jax.random.key_data(made)
    array = np.asarray(made)
    if array.shape != shape:
        raise _misfit(where, f"shape {list(array.shape)}", f"{list(shape)}")
    return np.ascontiguousarray(array, dtype).reshape(shape)


def _misfit(where: str, got: str, wanted: str) -> TypeMismatchError:
    return TypeMismatchError(
        f"a function of the host gave {got}, and its caller said {wanted}",
        at=where,
        remedy="give result_shape_dtypes that are those of the results",
    )
