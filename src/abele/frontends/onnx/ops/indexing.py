"""Elements by number: gathered, scattered, in order, and one-hot."""

from __future__ import annotations

import math

import numpy as np

from abele.expr import Const, select
from abele.expr.derivative import arg
from abele.frontends.onnx.registry import Item, Known, NodeCall, op
from abele.network import Value
from abele.network.ops import build
from abele.network.ops.along import put_along, take, take_along
from abele.network.ops.matrices import triangle
from abele.numerics import bool_, i32

x, y, z = arg(0), arg(1), arg(2)


def numbered(call: NodeCall, index: Item, extent: int) -> Value:
    """An index as i32 from 0 on; negative numbers count from the end.

    Numbers that are known are checked here, those of inputs before every run.
    """
    net = call.net
    if index.known is not None:
        wide = np.asarray(index.known).astype(np.int64)
        outside = (wide < -extent) | (wide >= extent)
        if outside.any():
            raise call.wrong(f"has an index {wide[outside].flat[0]}, there are {extent:,} entries")
        return net.constant(np.where(wide < 0, wide + extent, wide), i32)
    numbers = build.cast(net, call.reader.value(index), i32)
    net.bound(numbers, extent, "index", lowest=-extent)
    return build.map_(net, select(x < 0, x + Const(extent, i32), x), [numbers])


@op("Gather")
def gather(call: NodeCall, value: Value, indices: Item, *, axis: int = 0) -> Value:
    """Entries of one axis by their numbers."""
    dim = call.axis(axis, value.ndim)
    if indices.known is not None and indices.size == 1:
        number = int(numbered_one(call, indices, value.shape[dim]))
        part = build.slice_(call.net, value, dim, number, number + 1)
        return build.reshape(call.net, part, (*value.shape[:dim], *indices.shape, *value.shape[dim + 1 :]))
    return take(call.net, value, numbered(call, indices, value.shape[dim]), dim)


def numbered_one(call: NodeCall, index: Item, extent: int) -> int:
    """The one number of a known index."""
    number = int(np.asarray(index.known).reshape(-1)[0])
    if not -extent <= number < extent:
        raise call.wrong(f"has an index {number}, there are {extent:,} entries")
    return number % extent


@op("GatherElements")
def gather_elements(call: NodeCall, value: Value, indices: Item, *, axis: int = 0) -> Value:
    """Elements by their numbers along one axis."""
    dim = call.axis(axis, value.ndim)
    return take_along(call.net, value, numbered(call, indices, value.shape[dim]), dim)


@op("ScatterElements", "Scatter")
def scatter_elements(
    call: NodeCall, value: Value, indices: Item, updates: Value, *, axis: int = 0, reduction: str = "none"
) -> Value:
    """The operand with elements put, or joined with those there, at their numbers along one axis."""
    dim = call.axis(axis, value.ndim)
    numbers = numbered(call, indices, value.shape[dim])
    given = build.cast(call.net, updates, value.dtype)
    return put_along(call.net, value, numbers, given, dim=dim, operation=_join(call, reduction))


def _join(call: NodeCall, reduction: str) -> str:
    if reduction not in ("none", "add", "mul", "max", "min"):
        raise call.wrong(f"has the reduction {reduction!r}, which is none of none, add, mul, max and min")
    return "set" if reduction == "none" else reduction


