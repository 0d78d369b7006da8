"""Embeddings, and entries of tensors chosen by numbers that the machine computes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.aten.indexing import AdvancedIndex, wrapped
from abele.frontends.poptorch.capture.aten.segments import bag_numbers, counts, reduce_bags
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.kernels.nest.ir import Const, apply, select
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops.along import put, take, take_along
from abele.numerics import i32

x, y, z = arg(0), arg(1), arg(2)


@aten("aten.embedding")
def embedding(
    call: OperatorCall,
    weight: Value,
    index: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    """Rows of the table; the row ``padding_idx`` gets no gradient."""
    return _rows(call, weight, index, padding_idx, by_frequency=scale_grad_by_freq)


def _rows(call: OperatorCall, weight: Value, index: Value, padding: int, *, by_frequency: bool) -> Value:
    net = call.net
    net.bound(index, weight.shape[0], "index")
    rows = build.look_up(net, weight, index)
    if padding < 0 and not by_frequency:
        return rows
    # The same rows either way: only through one of them does a gradient flow.
    kept, places = build.detach(net, rows), build.reshape(net, index, (*index.shape, 1))
    if by_frequency:
        rows = build.map_(net, x + (y - x) / z, [kept, rows, _frequencies(net, index, weight)])
    if padding < 0:
        return rows
    return build.map_(net, select(z.eq(padding), x, y), [kept, rows, places], rows.dtype)


def _frequencies(net: BlockBuilder, index: Value, weight: Value) -> Value:
    """Count of each index, beside its row."""
    numbers = build.reshape(net, index, (index.size,))
    ones = build.full(net, 1.0, (index.size, 1), weight.dtype)
    times = build.look_up(net, build.sum_rows(net, ones, build.cast(net, numbers, i32), weight.shape[0]), numbers)
    return build.reshape(net, times, (*index.shape, 1))


@aten("aten.embedding_renorm")
def embedding_renorm(call: OperatorCall, weight: Value, index: Value, max_norm: float, norm_type: float) -> Value:
    """The table with those of the rows that are looked up scaled down to a norm."""
    net = call.net
    net.bound(index, weight.shape[0], "index")
    numbers = build.cast(net, build.reshape(net, index, (index.size,)), i32)
    ones = build.full(net, 1.0, (index.size, 1), weight.dtype)
    times = build.sum_rows(net, ones, numbers, weight.shape[0])
    norms = norm(net, weight, [1], norm_type)
    # PyTorch's own guard against a division by zero.
    scaled = select(apply("and", y > 0.0, z > max_norm), x * (max_norm / (z + 1e-7)), x)
    return build.map_(net, scaled, [weight, times, norms])


def norm(net: BlockBuilder, value: Value, dims: Sequence[int], order: float) -> Value:
    """The norm of ``value`` over ``dims``, which stay with one index."""
    if order == float("inf"):
        return build.reduce(net, build.map_(net, apply("abs", x), [value]), dims, "max", keep=True)
    if order == 2:
        squares = build.map_(net, apply("square", x), [value])
        return build.map_(net, apply("sqrt", x), [build.reduce(net, squares, dims, keep=True)])
    powers = apply("abs", x) if order == 1 else apply("pow", apply("abs", x), float(order))
    total = build.reduce(net, build.map_(net, powers, [value]), dims, keep=True)
    return total if order == 1 else build.map_(net, apply("pow", x, 1 / order), [total])


@aten("aten.renorm")
def renorm(call: OperatorCall, value: Value, p: float, dim: int, maxnorm: float) -> Value:
    """Every index of ``dim`` scaled down to a norm."""
    dims = [d for d in range(value.ndim) if d != dim % value.ndim]
    norms = norm(call.net, value, dims, p)
    return call.map(select(y > float(maxnorm), x * (float(maxnorm) / (y + 1e-7)), x), value, norms)


@aten("aten.embedding_bag", "aten._embedding_bag", "aten._embedding_bag_forward_only")
def embedding_bag(
    call: OperatorCall,
    weight: Value,
    index: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Value | None, ...]:
    """Sums, means or maxima of the rows of every bag; bags begin at ``offsets``."""
    net = call.net
    padding = -1 if padding_idx is None else padding_idx % weight.shape[0]
    rows = _rows(call, weight, index, padding, by_frequency=scale_grad_by_freq)
    if per_sample_weights is not None:
        factors = build.reshape(net, per_sample_weights, (index.size, 1))
        rows = build.map_(net, x * y, [rows, factors], rows.dtype)
    bags = offsets.shape[0] - int(include_last_offset)
    if include_last_offset:
        offsets = build.slice_(net, offsets, 0, 0, bags)
    numbers = bag_numbers(net, offsets, index.size)
    if padding_idx is not None:
        # Rows of padding belong to no bag.
        numbers = build.map_(net, select(y.eq(padding), bags, x), [numbers, index], numbers.dtype)
    operation = ("sum", "mean", "max")[mode]
    result = reduce_bags(net, rows, numbers, bags, operation, start=0.0 if operation == "mean" else None)
    if operation == "max":
        result = build.map_(net, select(y.eq(0.0), 0.0, x), [result, counts(net, rows, numbers, bags)])
    return result, None, None, None


@aten("aten.index_select")
def index_select(call: OperatorCall, value: Value, dim: int, index: Value) -> Value:
    """Entries of one dimension."""
    if not value.ndim:
        return build.reshape(call.net, value, call.shape)
    dim %= value.ndim
    numbers = wrapped(call, index, value.shape[dim], negative=False)
    return build.reshape(call.net, take(call.net, value, numbers, dim), call.shape)


@aten("aten.index.Tensor", "aten._unsafe_index")
def index(call: OperatorCall, value: Value, indices: Sequence[Value | None]) -> Value:
    """Indexing by tensors of numbers, and by masks that are known."""
    found = AdvancedIndex.of(call, value, indices)
    return found.taken(value)


@aten("aten.gather")
def gather(call: OperatorCall, value: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    """Elements by their index along one dimension."""
    dim = dim % value.ndim if value.ndim else 0
    numbers = wrapped(call, index, value.shape[dim] if value.ndim else 1, negative=False)
    return take_along(call.net, value, numbers, dim)


@aten("aten.take_along_dim")
def take_along_dim(call: OperatorCall, value: Value, index: Value, dim: int | None = None) -> Value:
    """Elements by their index along one dimension, both broadcast along the others."""
    net = call.net
    if dim is None:
        numbers = wrapped(call, build.reshape(net, index, (index.size,)), value.size)
        return take_along(net, build.reshape(net, value, (value.size,)), numbers, 0)
    dim %= value.ndim
    numbers = wrapped(call, index, value.shape[dim])
    shape = call.shape
    numbers = build.expand(net, numbers, shape)
    value = build.expand(net, value, (*shape[:dim], value.shape[dim], *shape[dim + 1 :]))
    return take_along(net, value, numbers, dim)


@aten("aten.take")
def take_flat(call: OperatorCall, value: Value, index: Value) -> Value:
    """Elements by their number in row-major order."""
    flat = build.reshape(call.net, value, (value.size, 1))
    numbers = wrapped(call, index, value.size)
    return build.reshape(call.net, build.look_up(call.net, flat, numbers), index.shape)


# --- places that are data -------------------------------------------------------------------------------------------


@aten("aten.item.default", "aten._local_scalar_dense.default")
def item(call: OperatorCall, value: Value) -> Value:
    """The one number of a tensor, as an index that the device computes."""
    return build.reshape(call.net, value, ())


@aten("aten.select.int")
def select_index(call: OperatorCall, value: Value, dim: int, index: int | Value) -> Value:
    """One index of a dimension, which disappears; also one that the device computes."""
    dim %= value.ndim
    if isinstance(index, Value):
        numbers = wrapped(call, build.reshape(call.net, index, (1,)), value.shape[dim])
        return build.reshape(call.net, take(call.net, value, numbers, dim), call.shape)
    index %= value.shape[dim]
    return build.reshape(call.net, build.slice_(call.net, value, dim, index, index + 1), call.shape)


@aten("abele.rows_of")
def rows_of(call: OperatorCall, table: Value, numbers: Value) -> Value:
    """Rows of the table; zeros by numbers that are none of a row."""
    return build.look_up(call.net, table, build.cast(call.net, numbers, i32))


@aten("abele.inverse_numbers")
def inverse_numbers(call: OperatorCall, numbers: Value, total: int) -> Value:
    """Place of each number among ``numbers``, of which each is there once; their count for those that are not there.

    A sum, as no two are added: tiles sum their shares, where rows that are set need an order.
    """
    net, count = call.net, numbers.size
    below = net.constant(np.arange(count)[:, None] - count, i32, "places")
    sums = build.sum_rows(net, below, build.cast(net, numbers, i32), total)
    return build.map_(net, x + count, [build.reshape(net, sums, (total,))])


@aten("abele.dynamic_slice")
def dynamic_slice(call: OperatorCall, value: Value, dim: int, start: Value, size: int, step: int) -> Value:
    """Indices of a dimension from one on that the device computes; after the last one comes the first."""
    return take(call.net, value, _from(call.net, start, value.shape[dim], size, step), dim)


@aten("abele.dynamic_update")
def dynamic_update(call: OperatorCall, value: Value, source: Value, dim: int, start: Value, size: int) -> Value:
    """The value with indices of a dimension replaced, from one on that the device computes."""
    numbers = _from(call.net, start, value.shape[dim], size, 1)
    return put(call.net, value, numbers, source, dim=dim, operation="set")


def _from(net: BlockBuilder, start: Value, extent: int, size: int, step: int) -> Value:
    """Places ``start``, ``start`` + ``step``, … of a dimension that goes round, i32."""
    begin = build.reshape(net, build.cast(net, start, i32), (1,))
    offsets = net.constant(np.arange(0, size, step), i32, "offsets")
    # The remainder of a division has the sign of the dividend.
    left = apply("rem", x + y, Const(extent, i32))
    return build.map_(net, select(left < 0, left + Const(extent, i32), left), [begin, offsets], i32)
