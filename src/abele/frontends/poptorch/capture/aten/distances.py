"""Distances between rows."""

from __future__ import annotations

import math

import numpy as np

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.kernels.nest.ir import apply, select
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import i32

x, y = arg(0), arg(1)

_MOST_ROWS_APART = 25
"""Rows up to which PyTorch takes differences, where it may choose, rather than multiply."""
_NEVER_MULTIPLIED = 2


@aten("aten.cdist", "aten._cdist_forward", "aten._euclidean_dist")
def cdist(call: OperatorCall, a: Value, b: Value, p: float = 2.0, compute_mode: int | None = None) -> Value:
    """The distance of each row of ``a`` [..., n, width] from each of ``b`` [..., m, width]."""
    net = call.net
    few = max(a.shape[-2], b.shape[-2]) <= _MOST_ROWS_APART and compute_mode != 1
    if p == 2 and not few and compute_mode != _NEVER_MULTIPLIED:
        squares = [build.reduce(net, build.map_(net, apply("square", x), [v]), [v.ndim - 1], keep=True) for v in (a, b)]
        crossed = build.matmul(net, a, build.transpose(net, b))
        total = build.map_(net, x + y - 2.0 * arg(2), [squares[0], build.transpose(net, squares[1]), crossed])
        return _root(net, build.map_(net, apply("max", x, 0.0), [total]), 2.0)
    rows = build.reshape(net, a, (*a.shape[:-1], 1, a.shape[-1]))
    columns = build.reshape(net, b, (*b.shape[:-2], 1, *b.shape[-2:]))
    return _norm(net, build.map_(net, x - y, [rows, columns]), p)


@aten("aten.pdist", "aten._pdist_forward")
def pdist(call: OperatorCall, value: Value, p: float = 2.0) -> Value:
    """The distances of all pairs of rows, those of the first row first."""
    net, pairs = call.net, np.triu_indices(value.shape[0], 1)
    if not pairs[0].size:
        return build.full(net, 0.0, call.shape, call.dtype)
    a, b = (build.look_up(net, value, net.constant(numbers, i32, "pairs")) for numbers in pairs)
    return _norm(net, build.map_(net, x - y, [a, b]), p)


def _norm(net: BlockBuilder, difference: Value, p: float) -> Value:
    """The norm over the last dimension; its gradient is zero where it is zero, as in PyTorch."""
    dims = [difference.ndim - 1]
    if p == 0:
        return build.reduce(net, build.map_(net, select(x.ne(0.0), 1.0, 0.0), [difference]), dims)
    sizes = build.map_(net, apply("abs", x), [difference])
    if p == 1:
        return build.reduce(net, sizes, dims)
    if math.isinf(p):
        return build.reduce(net, sizes, dims, "max")
    power = apply("square", x) if p == 2 else select(x <= 0.0, 0.0, apply("pow", apply("max", x, 1e-38), float(p)))
    return _root(net, build.reduce(net, build.map_(net, power, [sizes]), dims), float(p))


def _root(net: BlockBuilder, total: Value, p: float) -> Value:
    base = select(x <= 0.0, 1.0, x)
    root = apply("sqrt", base) if p == 2 else apply("pow", base, 1 / p)
    return build.map_(net, select(x <= 0.0, 0.0, root), [total])
