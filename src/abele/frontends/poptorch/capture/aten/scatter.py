"""Tensors with some of their elements replaced or joined with others, at indices that the machine computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.aten.arithmetic import mul
from abele.frontends.poptorch.capture.aten.indexing import AdvancedIndex, wrapped
from abele.frontends.poptorch.capture.aten.segments import identity
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.kernels.nest.ir import apply, select
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops.along import put, put_along
from abele.numerics import bool_, f32, i32

x, y, z = arg(0), arg(1), arg(2)

_JOINS = {
    "add": "add",
    "sum": "add",
    "mean": "add",
    "multiply": "mul",
    "prod": "mul",
    "amax": "max",
    "amin": "min",
}


def _dim(value: Value, dim: int) -> int:
    return dim % value.ndim if value.ndim else 0


def _numbers(call: OperatorCall, value: Value, dim: int, index: Value) -> Value:
    return wrapped(call, index, value.shape[dim] if value.ndim else 1, negative=False)


def _source(call: OperatorCall, source: Value | float, like: Value, shape: tuple[int, ...]) -> Value:
    """Values to put, in the type of the destination; a number in the shape of the index."""
    if isinstance(source, Value):
        return build.cast(call.net, source, like.dtype)
    return build.full(call.net, source, shape, like.dtype)


@aten("aten.scatter")
def scatter(
    call: OperatorCall, value: Value, dim: int, index: Value, src: Value | float, *, reduce: str | None = None
) -> Value:
    """Elements of the source put, added or multiplied where their index along one dimension says."""
    dim = _dim(value, dim)
    source, numbers = _source(call, src, value, index.shape), _numbers(call, value, dim, index)
    return put_along(call.net, value, numbers, source, dim=dim, operation=_JOINS[reduce] if reduce else "set")


@aten("aten.scatter_add")
def scatter_add(call: OperatorCall, value: Value, dim: int, index: Value, src: Value) -> Value:
    """Elements of the source added where their index along one dimension says."""
    dim = _dim(value, dim)
    numbers = _numbers(call, value, dim, index)
    return put_along(call.net, value, numbers, _source(call, src, value, ()), dim=dim, operation="add")


@aten("aten.scatter_reduce")
def scatter_reduce(
    call: OperatorCall, value: Value, dim: int, index: Value, src: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """Elements of the source reduced, by their index along one dimension, with the value or without it."""
    net, dim = call.net, _dim(value, dim)
    source, numbers = _source(call, src, value, ()), _numbers(call, value, dim, index)

    def put_into(table: Value, rows: Value, operation: str) -> Value:
        return put_along(net, table, numbers, rows, dim=dim, operation=operation)

    return _reduced(net, put_into, value, source, reduce, include_self=include_self)


@aten("aten.index_reduce")
def index_reduce(
    call: OperatorCall, value: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """Entries of one dimension reduced with those of the source, by number."""
    net = call.net
    value, source = (_with_a_dimension(net, v) for v in (value, source))
    dim = dim % value.ndim
    numbers = wrapped(call, index, value.shape[dim], negative=False)

    def put_into(table: Value, rows: Value, operation: str) -> Value:
        return put(net, table, numbers, rows, dim=dim, operation=operation)

    return build.reshape(net, _reduced(net, put_into, value, source, reduce, include_self=include_self), call.shape)


def _reduced(
    net: BlockBuilder,
    put_into: Callable[[Value, Value, str], Value],
    value: Value,
    source: Value,
    reduce: str,
    *,
    include_self: bool,
) -> Value:
    """``source`` reduced into ``value``, where ``put_into`` joins elements with those of a tensor like it."""
    if include_self and reduce != "mean":
        return put_into(value, source, _JOINS[reduce])
    zeros, ones = build.full(net, 0.0, value.shape, f32), build.full(net, 1.0, source.shape, f32)
    counts, table = put_into(zeros, ones, "add"), value
    if not include_self:
        start = build.full(net, identity(reduce, value), value.shape, value.dtype)
        table = build.map_(net, select(y > 0.0, z, x), [value, counts, start], value.dtype)
    made = put_into(table, source, _JOINS[reduce])
    if reduce != "mean":
        return made
    quotient = x / (y + 1.0 if include_self else apply("max", y, 1.0))
    if value.dtype.is_float:
        return build.map_(net, quotient, [made, counts], value.dtype)
    return build.cast(net, build.map_(net, apply("floor", quotient), [build.cast(net, made, f32), counts]), value.dtype)


def _with_a_dimension(net: BlockBuilder, value: Value) -> Value:
    return value if value.ndim else build.reshape(net, value, (1,))


@aten("aten.index_add")
def index_add(call: OperatorCall, value: Value, dim: int, index: Value, source: Value, *, alpha: float = 1) -> Value:
    """Entries of one dimension with those of the source added, by number."""
    added = source if alpha == 1 else mul(call, source, alpha)
    return _indexed(call, value, dim, index, source=added, operation="add")


@aten("aten.index_copy")
def index_copy(call: OperatorCall, value: Value, dim: int, index: Value, source: Value) -> Value:
    """Entries of one dimension replaced by those of the source, by number."""
    return _indexed(call, value, dim, index, source=source, operation="set")


@aten("aten.index_fill")
def index_fill(call: OperatorCall, value: Value, dim: int, index: Value, fill: float | Value) -> Value:
    """Entries of one dimension filled with a number: a choice between both, by whether an entry is named."""
    net, value = call.net, _with_a_dimension(call.net, value)
    dim %= value.ndim
    extent = value.shape[dim]
    numbers = wrapped(call, index, extent)
    none, ones = build.full(net, 0, (1, extent, 1), i32), build.full(net, 1, (1, index.size, 1), i32)
    named = build.join_rows(net, none, ones, build.reshape(net, numbers, (1, index.size)), "max")
    named = build.reshape(net, named, (extent, *(1,) * (value.ndim - dim - 1)))
    number = build.cast(net, fill, value.dtype) if isinstance(fill, Value) else build.full(net, fill, (), value.dtype)
    made = build.map_(net, select(x > 0, y, z), [named, build.reshape(net, number, ()), value], value.dtype)
    return build.reshape(net, made, call.shape)


def _indexed(call: OperatorCall, value: Value, dim: int, index: Value, *, source: Value, operation: str) -> Value:
    net = call.net
    value, source = _with_a_dimension(net, value), _with_a_dimension(net, build.cast(net, source, value.dtype))
    dim %= value.ndim
    numbers = wrapped(call, index, value.shape[dim], negative=False)
    return build.reshape(net, put(net, value, numbers, source, dim=dim, operation=operation), call.shape)


@aten("aten.index_put", "aten._unsafe_index_put", "aten._index_put_impl")
def index_put(
    call: OperatorCall,
    value: Value,
    indices: Sequence[Value | None],
    source: Value,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Value:
    """Elements at indices replaced by those of the source, or with them added."""
    net, source = call.net, build.cast(call.net, source, value.dtype)
    masked = _under_a_mask(net, value, indices, source, accumulate=accumulate)
    if masked is not None:
        return masked
    found = AdvancedIndex.of(call, value, indices)
    rows = found.rows(build.expand(net, source, found.shape(value)))
    table = found.table(value)
    grouped, given = (build.reshape(net, v, (1, *v.shape)) for v in (table, rows))
    numbers = build.reshape(net, found.number, (1, found.number.size))
    made = build.join_rows(net, grouped, given, numbers, "add" if accumulate else "set")
    return found.back(build.reshape(net, made, table.shape), value)


def _under_a_mask(
    net: BlockBuilder, value: Value, indices: Sequence[Value | None], source: Value, *, accumulate: bool
) -> Value | None:
    """The value with one number, or one for each of its last elements, where a mask that only the machine knows is
    true; None for other indices."""
    given = [(d, index) for d, index in enumerate(indices) if index is not None]
    if len(given) != 1 or given[0][1].dtype.kind not in ("bool", "uint") or net.contents(given[0][1]) is not None:
        return None
    dim, mask = given[0]
    # As many numbers as there are true elements would have to be dealt out in their order.
    after = value.ndim - dim - mask.ndim
    if source.ndim > after and math.prod(source.shape[: source.ndim - after]) != 1:
        return None
    kept = source.shape[max(0, source.ndim - after) :]
    places = build.reshape(net, build.cast(net, mask, bool_), (*mask.shape, *(1,) * after))
    brought = build.reshape(net, source, kept)
    total = apply("or", y, z) if value.dtype == bool_ else y + z
    return build.map_(net, select(x, total if accumulate else y, z), [places, brought, value], value.dtype)


@aten("aten.put")
def put_flat(call: OperatorCall, value: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    """Elements by their number in row-major order replaced by those of the source, or with them added."""
    net = call.net
    numbers = build.reshape(net, wrapped(call, index, value.size), (index.size,))
    flat, rows = build.reshape(net, value, (value.size,)), build.reshape(net, source, (source.size,))
    made = put(net, flat, numbers, rows, dim=0, operation="add" if accumulate else "set")
    return build.reshape(net, made, value.shape)


@aten("aten.masked_scatter")
def masked_scatter(call: OperatorCall, value: Value, mask: Value, source: Value) -> Value:
    """The value with the source's elements, in order, where the mask is true."""
    net, shape = call.net, call.shape
    value, mask = build.expand(net, value, shape), build.expand(net, mask, shape)
    count = build.cast(net, build.reshape(net, mask, (mask.size,)), i32)
    number = build.map_(net, x - 1, [build.scan(net, count, 0)])
    flat = build.reshape(net, source, (source.size, 1))
    taken = build.reshape(net, build.look_up(net, flat, number), shape)
    return build.map_(net, select(x, y, z), [mask, taken, value], value.dtype)


