"""Order: sorted tensors, the best elements, medians and quantiles, extrema with their indices, searches."""

from __future__ import annotations

import math
from collections.abc import Sequence

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.kernels.nest.ir import Const, Expr, apply, select
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops.along import take_along
from abele.numerics import bool_, f32, i32

x, y, z = arg(0), arg(1), arg(2)

Pair = tuple[Value, Value]


def _number(net: BlockBuilder, value: Value) -> Value:
    """``value`` where its order is that of numbers: truth values as integers."""
    return build.cast(net, value, i32) if value.dtype == bool_ else value


def _sorted(net: BlockBuilder, value: Value, dim: int, *, descending: bool = False) -> Pair:
    """In order along ``dim``, and the positions that elements had."""
    if not value.ndim:
        return value, build.full(net, 0, (), i32)
    made, places = build.sort(net, build.transpose(net, value, dim, -1), descending=descending)
    return build.transpose(net, made, dim, -1), build.transpose(net, places, dim, -1)


@aten("aten.sort.default")
def sort(call: OperatorCall, value: Value, dim: int = -1, descending: bool = False) -> Pair:
    """In order along ``dim``, and the positions that elements had; equal ones keep theirs."""
    return _sorted(call.net, value, dim, descending=descending)


@aten("aten.sort.stable")
def stable_sort(
    call: OperatorCall, value: Value, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> Pair:
    """Sort, which is stable here in any case."""
    return _sorted(call.net, value, dim, descending=descending)


@aten("aten.argsort.default")
def argsort(call: OperatorCall, value: Value, dim: int = -1, descending: bool = False) -> Value:
    """The positions of elements in order."""
    return _sorted(call.net, value, dim, descending=descending)[1]


@aten("aten.argsort.stable")
def stable_argsort(call: OperatorCall, value: Value, *, stable: bool, dim: int = -1, descending: bool = False) -> Value:
    """The positions of elements in order."""
    return _sorted(call.net, value, dim, descending=descending)[1]


@aten("aten.msort")
def msort(call: OperatorCall, value: Value) -> Value:
    """Sort along the first dimension."""
    return _sorted(call.net, value, 0)[0]


@aten("aten.topk")
def topk(call: OperatorCall, value: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Pair:
    """The best ``k`` along ``dim`` and their positions, in order whether asked for or not."""
    net = call.net
    if not value.ndim:
        return value, build.full(net, 0, (), i32)
    made, places = build.top_k(net, build.transpose(net, value, dim, -1), k, largest=largest)
    return build.transpose(net, made, dim, -1), build.transpose(net, places, dim, -1)


# --- extrema with indices ---------------------------------------------------------------------------------------------


def _extremum(net: BlockBuilder, value: Value, dim: int, operation: str) -> Pair:
    """The largest or smallest along ``dim``, and the first index that has it; the dimension stays with one index.

    The element is added up from those with the index, which is one: so its gradient goes to that one, where the
    gradient of a maximum is shared by all equal ones.
    """
    if not value.ndim:
        return value, build.full(net, 0, (), i32)
    numbers = build.detach(net, _number(net, value))
    best = build.reduce(net, numbers, [dim], operation, keep=True)
    places, extent = build.positions(net, value.shape, dim), value.shape[dim]
    # NaN is the extreme, and cannot be compared.
    missed = select(x.ne(x), z, Const(extent, i32)) if numbers.dtype.is_float else Const(extent, i32)
    reaches = x >= y if operation == "max" else x <= y
    hits = build.map_(net, select(reaches, z, missed), [numbers, best, places], i32)
    index = build.reduce(net, hits, [dim], "min", keep=True)
    return _picked(net, value, index, dim), index


def _picked(net: BlockBuilder, value: Value, index: Value, dim: int) -> Value:
    """The element with one ``index`` along ``dim``, as a sum of it and zeros."""
    numbers = _number(net, value)
    zero = Const(0.0) if numbers.dtype.is_float else Const(0, i32)
    alone = build.map_(
        net, select(y.eq(z), x, zero), [numbers, index, build.positions(net, value.shape, dim)], numbers.dtype
    )
    return build.cast(net, build.reduce(net, alone, [dim], keep=True), value.dtype)


def _without(net: BlockBuilder, pair: Sequence[Value], shape: Sequence[int]) -> Pair:
    made, index = (build.reshape(net, v, shape) for v in pair)
    return made, index


@aten("aten.max.dim")
def max_with_index(call: OperatorCall, value: Value, dim: int, keepdim: bool = False) -> Pair:
    """The maximum along ``dim`` and the first index that has it."""
    return _without(call.net, _extremum(call.net, value, dim % max(1, value.ndim), "max"), call.shape)


@aten("aten.min.dim")
def min_with_index(call: OperatorCall, value: Value, dim: int, keepdim: bool = False) -> Pair:
    """The minimum along ``dim`` and the first index that has it."""
    return _without(call.net, _extremum(call.net, value, dim % max(1, value.ndim), "min"), call.shape)


def _index_of(call: OperatorCall, value: Value, dim: int | None, operation: str) -> Value:
    net = call.net
    flat = build.reshape(net, value, (value.size,)) if dim is None else value
    along = 0 if dim is None else dim % max(1, value.ndim)
    return build.reshape(net, _extremum(net, flat, along, operation)[1], call.shape)


@aten("aten.argmax")
def argmax(call: OperatorCall, value: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """The first index of the maximum along ``dim``, or of all elements."""
    return _index_of(call, value, dim, "max")


@aten("aten.argmin")
def argmin(call: OperatorCall, value: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """The first index of the minimum along ``dim``, or of all elements."""
    return _index_of(call, value, dim, "min")


# --- elements by rank -------------------------------------------------------------------------------------------------


def _of_rank(call: OperatorCall, value: Value, dim: int, rank: int | Value) -> Pair:
    """The element that stands at ``rank`` in order along ``dim``, and its position; the dimension stays."""
    net = call.net
    if not value.ndim:
        return value, build.full(net, 0, (), i32)
    dim %= value.ndim
    places = _sorted(net, build.detach(net, value), dim)[1]
    if isinstance(rank, int):
        index = build.slice_(net, places, dim, rank, rank + 1)
    else:
        index = take_along(net, places, rank, dim)
    return take_along(net, value, index, dim), index


@aten("aten.kthvalue.default")
def kthvalue(call: OperatorCall, value: Value, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    """The ``k``-th smallest along ``dim`` and its position."""
    return _without(call.net, _of_rank(call, value, dim, k - 1), call.shape)


@aten("aten.median.dim")
def median(call: OperatorCall, value: Value, dim: int, keepdim: bool = False) -> Pair:
    """The lower median along ``dim`` and its position."""
    return _without(call.net, _middle(call, value, dim), call.shape)


def _middle(call: OperatorCall, value: Value, dim: int) -> Pair:
    """The lower median; of rows with NaN, the first NaN, as they stand last in order."""
    net, extent = call.net, value.shape[dim] if value.ndim else 1
    middle = (extent - 1) // 2
    if not value.dtype.is_float or not value.ndim:
        return _of_rank(call, value, dim, middle)
    count = build.reduce(net, _counted(net, value, x.ne(x)), [dim % value.ndim], keep=True)
    rank = select(x > 0, Const(extent, i32) - x, Const(middle, i32))
    return _of_rank(call, value, dim, build.map_(net, rank, [count]))


def _counted(net: BlockBuilder, value: Value, condition: Expr) -> Value:
    """One where a condition holds, zero elsewhere."""
    return build.map_(net, select(condition, Const(1, i32), Const(0, i32)), [value], i32)


@aten("aten.median.default")
def median_of_all(call: OperatorCall, value: Value) -> Value:
    """The lower median of all elements."""
    flat = build.reshape(call.net, value, (value.size,))
    return build.reshape(call.net, _middle(call, flat, 0)[0], ())


@aten("aten.nanmedian.dim")
def nanmedian(call: OperatorCall, value: Value, dim: int, keepdim: bool = False) -> Pair:
    """The lower median of the numbers along ``dim``, and its position."""
    return _without(call.net, _median_of_numbers(call, value, dim), call.shape)


@aten("aten.nanmedian.default")
def nanmedian_of_all(call: OperatorCall, value: Value) -> Value:
    """The lower median of all numbers."""
    flat = build.reshape(call.net, value, (value.size,))
    return build.reshape(call.net, _median_of_numbers(call, flat, 0)[0], ())


def _median_of_numbers(call: OperatorCall, value: Value, dim: int) -> Pair:
    """Median of a row without its NaNs, which are sorted to the end as infinities."""
    net = call.net
    if not value.dtype.is_float or not value.ndim:
        return _of_rank(call, value, dim, (value.shape[dim] - 1) // 2 if value.ndim else 0)
    dim %= value.ndim
    count = build.reduce(net, _counted(net, value, x.eq(x)), [dim], keep=True)
    rank = build.cast(net, build.map_(net, apply("floor", (x - 1.0) * 0.5), [build.cast(net, count, f32)]), i32)
    rank = build.map_(net, apply("max", x, Const(0, i32)), [rank])
    finite = build.map_(net, select(x.eq(x), x, math.inf), [build.detach(net, value)])
    index = take_along(net, _sorted(net, finite, dim)[1], rank, dim)
    return take_along(net, value, index, dim), index


@aten("aten.mode")
def mode(call: OperatorCall, value: Value, dim: int = -1, keepdim: bool = False) -> Pair:
    """The smallest of the most frequent values along ``dim``, and its last position.

    In order, equal values follow each other, and the last of each run knows its length: its own place less that of
    the latest begin of a run, which a running maximum carries along.
    """
    net = call.net
    if not value.ndim:
        return value, build.full(net, 0, (), i32)
    dim %= value.ndim
    made, places = _sorted(net, _number(net, build.detach(net, value)), dim)
    extent, numbers = value.shape[dim], build.positions(net, value.shape, dim)
    before = build.slice_(net, made, dim, 0, max(extent - 1, 1))
    before = build.concat(net, [build.slice_(net, made, dim, 0, 1), before], dim) if extent > 1 else made
    begins = build.map_(net, select(x.ne(y), z, Const(0, i32)), [made, before, numbers], i32)
    length = build.map_(net, x - y, [numbers, build.scan(net, begins, dim, "max")], i32)
    last = _extremum(net, length, dim, "max")[1]
    index = take_along(net, places, last, dim)
    return _without(net, (take_along(net, value, index, dim), index), call.shape)


@aten("aten.quantile")
def quantile(
    call: OperatorCall,
    value: Value,
    q: Value | float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Value:
    """Elements at fractions of the order along ``dim``, between neighbours as ``interpolation`` says."""
    return _quantile(call, value, q, dim, keepdim=keepdim, interpolation=interpolation, skips=False)


@aten("aten.nanquantile")
def nanquantile(
    call: OperatorCall,
    value: Value,
    q: Value | float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Value:
    """Quantile of the elements other than NaN."""
    return _quantile(call, value, q, dim, keepdim=keepdim, interpolation=interpolation, skips=True)


def _quantile(
    call: OperatorCall,
    value: Value,
    q: Value | float,
    dim: int | None,
    *,
    keepdim: bool,
    interpolation: str,
    skips: bool,
) -> Value:
    net = call.net
    if dim is None or not value.ndim:
        value, dim = build.reshape(net, value, (value.size,)), 0
    dim %= value.ndim
    rows = build.permute(net, value, [*(d for d in range(value.ndim) if d != dim), dim])
    extent, last = rows.shape[-1], rows.ndim - 1
    is_number = build.map_(net, select(x.eq(x), 1.0, 0.0), [build.detach(net, rows)])
    count = build.reduce(net, is_number, [last], keep=True)
    ordered = build.sort(net, build.map_(net, select(x.eq(x), x, math.inf), [rows]))[0]
    fractions = build.cast(net, q, value.dtype) if isinstance(q, Value) else build.full(net, float(q), (), value.dtype)
    fractions = build.reshape(net, fractions, (fractions.size,))
    ranks = x * (apply("max", y - 1.0, 0.0) if skips else Const(extent - 1.0))
    rank = build.expand(net, build.map_(net, ranks, [fractions, count]), (*rows.shape[:-1], fractions.size))
    low, high, share = (build.map_(net, e, [rank]) for e in _ENDS[interpolation])
    ends = [take_along(net, ordered, build.cast(net, v, i32), last) for v in (low, high)]
    # The share is zero wherever both ends are one, which may be infinite.
    made = build.map_(net, select(z.eq(0.0), x, x + (y - x) * z), [*ends, share])
    # Without a number, or with something that is none among them, there is no quantile.
    made = build.map_(net, select(y < (0.5 if skips else extent - 0.5), math.nan, x), [made, count])
    return build.reshape(net, build.permute(net, made, [last, *range(last)]), call.shape)


_FLOOR, _CEIL = apply("floor", x), apply("ceil", x)
_ENDS: dict[str, tuple[Expr, Expr, Expr]] = {
    "linear": (_FLOOR, _CEIL, x - _FLOOR),
    "lower": (_FLOOR, _FLOOR, x * 0.0),
    "higher": (_CEIL, _CEIL, x * 0.0),
    "nearest": (apply("round", x), apply("round", x), x * 0.0),
    "midpoint": (_FLOOR, _CEIL, select(x.eq(_FLOOR), 0.0, 0.5)),
}
"""Ranks of the two elements that a quantile lies between, and its distance from the first, by way of interpolation."""


# --- searches ---------------------------------------------------------------------------------------------------------


@aten("aten.searchsorted.Tensor")
def searchsorted(
    call: OperatorCall,
    sequence: Value,
    value: Value,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    """Index at which each value belongs in its row of an ordered sequence."""
    if sorter is not None:
        sequence = take_along(call.net, sequence, build.cast(call.net, sorter, i32), sequence.ndim - 1)
    return _searched(call, sequence, value, right=right or side == "right")


@aten("aten.searchsorted.Scalar")
def searchsorted_number(
    call: OperatorCall,
    sequence: Value,
    value: float,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    """Index at which a number belongs in an ordered sequence."""
    if sorter is not None:
        sequence = take_along(call.net, sequence, build.cast(call.net, sorter, i32), 0)
    number = build.full(call.net, value, (), f32 if isinstance(value, float) else sequence.dtype)
    return _searched(call, sequence, number, right=right or side == "right")


@aten("aten.bucketize.Tensor")
def bucketize(
    call: OperatorCall, value: Value, boundaries: Value, *, out_int32: bool = False, right: bool = False
) -> Value:
    """Index at which each value belongs among the boundaries."""
    return _searched(call, boundaries, value, right=right)


@aten("aten.bucketize.Scalar")
def bucketize_number(
    call: OperatorCall, value: float, boundaries: Value, *, out_int32: bool = False, right: bool = False
) -> Value:
    """Index at which a number belongs among the boundaries."""
    number = build.full(call.net, value, (), f32 if isinstance(value, float) else boundaries.dtype)
    return _searched(call, boundaries, number, right=right)


def _searched(call: OperatorCall, sequence: Value, value: Value, *, right: bool) -> Value:
    net = call.net
    dtype = sequence.dtype if sequence.dtype.is_float or not value.dtype.is_float else value.dtype
    ordered, wanted = (build.cast(net, build.detach(net, v), dtype) for v in (sequence, value))
    if sequence.ndim == 1:
        ordered, wanted = build.reshape(net, ordered, (1, sequence.size)), build.reshape(net, wanted, (1, value.size))
    columns = ordered.shape[-1], wanted.shape[-1]
    tables, values = (build.reshape(net, v, (-1, n)) for v, n in zip((ordered, wanted), columns, strict=True))
    return build.reshape(net, build.search(net, tables, values, right=right), call.shape)