def _entries(call: NodeCall, value: Value, indices: Item, batch: int) -> tuple[Value, int]:
    """Numbers of entries, [batch, n], of the dimensions that the last one of an index names, and how many these are."""
    net, depth = call.net, indices.shape[-1]
    extents = value.shape[batch : batch + depth]
    if depth > value.ndim - batch:
        raise call.wrong(f"has indices of {depth} dimensions into {value.ndim - batch}")
    parts = [numbered(call, _part(call, indices, n), extent) for n, extent in enumerate(extents)]
    made = parts[0]
    for further, extent in zip(parts[1:], extents[1:], strict=True):
        made = build.map_(net, x * Const(extent, i32) + y, [made, further], i32)
    groups = math.prod(value.shape[:batch])
    return build.reshape(net, made, (groups, made.size // max(groups, 1))), math.prod(extents)


def _part(call: NodeCall, indices: Item, number: int) -> Item:
    shape = indices.shape[:-1]
    if indices.known is not None:
        return Item(indices.name, shape, indices.dtype, np.asarray(indices.known)[..., number], fixed=True)
    whole = call.reader.value(indices)
    part = build.slice_(call.net, whole, whole.ndim - 1, number, number + 1)
    return Item(indices.name, shape, indices.dtype, value=build.reshape(call.net, part, shape))


@op("GatherND")
def gather_nd(call: NodeCall, value: Value, indices: Item, *, batch_dims: int = 0) -> Value:
    """Parts of the operand by indices of several dimensions."""
    net, depth = call.net, indices.shape[-1]
    numbers, entries = _entries(call, value, indices, batch_dims)
    rest = value.shape[batch_dims + depth :]
    table = build.reshape(net, value, (numbers.shape[0], entries, math.prod(rest)))
    rows = build.look_up_groups(net, table, numbers)
    return build.reshape(net, rows, (*indices.shape[:-1], *rest))


@op("ScatterND")
def scatter_nd(call: NodeCall, value: Value, indices: Item, updates: Value, *, reduction: str = "none") -> Value:
    """The operand with parts put, or joined with those there, at indices of several dimensions."""
    net, depth = call.net, indices.shape[-1]
    numbers, entries = _entries(call, value, indices, 0)
    width = math.prod(value.shape[depth:])
    table = build.reshape(net, value, (1, entries, width))
    rows = build.reshape(net, build.cast(net, updates, value.dtype), (1, numbers.shape[1], width))
    made = build.join_rows(net, table, rows, numbers, _join(call, reduction))
    return build.reshape(net, made, value.shape)


@op("TensorScatter")
def tensor_scatter(
    call: NodeCall,
    past: Value,
    update: Value,
    write_indices: Value | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Value:
    """A cache with rows written from a place of each sample's own on, past the end at the front where it is a ring."""
    net, dim = call.net, call.axis(axis, past.ndim)
    batch, length, extent = past.shape[0], update.shape[dim], past.shape[dim]
    first = build.full(net, 0, (batch,), i32) if write_indices is None else build.cast(net, write_indices, i32)
    steps = net.constant(np.arange(length).reshape(1, length), i32)
    places = build.map_(net, x + y, [build.reshape(net, first, (batch, 1)), steps], i32)
    if mode == "circular":
        places = build.map_(net, select(x >= extent, x - extent, x), [places], i32)
    shape = [batch if d == 0 else length if d == dim else 1 for d in range(past.ndim)]
    numbers = build.expand(net, build.reshape(net, places, shape), update.shape)
    return put_along(net, past, numbers, update, dim=dim, operation="set")


@op("OneHot")
def one_hot(call: NodeCall, indices: Value, depth: Known, values: Value, *, axis: int = -1) -> Value:
    """One number at each index along a new axis, another everywhere else; indices outside have no place."""
    net, count = call.net, int(np.asarray(depth).reshape(-1)[0])
    dim = call.axis(axis, indices.ndim + 1)
    whole = build.cast(net, indices, i32)
    shape = (*whole.shape[:dim], 1, *whole.shape[dim:])
    wanted = build.map_(net, select(x < 0, x + Const(count, i32), x), [build.reshape(net, whole, shape)])
    call.made_here(count)
    classes = net.constant(np.arange(count).reshape([-1 if d == dim else 1 for d in range(len(shape))]), i32)
    hit = build.map_(net, x.eq(y), [wanted, classes], bool_)
    off, on = (build.reshape(net, build.slice_(net, values, 0, n, n + 1), ()) for n in range(2))
    return build.map_(net, select(x, y, z), [hit, on, off], values.dtype)


@op("TopK")
def top_k(
    call: NodeCall, value: Value, k: Known, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Value, Value]:
    """The largest or smallest along an axis in order, and their numbers; of equal ones the first comes first."""
    net, dim, count = call.net, call.axis(axis, value.ndim), int(np.asarray(k).reshape(-1)[0])
    if not 0 <= count <= value.shape[dim]:
        raise call.wrong(f"takes {count} of {value.shape[dim]} elements")
    given = value if value.dtype.is_float or value.dtype.bits == 32 else build.cast(net, value, i32)
    made, places = build.top_k(net, build.transpose(net, given, dim, -1), count, largest=bool(largest))
    best = build.transpose(net, made, dim, -1)
    return build.cast(net, best, value.dtype), build.transpose(net, places, dim, -1)


@op("Trilu")
def trilu(call: NodeCall, value: Value, k: Known | None = None, *, upper: int = 1) -> Value:
    """The upper or lower triangle of matrices, with zeros beside it."""
    offset = 0 if k is None else int(np.asarray(k).reshape(-1)[0])
    return triangle(call.net, value, lower=not upper, offset=offset)


@op("ReverseSequence")
def reverse_sequence(call: NodeCall, value: Value, lengths: Value, *, batch_axis: int = 1, time_axis: int = 0) -> Value:
    """The first elements of each sequence in the opposite order; those after its length stay."""
    net, time, batch = call.net, call.axis(time_axis, value.ndim), call.axis(batch_axis, value.ndim)
    extent = value.shape[time]
    return take_along(net, value, reversed_places(call, value.shape, lengths, time, batch, extent), time)


def reversed_places(
    call: NodeCall, shape: tuple[int, ...], lengths: Value, time: int, batch: int, extent: int
) -> Value:
    """For each element, which element comes to its place where sequences of some lengths are turned round."""
    net = call.net
    steps = net.constant(np.arange(extent).reshape([-1 if d == time else 1 for d in range(len(shape))]), i32)
    ends = build.reshape(
        net, build.cast(net, lengths, i32), [shape[batch] if d == batch else 1 for d in range(len(shape))]
    )
    turned = build.map_(net, select(x < y, y - x - Const(1, i32), x), [steps, ends], i32)
    return build.expand(net, turned, shape)
