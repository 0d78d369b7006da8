"""Cumulative operations."""

from __future__ import annotations

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.network import Value
from abele.network.ops import build
from abele.numerics import bool_, i32

x, y = arg(0), arg(1)


def _scanned(call: OperatorCall, value: Value, dim: int, operation: str) -> Value:
    value = call.operand(value, call.dtype)
    return build.scan(call.net, value, dim, operation) if value.ndim else value


@aten("aten.cumsum")
def cumsum(call: OperatorCall, value: Value, dim: int, *, dtype: object = None) -> Value:
    """Running sums along ``dim``."""
    return _scanned(call, value, dim, "add")


@aten("aten.cumprod")
def cumprod(call: OperatorCall, value: Value, dim: int, *, dtype: object = None) -> Value:
    """Running products along ``dim``."""
    return _scanned(call, value, dim, "mul")


@aten("aten.logcumsumexp")
def logcumsumexp(call: OperatorCall, value: Value, dim: int) -> Value:
    """Logarithms of running sums of exponentials along ``dim``."""
    return _scanned(call, value, dim, "logaddexp")


@aten("aten.cummax")
def cummax(call: OperatorCall, value: Value, dim: int) -> tuple[Value, Value]:
    """Running maxima along ``dim``, and where each was taken from."""
    return _extrema(call, value, dim, "max")


@aten("aten.cummin")
def cummin(call: OperatorCall, value: Value, dim: int) -> tuple[Value, Value]:
    """Running minima along ``dim``, and where each was taken from."""
    return _extrema(call, value, dim, "min")


def _extrema(call: OperatorCall, value: Value, dim: int, operation: str) -> tuple[Value, Value]:
    net = call.net
    if not value.ndim:
        return value, build.full(net, 0, (), i32)
    dim %= value.ndim
    numbers = build.cast(net, value, i32) if value.dtype == bool_ else value
    found = build.scan(net, numbers, dim, operation)
    places = build.taken_from(net, build.detach(net, numbers), build.detach(net, found), dim)
    return build.cast(net, found, value.dtype), places


@aten("aten.diff")
def diff(
    call: OperatorCall,
    value: Value,
    n: int = 1,
    dim: int = -1,
    prepend: Value | None = None,
    append: Value | None = None,
) -> Value:
    """Differences of neighbours along ``dim``, ``n`` times."""
    net, dim = call.net, dim % value.ndim
    parts = [call.operand(v, call.dtype) if v.dtype != bool_ else v for v in (prepend, value, append) if v is not None]
    made = build.concat(net, parts, dim)
    for _ in range(min(n, made.shape[dim])):
        extent = made.shape[dim]
        pair = [build.slice_(net, made, dim, 1, extent), build.slice_(net, made, dim, 0, extent - 1)]
        made = build.map_(net, x.ne(y) if made.dtype == bool_ else x - y, pair)
    return made


@aten("aten.trapezoid.dx", "aten.trapz.dx")
def trapezoid(call: OperatorCall, value: Value, *, dx: float = 1, dim: int = -1) -> Value:
    """The integral along ``dim`` of straight lines between points at equal distances."""
    return build.reduce(call.net, _areas(call, value, None, dx, dim), [dim % value.ndim])


@aten("aten.trapezoid.x", "aten.trapz.x")
def trapezoid_at(call: OperatorCall, value: Value, at: Value, *, dim: int = -1) -> Value:
    """The integral along ``dim`` of straight lines between points at given places."""
    areas = _areas(call, value, at, 1.0, dim)
    return build.reshape(call.net, build.reduce(call.net, areas, [dim % areas.ndim if dim < 0 else dim]), call.shape)


@aten("aten.cumulative_trapezoid.dx")
def cumulative_trapezoid(call: OperatorCall, value: Value, *, dx: float = 1, dim: int = -1) -> Value:
    """Running integrals of straight lines between points at equal distances."""
    areas = _areas(call, value, None, dx, dim)
    return build.scan(call.net, areas, dim % areas.ndim)


@aten("aten.cumulative_trapezoid.x")
def cumulative_trapezoid_at(call: OperatorCall, value: Value, at: Value, *, dim: int = -1) -> Value:
    """Running integrals of straight lines between points at given places."""
    areas = _areas(call, value, at, 1.0, dim)
    return build.scan(call.net, areas, dim % areas.ndim)


def _areas(call: OperatorCall, value: Value, at: Value | None, dx: float, dim: int) -> Value:
    """The area below each line between two neighbours along ``dim``."""
    net, dim = call.net, dim % value.ndim

    def neighbours(v: Value, along: int) -> list[Value]:
        extent = v.shape[along]
        return [build.slice_(net, v, along, 1, extent), build.slice_(net, v, along, 0, extent - 1)]

    heights = neighbours(call.operand(value, call.dtype), dim)
    if at is None:
        return build.map_(net, (x + y) * (0.5 * float(dx)), heights)
    places = call.operand(at, call.dtype)
    if places.ndim == 1:
        widths = build.map_(net, x - y, neighbours(places, 0))
        widths = build.reshape(net, widths, (widths.size, *(1,) * (value.ndim - dim - 1)))
    else:
        widths = build.map_(net, x - y, neighbours(places, dim - value.ndim + places.ndim))
    return build.map_(net, (x + y) * arg(2) * 0.5, [*heights, widths])
