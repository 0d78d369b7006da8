"""Reductions over axes, sums along an axis, and places of extremes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.frontends.onnx.registry import Known, NodeCall, op
from abele.network import Value
from abele.network.ops import build
from abele.numerics import bool_, f32, i32

x, y = arg(0), arg(1)

_EMPTY = {"add": 0.0, "mul": 1.0, "max": -math.inf, "min": math.inf}
"""Result of a reduction of nothing."""


def reduced(call: NodeCall, value: Value, dims: tuple[int, ...], operation: str, keep: bool) -> Value:
    """A value reduced over some dimensions, of bools and narrow integers as well."""
    net = call.net
    if not dims:
        return value
    if any(value.shape[d] == 0 for d in dims):
        shape = tuple(1 if d in dims else n for d, n in enumerate(value.shape) if keep or d not in dims)
        fill = _EMPTY[operation]
        if not value.dtype.is_float and math.isinf(fill):
            limits = (0, 1) if value.dtype == bool_ else (np.iinfo(value.dtype.np).min, np.iinfo(value.dtype.np).max)
            fill = limits[0] if operation == "max" else limits[1]
        return build.full(net, fill, shape, value.dtype)
    if value.dtype == bool_:
        return build.reduce(net, value, dims, "or" if operation in ("max", "add") else "and", keep=keep)
    if value.dtype.is_float or value.dtype.bits == 32:
        return build.reduce(net, value, dims, operation, keep=keep)
    return build.cast(net, build.reduce(net, build.cast(net, value, i32), dims, operation, keep=keep), value.dtype)


def _dims(call: NodeCall, value: Value, axes: Known | None, noop: int) -> tuple[int, ...]:
    if axes is None or not np.asarray(axes).size:
        return () if noop else tuple(range(value.ndim))
    return call.axes(axes, value.ndim)


Kind = Callable[[NodeCall, Value, tuple[int, ...], bool], Value]


def _register(name: str, kind: Kind) -> None:
    @op(name)
    def reduction(
        call: NodeCall, value: Value, axes: Known | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Value:
        return kind(call, value, _dims(call, value, axes, noop_with_empty_axes), bool(keepdims))


def _plain(operation: str) -> Kind:
    return lambda call, value, dims, keep: reduced(call, value, dims, operation, keep)


def _mean(call: NodeCall, value: Value, dims: tuple[int, ...], keep: bool) -> Value:
    if not dims:
        return value
    if value.dtype.is_float:
        return build.mean(call.net, value, dims, keep=keep)
    count = math.prod(value.shape[d] for d in dims)
    return call.map(x / float(count), reduced(call, value, dims, "add", keep))


def _sum_of_squares(call: NodeCall, value: Value, dims: tuple[int, ...], keep: bool) -> Value:
    return reduced(call, call.map(x * x, value), dims, "add", keep)


def _l1(call: NodeCall, value: Value, dims: tuple[int, ...], keep: bool) -> Value:
    return reduced(call, call.map(apply("abs", x), value), dims, "add", keep)


def _l2(call: NodeCall, value: Value, dims: tuple[int, ...], keep: bool) -> Value:
    made = _sum_of_squares(call, value, dims, keep)
    root = call.map(apply("sqrt", x), made, common=made.dtype if made.dtype.is_float else f32)
    return build.cast(call.net, root, value.dtype)


def _log_sum(call: NodeCall, value: Value, dims: tuple[int, ...], keep: bool) -> Value:
    return call.map(apply("log", x), reduced(call, value, dims, "add", keep))


def _log_sum_exp(call: NodeCall, value: Value, dims: tuple[int, ...], keep: bool) -> Value:
    """The logarithm of a sum of exponentials, less the largest of them so that none overflows."""
    if any(value.shape[d] == 0 for d in dims) or not dims:
        return _log_sum(call, call.map(apply("exp", x), value), dims, keep)
    largest = build.reduce(call.net, value, dims, "max", keep=True)
    finite = call.map(select(apply("abs", x).eq(math.inf), 0.0, x), largest)
    total = build.reduce(call.net, call.map(apply("exp", x - y), value, finite), dims, keep=True)
    made = call.map(apply("log", x) + y, total, finite)
    if keep:
        return made
    return build.reshape(call.net, made, [n for d, n in enumerate(value.shape) if d not in dims])


for _name, _kind in {
    "ReduceSum": _plain("add"),
    "ReduceProd": _plain("mul"),
    "ReduceMax": _plain("max"),
    "ReduceMin": _plain("min"),
    "ReduceMean": _mean,
    "ReduceSumSquare": _sum_of_squares,
    "ReduceL1": _l1,
    "ReduceL2": _l2,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
}.items():
    _register(_name, _kind)


# --- along one axis ---------------------------------------------------------------------------------------------------


def _register_place(name: str, operation: str) -> None:
    @op(name)
    def place(call: NodeCall, value: Value, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Value:
        net, dim = call.net, call.axis(axis, value.ndim)
        given = value if value.dtype.is_float or value.dtype.bits == 32 else build.cast(net, value, i32)
        if select_last_index:
            given = build.reverse(net, given, [dim])
        best = build.reduce(net, given, [dim], operation, keep=True)
        extent = given.shape[dim]
        at = build.map_(
            net, select(x.eq(y), arg(2), extent), [given, best, build.positions(net, given.shape, dim)], i32
        )
        found = build.reduce(net, at, [dim], "min", keep=bool(keepdims))
        return call.map(float(extent - 1) - x, found) if select_last_index else found


_register_place("ArgMax", "max")
_register_place("ArgMin", "min")


def _register_scan(name: str, operation: str) -> None:
    @op(name)
    def along(call: NodeCall, value: Value, axis: Known, *, exclusive: int = 0, reverse: int = 0) -> Value:
        dim = call.axis(int(np.asarray(axis).reshape(-1)[0]), value.ndim)
        made = value
        if exclusive:
            made = build.shifted(call.net, value, dim, 0.0 if operation == "add" else 1.0, reverse=bool(reverse))
        return build.scan(call.net, made, dim, operation, reverse=bool(reverse))


_register_scan("CumSum", "add")
_register_scan("CumProd", "mul")
