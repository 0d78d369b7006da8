"""Rows in segments, or bags, that follow each other: sums, means, products and extrema of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.kernels.nest.ir import apply
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import i32

x, y = arg(0), arg(1)

_OPERATIONS = {"sum": "add", "mean": "add", "prod": "mul", "max": "max", "amax": "max", "min": "min", "amin": "min"}
IDENTITY = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -np.inf, "amax": -np.inf, "min": np.inf, "amin": np.inf}
"""Identity of each reduction."""


def identity(operation: str, value: Value) -> float:
    """Identity of ``operation`` in the type of ``value``."""
    if value.dtype.is_float or np.isfinite(IDENTITY[operation]):
        return IDENTITY[operation]
    if value.dtype.kind == "bool":
        return float(IDENTITY[operation] > 0)
    limits = np.iinfo(value.dtype.np)
    return int(limits.max if IDENTITY[operation] > 0 else limits.min)


def bag_numbers(net: BlockBuilder, offsets: Value, count: int) -> Value:
    """The number of the bag of each of ``count`` rows, i32, for bags that begin at ``offsets``."""
    known = net.contents(offsets)
    if known is not None:
        return net.constant(np.searchsorted(known, np.arange(count), side="right") - 1, i32)
    begins = build.cast(net, offsets, i32)
    ones = build.full(net, 1, (offsets.size, 1), i32)
    starts = build.reshape(net, build.sum_rows(net, ones, begins, count), (count,))
    return build.map_(net, x - 1, [build.scan(net, starts, 0)])


def reduce_bags(
    net: BlockBuilder, rows: Value, numbers: Value, bags: int, operation: str, *, start: float | None = None
) -> Value:
    """``rows`` [n, width] reduced by the numbers of their bags, i32[n]: [bags, width].

    Args:
        net: The network to extend.
        rows: Rows to reduce.
        numbers: The bag of each row; a row of no bag counts nowhere.
        bags: Number of bags.
        operation: ``sum``, ``mean``, ``prod``, ``max`` or ``min``.
        start: Initial value of every reduction, by default its identity.
    """
    if operation in ("sum", "mean") and not start:
        even = _of_equal_bags(net, rows, numbers, bags, operation)
        if even is not None:
            return even
    begin = identity(operation, rows) if start is None else start
    table = build.full(net, begin, (1, bags, rows.shape[1]), rows.dtype)
    grouped = build.reshape(net, rows, (1, *rows.shape))
    index = build.reshape(net, numbers, (1, numbers.size))
    made = build.reshape(
        net, build.join_rows(net, table, grouped, index, _OPERATIONS[operation]), (bags, rows.shape[1])
    )
    if operation != "mean":
        return made
    divisor = y if start is None else apply("max", y, 1.0)
    return build.map_(net, x / divisor, [made, counts(net, rows, numbers, bags)])


def counts(net: BlockBuilder, rows: Value, numbers: Value, bags: int) -> Value:
    """Number of rows in each bag, [bags, 1], in the type of the rows."""
    return build.sum_rows(net, build.full(net, 1.0, (rows.shape[0], 1), rows.dtype), numbers, bags)


def _of_equal_bags(net: BlockBuilder, rows: Value, numbers: Value, bags: int, operation: str) -> Value | None:
    """Sums or means over a dimension, where bags are known to follow each other and to be of one size."""
    known, count = net.contents(numbers), numbers.size
    if known is None or not bags or count % bags or not count:
        return None
    if (known != np.repeat(np.arange(bags), count // bags)).any():
        return None
    shaped = build.reshape(net, rows, (bags, count // bags, rows.shape[1]))
    return build.reduce(net, shaped, [1]) if operation == "sum" else build.mean(net, shaped, [1])


@aten("aten.segment_reduce")
def segment_reduce(
    call: OperatorCall,
    data: Value,
    reduce: str,
    *,
    lengths: Value | None = None,
    indices: Value | None = None,
    offsets: Value | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Value:
    """Segments of one dimension reduced; segments of the dimensions before it are those of their own."""
    net = call.net
    ends = _segment_ends(call, lengths, offsets)
    groups, segments = data.shape[:axis], ends.shape[-1] - 1
    flat = build.reshape(net, data, (-1, data.shape[axis], max(1, _size(data.shape[axis + 1 :]))))
    begins = build.reshape(net, ends, (-1, segments + 1))
    parts = []
    for group in range(flat.shape[0]):
        rows = build.reshape(net, build.slice_(net, flat, 0, group, group + 1), flat.shape[1:])
        own = build.reshape(net, build.slice_(net, begins, 0, group, group + 1), (segments + 1,))
        numbers = bag_numbers(net, own, flat.shape[1])
        made = reduce_bags(net, rows, numbers, segments, reduce, start=initial)
        parts.append(build.reshape(net, made, (1, *made.shape)))
    return build.reshape(net, build.concat(net, parts, 0), (*groups, segments, *data.shape[axis + 1 :]))


def _size(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _segment_ends(call: OperatorCall, lengths: Value | None, offsets: Value | None) -> Value:
    """First row of each segment, and the end of the last, [..., segments + 1]."""
    net = call.net
    if offsets is not None:
        return build.cast(net, offsets, i32)
    if lengths is None:
        raise call.refuse("by indices has no lowering", "give lengths or offsets")
    sums = build.scan(net, build.cast(net, lengths, i32), lengths.ndim - 1)
    zero = build.full(net, 0, (*lengths.shape[:-1], 1), i32)
    return build.concat(net, [zero, sums], lengths.ndim - 1)
