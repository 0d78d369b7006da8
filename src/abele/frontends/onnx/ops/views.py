"""Views: the same elements in another shape or order, parts of them, and parts put together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from abele.expr import select
from abele.expr.derivative import arg
from abele.frontends.onnx.registry import Item, Known, NodeCall, op
from abele.network import Value
from abele.network.ops import build
from abele.network.ops.lookup import even_runs, taken_runs
from abele.numerics import i32


@op("Reshape")
def reshape(
    call: NodeCall, value: Value, shape: Known, *, allowzero: int = 0, consumed_inputs: tuple[int, ...] = ()
) -> Value:
    """The elements in another shape: 0 is the extent that was there, -1 what is left."""
    wanted = [int(n) for n in np.asarray(shape).reshape(-1)]
    if not allowzero:
        if any(n == 0 and d >= value.ndim for d, n in enumerate(wanted)):
            raise call.wrong(f"keeps a dimension that its input {list(value.shape)} does not have: {wanted}")
        wanted = [value.shape[d] if n == 0 else n for d, n in enumerate(wanted)]
    if wanted.count(-1) > 1:
        raise call.wrong(f"has the shape {wanted}, of which one extent may be left open")
    if -1 in wanted:
        others = math.prod(n for n in wanted if n != -1)
        if others == 0 or value.size % others:
            raise call.wrong(f"has the shape {wanted}, into which {list(value.shape)} does not go")
        wanted[wanted.index(-1)] = value.size // others
    if math.prod(wanted) != value.size or min(wanted, default=0) < 0:
        raise call.wrong(f"has the shape {wanted}, into which {list(value.shape)} does not go")
    return build.reshape(call.net, value, wanted)


@op("Flatten")
def flatten(call: NodeCall, value: Value, *, axis: int = 1) -> Value:
    """A matrix, whose rows are all dimensions before an axis."""
    begin = axis + value.ndim if axis < 0 else axis
    if not 0 <= begin <= value.ndim:
        raise call.wrong(f"has axis {axis}, its input has {value.ndim} dimensions")
    return build.reshape(call.net, value, (math.prod(value.shape[:begin]), math.prod(value.shape[begin:])))


@op("Squeeze")
def squeeze(call: NodeCall, value: Value, axes: Known | None = None) -> Value:
    """Dimensions of one element left out: those named, or all."""
    gone = tuple(d for d, n in enumerate(value.shape) if n == 1) if axes is None else call.axes(axes, value.ndim)
    wrong = [d for d in gone if value.shape[d] != 1]
    if wrong:
        raise call.wrong(f"leaves out dimension {wrong[0]}, which has {value.shape[wrong[0]]} elements")
    return build.reshape(call.net, value, [n for d, n in enumerate(value.shape) if d not in gone])


@op("Unsqueeze")
def unsqueeze(call: NodeCall, value: Value, axes: Known) -> Value:
    """New dimensions of one element."""
    rank = value.ndim + np.asarray(axes).size
    new, old = call.axes(axes, rank), iter(value.shape)
    return build.reshape(call.net, value, [1 if d in new else next(old) for d in range(rank)])


@op("Transpose")
def transpose(call: NodeCall, value: Value, *, perm: tuple[int, ...] | None = None) -> Value:
    """Dimensions in another order; without one, backwards."""
    order = tuple(reversed(range(value.ndim))) if perm is None else call.axes(perm, value.ndim)
    if len(order) != value.ndim:
        raise call.wrong(f"has an order of {len(order)} dimensions, its input has {value.ndim}")
    return build.permute(call.net, value, order)


@op("Expand")
def expand(call: NodeCall, value: Value, shape: Known) -> Value:
    """The operand repeated along dimensions of one element; either shape may be the larger."""
    try:
        wanted = np.broadcast_shapes(value.shape, tuple(int(n) for n in shape))
    except ValueError:
        raise call.wrong(
            f"has the shape {[int(n) for n in shape]}, {list(value.shape)} does not spread to it"
        ) from None
    padded = build.reshape(call.net, value, (1,) * (len(wanted) - value.ndim) + value.shape)
    return build.expand(call.net, padded, wanted)


@op("Tile")
def tile(call: NodeCall, value: Value, repeats: Known, axis: Known | None = None) -> Value:
    """The operand several times along each dimension."""
    times = [int(n) for n in np.asarray(repeats).reshape(-1)]
    if call.version < 6 and axis is not None:
        along = call.axis(int(axis), value.ndim)
        times = [times[0] if d == along else 1 for d in range(value.ndim)]
    if len(times) != value.ndim:
        raise call.wrong(f"repeats {len(times)} dimensions, its input has {value.ndim}")
    made = value
    for dim, count in enumerate(times):
        if count != 1:
            apart = build.reshape(call.net, made, (*made.shape[:dim], 1, *made.shape[dim:]))
            wide = build.expand(call.net, apart, (*made.shape[:dim], count, *made.shape[dim:]))
            made = build.reshape(call.net, wide, (*made.shape[:dim], count * made.shape[dim], *made.shape[dim + 1 :]))
    return made


@op("Concat")
def concat(call: NodeCall, *values: Value, axis: int = 1) -> Value:
    """Tensors one after the other along an axis."""
    dim = call.axis(axis, values[0].ndim)
    beside = {(*v.shape[:dim], *v.shape[dim + 1 :]) for v in values}
    if len(beside) > 1 or len({v.ndim for v in values}) > 1:
        raise call.wrong(f"puts {', '.join(str(list(v.shape)) for v in values)} together along axis {axis}")
    return build.concat(call.net, values, dim)


@op("Split")
def split(
    call: NodeCall, value: Value, split: Known | None = None, *, axis: int = 0, num_outputs: int | None = None
) -> tuple[Value, ...]:
    """Parts along an axis, as long as said or equally long; the last may be shorter."""
    dim = call.axis(axis, value.ndim)
    extent, count = value.shape[dim], num_outputs or call.results
    if split is not None:
        lengths = [int(n) for n in np.asarray(split).reshape(-1)]
    else:
        each = -(-extent // count)
        lengths = [min(each, max(extent - each * n, 0)) for n in range(count)]
    if sum(lengths) != extent or min(lengths, default=0) < 0:
        raise call.wrong(f"cuts {extent} elements into {lengths}")
    ends = np.cumsum([0, *lengths]).tolist()
    return tuple(build.slice_(call.net, value, dim, a, b) for a, b in pairwise(ends))


@op("Slice", until=10)
def slice_by_attributes(
    call: NodeCall, value: Value, *, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None
) -> Value:
    """A part along some axes."""
    return _slice(call, value, starts, ends, axes, None)


@op("Slice", since=10)
def slice_(
    call: NodeCall,
    value: Value,
    starts: Item,
    ends: Item,
    axes: Known | None = None,
    steps: Known | None = None,
) -> Value:
    """A part along some axes, with steps of either sign; it may begin where a run says if its length is known."""
    for item in (starts, ends):
        if item.known is None:
            raise call.unknown(item, "the place and length of its part")
    assert starts.known is not None
    assert ends.known is not None
    return _slice(call, value, starts.known, ends.known, axes, steps)


def _slice(
    call: NodeCall,
    value: Value,
    starts: Sequence[int] | Known,
    ends: Sequence[int] | Known,
    axes: Sequence[int] | Known | None,
    steps: Known | None,
) -> Value:
    begins, stops = ([int(n) for n in np.asarray(a).reshape(-1)] for a in (starts, ends))
    dims = call.axes(range(len(begins)) if axes is None else axes, value.ndim)
    strides = [1] * len(begins) if steps is None else [int(n) for n in np.asarray(steps).reshape(-1)]
    if not len(begins) == len(stops) == len(dims) == len(strides):
        raise call.wrong(f"has {len(begins)} starts, {len(stops)} ends, {len(dims)} axes and {len(strides)} steps")
    made = value
    for dim, begin, stop, step in zip(dims, begins, stops, strides, strict=True):
        if step == 0:
            raise call.wrong(f"has a step of 0 along axis {dim}")
        made = sliced(call, made, dim, slice(begin, stop, step))
    return made


def sliced(call: NodeCall, value: Value, dim: int, part: slice) -> Value:
    """A part of one dimension, as Python slices it."""
    taken = range(value.shape[dim])[part]
    if not len(taken):
        empty = (*value.shape[:dim], 0, *value.shape[dim + 1 :])
        return build.full(call.net, 0, empty, value.dtype)
    if taken.step > 0:
        return build.slice_(call.net, value, dim, taken[0], taken[-1] + 1, taken.step)
    upward = build.slice_(call.net, value, dim, taken[-1], taken[0] + 1, -taken.step)
    return build.reverse(call.net, upward, [dim])


# --- padding ----------------------------------------------------------------------------------------------------------


@op("Pad")
def pad(
    call: NodeCall,
    value: Value,
    pads: Known,
    constant_value: Item | None = None,
    axes: Known | None = None,
    *,
    mode: str = "constant",
    value_: float | None = None,
    paddings: tuple[int, ...] | None = None,
) -> Value:
    """Elements around, or taken off where padding is negative."""
    sides = [int(n) for n in np.asarray(pads).reshape(-1)]
    dims = list(range(value.ndim)) if axes is None else list(call.axes(axes, value.ndim))
    if len(sides) != 2 * len(dims):
        raise call.wrong(f"has {len(sides)} numbers of padding for {len(dims)} dimensions")
    low, high = [0] * value.ndim, [0] * value.ndim
    for place, dim in enumerate(dims):
        low[dim], high[dim] = sides[place], sides[place + len(dims)]
    made = value
    for dim in range(value.ndim):
        if low[dim] < 0 or high[dim] < 0:
            begin, end = max(-low[dim], 0), made.shape[dim] - max(-high[dim], 0)
            made = sliced(call, made, dim, slice(begin, max(end, begin)))
    low, high = [max(n, 0) for n in low], [max(n, 0) for n in high]
    if mode == "constant":
        return _constant_around(call, made, low, high, value_ if constant_value is None else constant_value)
    for dim in range(made.ndim):
        if low[dim] or high[dim]:
            made = _around(call, made, dim, low[dim], high[dim], mode)
    return made


def _constant_around(call: NodeCall, value: Value, low: list[int], high: list[int], fill: Item | float | None) -> Value:
    net = call.net
    if not isinstance(fill, Item):
        return build.pad(net, value, low, high, fill=fill or 0)
    if fill.known is not None:
        number = np.asarray(fill.known).reshape(-1)[0].item() if fill.size else 0
        return build.pad(net, value, low, high, fill=number)
    inside = build.pad(net, build.full(net, 1, value.shape, i32), low, high)
    wide = build.pad(net, value, low, high)
    filled = build.reshape(net, call.reader.value(fill), ())
    return build.map_(net, select(arg(0).ne(0), arg(1), arg(2)), [inside, wide, filled], value.dtype)


def _around(call: NodeCall, value: Value, dim: int, low: int, high: int, mode: str) -> Value:
    extent = value.shape[dim]
    call.made_here(max(low + extent + high, 0))
    where = np.arange(-low, extent + high)
    if mode == "edge":
        numbers = np.clip(where, 0, extent - 1)
    elif mode == "wrap":
        numbers = where % extent
    elif mode == "reflect":
        period = max(2 * (extent - 1), 1)
        folded = where % period
        numbers = np.where(folded < extent, folded, period - folded)
    else:
        raise call.wrong(f"has the mode {mode!r}, which is none of constant, edge, reflect and wrap")
    return taken_runs(call.net, value, dim, list(even_runs([int(n) for n in numbers])))


# --- blocks of a field ------------------------------------------------------------------------------------------------


@op("DepthToSpace")
def depth_to_space(call: NodeCall, value: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    """Channels spread over blocks of the field."""
    batch, channels, height, width = value.shape
    if channels % (blocksize * blocksize):
        raise call.wrong(f"spreads {channels} channels over blocks of {blocksize} x {blocksize}")
    depth = channels // (blocksize * blocksize)
    net = call.net
    if mode == "DCR":
        apart = build.reshape(net, value, (batch, blocksize, blocksize, depth, height, width))
        made = build.permute(net, apart, (0, 3, 4, 1, 5, 2))
    else:
        apart = build.reshape(net, value, (batch, depth, blocksize, blocksize, height, width))
        made = build.permute(net, apart, (0, 1, 4, 2, 5, 3))
    return build.reshape(net, made, (batch, depth, height * blocksize, width * blocksize))


@op("SpaceToDepth")
def space_to_depth(call: NodeCall, value: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    """Blocks of the field as channels."""
    batch, channels, height, width = value.shape
    if height % blocksize or width % blocksize:
        raise call.wrong(f"cuts a field of {height} x {width} into blocks of {blocksize}")
    net = call.net
    apart = build.reshape(net, value, (batch, channels, height // blocksize, blocksize, width // blocksize, blocksize))
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    made = build.permute(net, apart, order)
    return build.reshape(net, made, (batch, channels * blocksize**2, height // blocksize, width // blocksize))