@aten("aten.slice_scatter")
def slice_scatter(
    call: OperatorCall,
    value: Value,
    source: Value,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Value:
    """The value with some indices of a dimension replaced."""
    dim %= value.ndim
    begin, _, step = slice(start, end, step).indices(value.shape[dim])
    return with_slice(call.net, value, build.cast(call.net, source, value.dtype), dim=dim, begin=begin, step=step)


@aten("aten.select_scatter")
def select_scatter(call: OperatorCall, value: Value, source: Value, dim: int, index: int) -> Value:
    """The value with one index of a dimension replaced."""
    dim %= value.ndim
    row = build.reshape(
        call.net, build.cast(call.net, source, value.dtype), (*value.shape[:dim], 1, *value.shape[dim + 1 :])
    )
    return with_slice(call.net, value, row, dim=dim, begin=index % value.shape[dim], step=1)


def with_slice(net: BlockBuilder, value: Value, source: Value, *, dim: int, begin: int, step: int) -> Value:
    """``value`` with the indices ``begin``, ``begin`` + ``step``, … of a dimension replaced by those of ``source``.

    Nothing is computed: the result shows elements of both.
    """
    extent, count = value.shape[dim], source.shape[dim]
    if not count:
        return value
    before = build.slice_(net, value, dim, 0, begin)
    if step == 1:
        after = build.slice_(net, value, dim, begin + count, extent)
        return build.concat(net, [p for p in (before, source, after) if p.size], dim)
    # All steps but the last are whole: an element of the source, and those between it and the next.
    last = begin + (count - 1) * step
    shape = value.shape
    parts = [before]
    if count > 1:
        whole = (*shape[:dim], count - 1, step, *shape[dim + 1 :])
        between = build.slice_(
            net, build.reshape(net, build.slice_(net, value, dim, begin, last), whole), dim + 1, 1, step
        )
        given = build.slice_(net, source, dim, 0, count - 1)
        given = build.reshape(net, given, (*shape[:dim], count - 1, 1, *shape[dim + 1 :]))
        steps = build.concat(net, [given, between], dim + 1)
        parts.append(build.reshape(net, steps, (*shape[:dim], last - begin, *shape[dim + 1 :])))
    parts += [build.slice_(net, source, dim, count - 1, count), build.slice_(net, value, dim, last + 1, extent)]
    return build.concat(net, [p for p in parts if p.size], dim)


@aten("aten.diagonal_scatter")
def diagonal_scatter(
    call: OperatorCall, value: Value, source: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Value:
    """The value with a diagonal replaced."""
    net, shape = call.net, value.shape
    dim1, dim2 = dim1 % value.ndim, dim2 % value.ndim
    rows, columns = np.ogrid[: shape[dim1], : shape[dim2]]
    rest = [d for d in range(value.ndim) if d not in (dim1, dim2)]
    on_it = net.constant(columns - rows == offset, bool_, "diagonal")
    low, count = max(0, -offset), source.shape[-1]
    # Each diagonal element stands in the row that it belongs to, and is shown along all of it.
    given = build.cast(net, source, value.dtype)
    given = build.pad(net, given, [0] * (given.ndim - 1) + [low], [0] * (given.ndim - 1) + [shape[dim1] - low - count])
    given = build.reshape(net, given, (*given.shape, 1))
    moved = build.permute(net, value, [*rest, dim1, dim2])
    made = build.map_(net, select(x, y, z), [on_it, given, moved], value.dtype)
    order = [*rest, dim1, dim2]
    return build.permute(net, made, [order.index(d) for d in range(value.ndim)])


@aten("aten.as_strided_scatter")
def as_strided_scatter(
    call: OperatorCall,
    value: Value,
    source: Value,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Value:
    """The value, row-major, with the elements at strides replaced."""
    net, places = call.net, np.array(storage_offset or 0)
    for extent, step in zip(size, stride, strict=True):
        places = places[..., None] + np.arange(extent) * step
    flat, rows = build.reshape(net, value, (value.size,)), build.reshape(net, source, (source.size,))
    numbers = net.constant(places.reshape(-1), i32)
    made = put(net, flat, numbers, build.cast(net, rows, value.dtype), dim=0, operation="set")
    return build.reshape(net, made, value.shape)
