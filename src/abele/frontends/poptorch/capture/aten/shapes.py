"""Shapes: views, slices, concatenation. None of them moves data on the device."""

from __future__ import annotations

from collections.abc import Sequence

from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.network import Value
from abele.network.ops import build


@aten(
    "aten.view.default",
    "aten.reshape",
    "aten._unsafe_view",
    "aten.flatten",
    "aten.unflatten",
    "aten.squeeze",
    "aten.unsqueeze",
    "aten.view_as",
)
def reshape(call: OperatorCall, value: Value, *args: object) -> Value:
    """View of the elements in the shape of the result."""
    return build.reshape(call.net, value, call.shape)


@aten("aten.sym_size.int")
def size(call: OperatorCall, value: Value, dim: int) -> int:
    """An extent, which is a plain number."""
    return value.shape[dim]


@aten("aten.permute")
def permute(call: OperatorCall, value: Value, dims: Sequence[int]) -> Value:
    """Dimensions in another order."""
    return build.permute(call.net, value, dims)


@aten("aten.transpose", "aten.swapaxes")
def transpose(call: OperatorCall, value: Value, dim0: int, dim1: int) -> Value:
    """Two dimensions swapped."""
    return build.transpose(call.net, value, dim0, dim1) if value.ndim else value


@aten("aten.t", "aten.mT")
def matrix_transpose(call: OperatorCall, value: Value) -> Value:
    """Rows and columns swapped."""
    return build.transpose(call.net, value) if value.ndim > 1 else value


@aten("aten.numpy_T")
def reverse_dims(call: OperatorCall, value: Value) -> Value:
    """All dimensions in reverse order."""
    return build.permute(call.net, value, range(value.ndim)[::-1])


@aten("aten.expand", "aten.broadcast_to", "aten.expand_as")
def expand(call: OperatorCall, value: Value, *args: object, **kwargs: object) -> Value:
    """Elements repeated to the shape of the result."""
    return build.expand(call.net, value, call.shape)


@aten("aten.copy.default")
def copy(call: OperatorCall, value: Value, source: Value, non_blocking: bool = False) -> Value:
    """The source in the shape and type of the value."""
    return build.expand(call.net, call.operand(source, call.dtype), call.shape)


@aten("aten.broadcast_tensors")
def broadcast_tensors(call: OperatorCall, values: Sequence[Value]) -> tuple[Value, ...]:
    """Every value repeated to one shape."""
    return tuple(build.expand(call.net, v, call.shape) for v in values)


@aten("aten.repeat", "aten.tile")
def repeat(call: OperatorCall, value: Value, repeats: Sequence[int]) -> Value:
    """The whole value repeated along dimensions; the last ones, where fewer are given, as ``tile`` has it."""
    repeats = (1,) * (value.ndim - len(repeats)) + tuple(repeats)
    value = build.reshape(call.net, value, (1,) * (len(repeats) - value.ndim) + value.shape)
    pairs = [n for extent in value.shape for n in (1, extent)]
    wide = [n for times, extent in zip(repeats, value.shape, strict=True) for n in (times, extent)]
    return build.reshape(call.net, build.expand(call.net, build.reshape(call.net, value, pairs), wide), call.shape)


@aten("aten.slice")
def slice_(
    call: OperatorCall, value: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    """Some indices of a dimension."""
    begin, stop, step = slice(start, end, step).indices(value.shape[dim])
    return build.slice_(call.net, value, dim, begin, max(begin, stop), step)


@aten("aten.narrow.default")
def narrow(call: OperatorCall, value: Value, dim: int, start: int, length: int) -> Value:
    """``length`` indices of a dimension."""
    return build.slice_(call.net, value, dim, start, start + length)


@aten("aten.flip", "aten.fliplr", "aten.flipud")
def flip(call: OperatorCall, value: Value, dims: Sequence[int] = ()) -> Value:
    """Dimensions backwards."""
    name = str(call.node.target)
    return build.reverse(call.net, value, [1] if "fliplr" in name else [0] if "flipud" in name else dims)


@aten("aten.roll")
def roll(call: OperatorCall, value: Value, shifts: int | Sequence[int], dims: int | Sequence[int] = ()) -> Value:
    """Dimensions turned round: what leaves at one end comes in at the other. Without dims, all elements in a row."""
    by = [shifts] if isinstance(shifts, int) else list(shifts)
    along = [dims] if isinstance(dims, int) else list(dims)
    rolled = value if along else build.reshape(call.net, value, (value.size,))
    for shift, dim in zip(by, along or [0], strict=True):
        extent = rolled.shape[dim]
        start = -shift % extent if extent else 0
        parts = [build.slice_(call.net, rolled, dim, *ends) for ends in ((start, extent), (0, start))]
        rolled = build.concat(call.net, [p for p in parts if p.size] or [rolled], dim)
    return build.reshape(call.net, rolled, value.shape)


@aten("aten.cat", "aten.concat")
def cat(call: OperatorCall, values: Sequence[Value], dim: int = 0) -> Value:
    """The values after each other."""
    kept = [call.operand(v, call.dtype) for v in values if v.size]
    return build.concat(call.net, kept, dim)


@aten("aten.stack")
def stack(call: OperatorCall, values: Sequence[Value], dim: int = 0) -> Value:
    """The values along a new dimension."""
    dim %= values[0].ndim + 1
    rows = [build.reshape(call.net, v, (*v.shape[:dim], 1, *v.shape[dim:])) for v in values]
    return build.concat(call.net, [call.operand(r, call.dtype) for r in rows], dim)


@aten("aten.split", "aten.split_with_sizes", "aten.chunk")
def split(call: OperatorCall, value: Value, sizes: int | Sequence[int], dim: int = 0) -> tuple[Value, ...]:
    """Parts of a dimension, as long as those of the result."""
    ends = [0]
    parts = []
    for fake in call.node.meta["val"]:
        ends.append(ends[-1] + fake.shape[dim])
        parts.append(build.slice_(call.net, value, dim, ends[-2], ends[-1]))
    return tuple(parts)


@aten("aten.unbind")
def unbind(call: OperatorCall, value: Value, dim: int = 0) -> tuple[Value, ...]:
    """Every index of a dimension, which disappears."""
    rows = [build.slice_(call.net, value, dim, i, i + 1) for i in range(value.shape[dim])]
    return tuple(build.reshape(call.net, r, call.shape) for r in rows)
