"""Reductions beside sums and means: of bools, products, both extrema, and sums without NaN."""

from __future__ import annotations

from collections.abc import Sequence

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.aten.reductions import dims_of, extremum
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.kernels.nest.ir import apply, select
from abele.network import Value
from abele.network.ops import build
from abele.numerics import bool_

Dims = int | Sequence[int] | None


def _logical(call: OperatorCall, value: Value, dim: Dims, keepdim: bool, operation: str) -> Value:
    truth = call.operand(value, bool_)
    return call.operand(build.reduce(call.net, truth, dims_of(value, dim), operation, keep=keepdim), call.dtype)


@aten("aten.any")
def any_(call: OperatorCall, value: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    """True where some element is not zero."""
    return _logical(call, value, dim, keepdim, "or")


@aten("aten.all")
def all_(call: OperatorCall, value: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    """True where every element is not zero."""
    return _logical(call, value, dim, keepdim, "and")


@aten("aten.count_nonzero")
def count_nonzero(call: OperatorCall, value: Value, dim: Dims = None) -> Value:
    """Number of elements that are not zero."""
    counted = call.operand(call.operand(value, bool_), call.dtype)
    return build.reduce(call.net, counted, dims_of(value, dim))


@aten("aten.prod")
def product(
    call: OperatorCall, value: Value, dim: Dims = None, keepdim: bool = False, *, dtype: object = None
) -> Value:
    """The product over dimensions."""
    operation = "and" if call.dtype == bool_ else "mul"
    return build.reduce(call.net, call.operand(value, call.dtype), dims_of(value, dim), operation, keep=keepdim)


@aten("aten.nansum")
def nansum(call: OperatorCall, value: Value, dim: Dims = None, keepdim: bool = False, *, dtype: object = None) -> Value:
    """The sum over dimensions, without NaN."""
    known = value
    if value.dtype.is_float:
        known = build.map_(call.net, select(apply("is_nan", arg(0)), 0.0, arg(0)), [value])
    return build.reduce(call.net, call.operand(known, call.dtype), dims_of(value, dim), keep=keepdim)


@aten("aten.aminmax")
def aminmax(call: OperatorCall, value: Value, *, dim: Dims = None, keepdim: bool = False) -> tuple[Value, Value]:
    """The minimum and the maximum over dimensions."""
    dims = dims_of(value, dim)
    return extremum(call, value, dims, "min", keepdim), extremum(call, value, dims, "max", keepdim)


@aten("aten.isin")
def is_in(
    call: OperatorCall, value: Value | float, among: Value | float, *, assume_unique: bool = False, invert: bool = False
) -> Value:
    """True for elements that are among others; every pair is compared."""
    net = call.net
    if not isinstance(among, Value):
        return call.map(arg(0).ne(arg(1)) if invert else arg(0).eq(arg(1)), value, among, common=call.common_type())
    common = call.common_type()
    if not isinstance(value, Value):
        value = build.full(net, value, (), common)
    elements = build.reshape(net, call.operand(value, common), (*value.shape, 1))
    others = build.reshape(net, call.operand(among, common), (among.size,))
    equal = build.map_(net, arg(0).eq(arg(1)), [elements, others], bool_)
    found = build.reduce(net, equal, [equal.ndim - 1], "or")
    return build.map_(net, apply("not", arg(0)), [found], bool_) if invert else found
