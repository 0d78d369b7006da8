"""Reductions over dimensions, and what they make of everything up to each element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.extend.core as jec
import numpy as np

from abele.expr.derivative import arg
from abele.frontends.jaxpr.registry import PrimitiveCall, primitive
from abele.kernels.nest.ir import apply
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import ElementType, bool_, i32

x, y = arg(0), arg(1)

_REDUCED = {"add": "add", "add_any": "add", "max": "max", "min": "min", "mul": "mul", "and": "and", "or": "or"}
"""Ops that reduce, by the primitive of two elements."""

Join = Callable[[list[Value], list[Value]], list[Value]]
"""Joins elements of one shape of several arrays."""


def _identity(operation: str, dtype: ElementType) -> float:
    """The identity: the result for no elements."""
    if operation in ("add", "or", "xor"):
        return 0
    if operation == "mul":
        return 1
    if operation == "and":
        return {"bool": 1, "int": -1}.get(dtype.kind) or int(np.iinfo(dtype.np).max)
    if dtype.is_float:
        return -math.inf if operation == "max" else math.inf
    if dtype == bool_:
        return float(operation == "min")
    limits = np.iinfo(dtype.np)
    return int(limits.min if operation == "max" else limits.max)


def _reduced(net: BlockBuilder, value: Value, axes: Sequence[int], operation: str) -> Value:
    """The value reduced over dimensions with ``add``, ``mul``, ``max``, ``min``, ``and``, ``or`` or ``xor``."""
    axes = sorted(axes)
    shape = tuple(n for d, n in enumerate(value.shape) if d not in axes)
    if value.dtype == bool_:
        operation = {"max": "or", "min": "and", "add": "or", "mul": "and"}.get(operation, operation)
    if not value.size:
        return build.full(net, _identity(operation, value.dtype), shape, value.dtype)
    if not axes:
        return value
    if operation == "xor" and value.dtype == bool_:
        count = build.reduce(net, build.cast(net, value, i32), axes)
        return build.map_(net, apply("and", x, 1).ne(0), [count], bool_)
    if operation == "xor" or (operation in ("and", "or") and value.dtype != bool_):
        bits = apply(operation, x, y)
        return _folded(net, [value], axes, lambda left, right: [build.map_(net, bits, [*left, *right])])[0]
    return build.reduce(net, value, axes, operation)


def _register(name: str, operation: str) -> None:
    @primitive(name)
    def reduced(call: PrimitiveCall, value: Value, *, axes: Sequence[int]) -> Value:
        return _reduced(call.net, value, axes, operation)


for _name, _operation in (
    ("reduce_sum", "add"),
    ("reduce_max", "max"),
    ("reduce_min", "min"),
    ("reduce_prod", "mul"),
    ("reduce_and", "and"),
    ("reduce_or", "or"),
    ("reduce_xor", "xor"),
):
    _register(_name, _operation)


# --- reductions with functions of users -------------------------------------------------------------------------------


def _folded(net: BlockBuilder, values: Sequence[Value], axes: Sequence[int], join: Join) -> list[Value]:
    """Arrays, joined over dimensions: the first half with the second, until one index is left."""
    rest = [d for d in range(values[0].ndim) if d not in axes]
    shape = [values[0].shape[d] for d in rest]
    count = math.prod(values[0].shape[d] for d in axes)
    held = [build.reshape(net, build.permute(net, v, [*axes, *rest]), (count, *shape)) for v in values]
    while count > 1:
        # Neighbours stay neighbours, so that a function need not commute.
        half, odd = count // 2, count % 2
        paired = [build.slice_(net, v, 0, 0, 2 * half) for v in held]
        joined = join(*([build.slice_(net, v, 0, begin, 2 * half, 2) for v in paired] for begin in (0, 1)))
        last = [build.slice_(net, v, 0, count - 1, count) for v in held]
        held = [build.concat(net, [j, r], 0) for j, r in zip(joined, last, strict=True)] if odd else joined
        count = half + odd
    return [build.reshape(net, v, shape) for v in held]


@primitive("reduce")
def reduce(call: PrimitiveCall, *operands: Value, dimensions: Sequence[int], jaxpr: Any) -> tuple[Value, ...]:
    """Arrays reduced together with a function of two elements of each, which has to be associative."""
    net = call.net
    values, begins = operands[: len(operands) // 2], operands[len(operands) // 2 :]
    shape = call.shape

    def join(left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
        return call.reader.of_elements(net, jaxpr.jaxpr, jaxpr.consts, [*left, *right])

    if not dimensions:
        return tuple(values)
    starts = [build.expand(net, v, shape) for v in begins]
    if not values[0].size:
        return tuple(starts)
    operation = _operation_of(jaxpr)
    if operation is None:
        made = _folded(net, values, dimensions, join)
        return tuple(join(starts, made))
    made = [_reduced(net, values[0], dimensions, operation)]
    if net.scalar(begins[0]) == _identity(operation, values[0].dtype):
        return tuple(made)
    return tuple(join(starts, made))


def _operation_of(jaxpr: Any) -> str | None:
    """The reduction that a function of two elements is; None where it is none of them."""
    inner = jaxpr.jaxpr
    if len(inner.eqns) != 1 or len(inner.invars) != 2 or any(isinstance(v, jec.Literal) for v in inner.outvars):
        return None
    (eqn,) = inner.eqns
    if set(eqn.invars) != set(inner.invars) or list(eqn.outvars) != list(inner.outvars):
        return None
    name = eqn.primitive.name
    return "xor" if name == "xor" else _REDUCED.get(name)


# --- running operations -----------------------------------------------------------------------------------------------


def _register_running(name: str, operation: str) -> None:
    @primitive(name)
    def running(call: PrimitiveCall, value: Value, *, axis: int, reverse: bool) -> Value:
        return build.scan(call.net, value, axis, operation, reverse=reverse)


for _name, _operation in (
    ("cumsum", "add"),
    ("cumprod", "mul"),
    ("cummax", "max"),
    ("cummin", "min"),
    ("cumlogsumexp", "logaddexp"),
):
    _register_running(_name, _operation)
