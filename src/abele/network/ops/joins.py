"""Elements joined where their numbers along one dimension say, in tensors of another extent or per group.

Four elements 1, 2, 3, 4 with the numbers 0, 2, 0, 2 along a dimension of extent 3 make 4, 0, 6 by sums, and 3, 0, 4 by
maxima. Places that nothing reaches have what is there at first; without that they are zero, one for products.
"""

from __future__ import annotations

import math

import numpy as np

from abele.expr import select
from abele.expr.derivative import arg
from abele.network.ir import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops.along import put_along, take_along
from abele.numerics import ElementType, bool_, i32

x, y = arg(0), arg(1)

JOINS = {"sum": "add", "max": "max", "min": "min", "mul": "mul", "none": "set"}
"""Ways in which elements of one place are joined, in PopART's order, and the operation of each."""


def spread_numbers(
    net: BlockBuilder, numbers: Value, shape: tuple[int, ...], dim: int, grouped: bool = False
) -> Value | None:
    """Numbers for every element, where they are given once per index of ``dim`` (and of dimension 0, if grouped).

    None if they do not fit.
    """
    if numbers.shape == shape:
        return numbers
    lined = [n if d == dim or (grouped and d == 0) else 1 for d, n in enumerate(shape)]
    if numbers.size == math.prod(lined):
        return build.expand(net, build.reshape(net, numbers, lined), shape)
    fits = numbers.ndim == len(shape) and all(a in (1, b) for a, b in zip(numbers.shape, shape, strict=True))
    return build.expand(net, numbers, shape) if fits else None


def join_at(
    net: BlockBuilder,
    value: Value,
    numbers: Value,
    dim: int,
    size: int,
    *,
    initial: Value | None = None,
    reduction: str = "sum",
) -> Value:
    """Elements joined at their numbers along a dimension of extent ``size``, with what is there at first.

    Args:
        net: The network to extend.
        value: Elements.
        numbers: Place of each along ``dim``, i32, none negative.
        dim: The dimension.
        size: Its extent in the result.
        initial: Values at first; without them zero, for products one.
        reduction: One of :data:`JOINS`.
    """
    shape = tuple(size if d == dim else n for d, n in enumerate(value.shape))
    operation = JOINS[reduction]
    if initial is not None:
        return put_along(net, initial, numbers, value, dim=dim, operation=operation)
    start = build.full(net, _least(value.dtype, operation), shape, value.dtype)
    made = put_along(net, start, numbers, value, dim=dim, operation=operation)
    if operation not in ("max", "min"):
        return made
    zeros = build.full(net, 0, shape, i32)
    ones = build.full(net, 1, value.shape, i32)
    counted = put_along(net, zeros, numbers, ones, dim=dim, operation="add")
    reached = build.map_(net, x > 0, [counted], bool_)
    zero = 0.0 if value.dtype.is_float else 0
    return build.map_(net, select(y, x, zero), [made, reached], value.dtype)


def _least(kind: ElementType, operation: str) -> float | int:
    """The neutral element of an operation."""
    if operation in ("add", "set"):
        return 0
    if operation == "mul":
        return 1
    if kind.is_float:
        return -math.inf if operation == "max" else math.inf
    ends = np.iinfo(kind.np)
    return int(ends.min if operation == "max" else ends.max)


def take_of_groups(net: BlockBuilder, value: Value, numbers: Value, dim: int) -> Value:
    """Entries of ``dim`` by number, with numbers of its own for each entry of dimension 0: ``numbers`` [groups, …]."""
    groups, count = value.shape[0], numbers.size // max(value.shape[0], 1)
    wide = tuple(count if d == dim else n for d, n in enumerate(value.shape))
    lined = [n if d in (0, dim) else 1 for d, n in enumerate(wide)]
    made = take_along(net, value, build.expand(net, build.reshape(net, numbers, lined), wide), dim)
    return build.reshape(net, made, (groups, *wide[1:dim], *numbers.shape[1:], *wide[dim + 1 :]))


__all__ = ["JOINS", "join_at", "spread_numbers", "take_of_groups"]
