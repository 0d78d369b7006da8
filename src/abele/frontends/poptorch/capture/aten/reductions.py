"""Reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.kernels.nest.ir import apply, select
from abele.network import Value
from abele.network.ops import build
from abele.numerics import bool_, f32


def dims_of(value: Value, dim: int | Sequence[int] | None) -> list[int]:
    """The dimensions that a reduction names; all when it names none."""
    if not value.ndim or dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return list(range(value.ndim))
    return [dim % value.ndim] if isinstance(dim, int) else [d % value.ndim for d in dim]


def extremum(call: OperatorCall, value: Value, dims: Sequence[int], operation: str, keepdim: bool) -> Value:
    """The maximum or minimum over dimensions; of bools whether some is, or all are, true."""
    if value.dtype == bool_:
        operation = {"max": "or", "min": "and"}[operation]
    return build.reduce(call.net, value, dims, operation, keep=keepdim)


@aten("aten.sum")
def total(
    call: OperatorCall,
    value: Value,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: object = None,
) -> Value:
    """The sum over dimensions."""
    return build.reduce(call.net, call.operand(value, call.dtype), dims_of(value, dim), keep=keepdim)


@aten("aten.mean")
def mean(
    call: OperatorCall,
    value: Value,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: object = None,
) -> Value:
    """The mean over dimensions."""
    return build.mean(call.net, call.operand(value, call.dtype), dims_of(value, dim), keep=keepdim)


@aten("aten.amax")
def amax(call: OperatorCall, value: Value, dim: Sequence[int] = (), keepdim: bool = False) -> Value:
    """The maximum over dimensions."""
    return extremum(call, value, dims_of(value, dim), "max", keepdim)


@aten("aten.amin")
def amin(call: OperatorCall, value: Value, dim: Sequence[int] = (), keepdim: bool = False) -> Value:
    """The minimum over dimensions."""
    return extremum(call, value, dims_of(value, dim), "min", keepdim)


@aten("aten.max.default")
def max_all(call: OperatorCall, value: Value) -> Value:
    """The maximum of all elements."""
    return extremum(call, value, range(value.ndim), "max", False)


@aten("aten.min.default")
def min_all(call: OperatorCall, value: Value) -> Value:
    """The minimum of all elements."""
    return extremum(call, value, range(value.ndim), "min", False)


Correction = float | None


@aten("aten.var.correction")
def variance(
    call: OperatorCall,
    value: Value,
    dim: Sequence[int] | None = None,
    *,
    correction: Correction = None,
    keepdim: bool = False,
) -> Value:
    """The variance over dimensions."""
    return build.cast(call.net, _variance(call, value, dim, correction, keepdim)[0], call.dtype)


@aten("aten.std.correction")
def deviation(
    call: OperatorCall,
    value: Value,
    dim: Sequence[int] | None = None,
    *,
    correction: Correction = None,
    keepdim: bool = False,
) -> Value:
    """The standard deviation over dimensions."""
    return _root(call, _variance(call, value, dim, correction, keepdim)[0])


@aten("aten.var_mean.correction")
def variance_and_mean(
    call: OperatorCall,
    value: Value,
    dim: Sequence[int] | None = None,
    *,
    correction: Correction = None,
    keepdim: bool = False,
) -> tuple[Value, Value]:
    """The variance over dimensions and the mean."""
    found, mean = _variance(call, value, dim, correction, keepdim)
    return build.cast(call.net, found, call.dtype), build.cast(call.net, mean, call.dtype)


@aten("aten.std_mean.correction")
def deviation_and_mean(
    call: OperatorCall,
    value: Value,
    dim: Sequence[int] | None = None,
    *,
    correction: Correction = None,
    keepdim: bool = False,
) -> tuple[Value, Value]:
    """The standard deviation over dimensions and the mean."""
    found, mean = _variance(call, value, dim, correction, keepdim)
    return _root(call, found), build.cast(call.net, mean, call.dtype)


def _root(call: OperatorCall, value: Value) -> Value:
    return build.cast(call.net, build.map_(call.net, apply("sqrt", arg(0)), [value]), call.dtype)


def _variance(
    call: OperatorCall, value: Value, dim: Sequence[int] | None, correction: Correction, keepdim: bool
) -> tuple[Value, Value]:
    """Variance and mean in f32: sums of squares of f16 overflow."""
    value = call.operand(value, f32)
    dims = dims_of(value, dim)
    count = math.prod(value.shape[d] for d in dims)
    degrees = max(0, count - (1 if correction is None else correction))
    scale = 1 / degrees if degrees else math.inf
    centre = build.mean(call.net, value, dims, keep=True)
    squares = build.map_(call.net, apply("square", arg(0) - arg(1)), [value, centre])
    result = build.reduce(call.net, squares, dims, keep=keepdim, scale=scale)
    return result, build.reshape(call.net, centre, result.shape)


@aten("aten.linalg_vector_norm")
def vector_norm(
    call: OperatorCall,
    value: Value,
    ord: float = 2,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: object = None,
) -> Value:
    """The norm of any order over dimensions: of order 0 the number of elements that are not zero."""
    net, order = call.net, float(ord)
    dims = dims_of(value, dim)
    size = build.map_(net, apply("abs", arg(0)), [call.operand(value, call.dtype)])
    if abs(order) == math.inf:
        return build.reduce(net, size, dims, "max" if order > 0 else "min", keep=keepdim)
    if order == 0:
        powers = build.map_(net, select(arg(0).eq(0.0), 0.0, 1.0), [size], f32)
    elif order == 1:
        powers = size
    else:
        # Sums of powers in f32: those of f16 overflow.
        powers = build.map_(net, apply("square", arg(0)) if order == 2 else apply("pow", arg(0), order), [size], f32)
    total = build.reduce(net, powers, dims, keep=keepdim)
    if order not in (0.0, 1.0):
        root = apply("sqrt", arg(0)) if order == 2 else apply("pow", arg(0), 1 / order)
        # The slope of a root at zero is infinite; that of a norm is zero.
        total = build.map_(net, select(arg(0).eq(0.0), 0.0 if order > 0 else root, root), [total])
    return build.cast(net, total, call.dtype)
