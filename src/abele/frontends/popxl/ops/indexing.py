"""Ops that read and write elements by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.frontends.popxl.errors import GraphArgumentError, OperandError
from abele.frontends.popxl.ops.common import change, check_index, check_same_types, checked, dims_of, emit, one_dim
from abele.frontends.popxl.tensors import Tensor
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops.along import put_along, take
from abele.numerics import bool_, i32

x, y, z = arg(0), arg(1), arg(2)


def _inside(net: BlockBuilder, index: Value, extent: int) -> Value:
    """Numbers as i32, kept within an axis: nothing outside of a tensor is read or written."""
    number = build.cast(net, index, i32)
    return build.map_(net, apply("max", apply("min", x, _whole(extent - 1)), _whole(0)), [number], i32)


def _whole(number: int) -> Any:
    from abele.expr import Const

    return Const(number, i32)


def gather(
    t: Tensor,
    indices: Tensor,
    axis: int = 0,
    available_memory_proportion: float | None = None,
    zero_OOR: bool = False,
) -> Tensor:
    """Entries of an axis by number; numbers outside of it give zeros with ``zero_OOR``, else the nearest entry."""
    return _gathered("gather", t, indices, axis, zero_OOR)


def _gathered(kind: str, t: Tensor, indices: Tensor, axis: int, zero_OOR: bool) -> Tensor:
    checked(kind, t, indices)
    check_index(kind, indices)
    dim = one_dim(kind, axis, t.rank)
    extent = t.shape[dim]

    def meaning(net: BlockBuilder, v: Value, index: Value) -> Value:
        made = take(net, v, _inside(net, index, extent), dim)
        if not zero_OOR:
            return made
        shape = (*(1,) * dim, *index.shape, *(1,) * (v.ndim - dim - 1))
        return zeros_outside(net, made, build.reshape(net, index, shape), extent)

    return emit(kind, meaning, t, indices)


def zeros_outside(net: BlockBuilder, made: Value, index: Value, extent: int) -> Value:
    """Entries that were gathered, as zeros where their number is outside of an axis."""
    outside = apply("logical_or", y < _whole(0), y > _whole(extent - 1))
    zero = 0.0 if made.dtype.is_float else _whole(0)
    return build.map_(net, select(outside, zero, x), [made, build.cast(net, index, i32)], made.dtype)


def tied_gather(
    t: Tensor,
    indices: Tensor,
    axis: int = 0,
    available_memory_proportion: float | None = None,
    zero_OOR: bool = False,
) -> Tensor:
    """As :func:`gather`, of a table that a product reads as well."""
    return _gathered("tied_gather", t, indices, axis, zero_OOR)


def scatter(t: Tensor, indices: Tensor, values: Tensor, axis: int = 0) -> Tensor:
    """It with elements replaced by ``values``, each at its number along an axis."""
    checked("scatter", t, indices, values)
    check_index("scatter", indices)
    check_same_types("scatter", (t, values))
    dim = one_dim("scatter", axis, t.rank)
    fits = indices.rank == t.rank and all(
        d == dim or a <= b for d, (a, b) in enumerate(zip(indices.shape, t.shape, strict=True))
    )
    if not fits or values.shape != indices.shape:
        raise OperandError(
            f"scatter puts {list(values.shape)} by indices {list(indices.shape)} into {list(t.shape)}",
            because="a value has an index, and both have the tensor's number of dimensions",
        )

    def meaning(net: BlockBuilder, v: Value, index: Value, source: Value) -> Value:
        return put_along(net, v, _inside(net, index, v.shape[dim]), source, dim=dim, operation="set")

    return emit("scatter", meaning, t, indices, values)


def onehot(t: Tensor, num_classes: Any, values: Tensor, axis: int = -1) -> Tensor:
    """``values[1]`` at the number that each element is, ``values[0]`` elsewhere, along a new axis."""
    checked("onehot", t, values)
    check_index("onehot", t)
    if values.shape != (2,):
        raise OperandError(f"onehot takes an off and an on value, not {list(values.shape)}")
    count = int(num_classes.data) if isinstance(num_classes, Tensor) and hasattr(num_classes, "data") else num_classes
    if not isinstance(count, int | np.integer):
        raise GraphArgumentError(f"onehot takes a number of classes that is known, not {num_classes!r}")
    dim = one_dim("onehot", axis, t.rank + 1)

    def meaning(net: BlockBuilder, v: Value, pair: Value) -> Value:
        numbers = net.constant(np.arange(int(count)).reshape(-1, *(1,) * (v.ndim - dim)), i32)
        index = build.reshape(net, build.cast(net, v, i32), (*v.shape[:dim], 1, *v.shape[dim:]))
        hit = build.map_(net, x.eq(y), [index, numbers], bool_)
        off, on = (build.reshape(net, build.slice_(net, pair, 0, n, n + 1), ()) for n in range(2))
        return build.map_(net, select(x, y, z), [hit, on, off], pair.dtype)

    return emit("onehot", meaning, t, values)


def _starts(net: BlockBuilder, index: Value, count: int) -> Value:
    return build.reshape(net, build.cast(net, index, i32), (count,))


def dynamic_slice(
    t: Tensor, index: Tensor, axes: Sequence[int], sizes: Sequence[int], no_overlap: bool = False
) -> Tensor:
    """A window of it, which begins at ``index`` of some axes."""
    checked("dynamic_slice", t, index)
    dims = _window("dynamic_slice", t, index, axes, sizes)

    def meaning(net: BlockBuilder, v: Value, start: Value) -> Value:
        return build.read_window(net, v, _starts(net, start, len(dims)), list(dims), [int(n) for n in sizes])

    return emit("dynamic_slice", meaning, t, index)


def _window(kind: str, t: Tensor, index: Tensor, axes: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """Axes of a window.

    Raises:
        OperandError: It is larger than the tensor, or there are as many sizes or begins as do not fit.
    """
    check_index(kind, index)
    dims = dims_of(kind, list(axes), t.rank)
    if not len(axes) == len(dims) == len(sizes) == index.nelms:
        raise OperandError(f"{kind} has {len(axes)} axes, {len(sizes)} sizes and {index.nelms} begins")
    if any(not 0 < n <= t.shape[d] for d, n in zip(dims, sizes, strict=True)):
        raise OperandError(f"{kind} has sizes {list(sizes)} of axes {list(axes)} of {list(t.shape)}")
    return dims


def _updated(kind: str, given: Sequence[Tensor], axes: Sequence[int], sizes: Sequence[int]) -> Any:
    t, index, new = given
    check_same_types(kind, (t, new))
    dims = _window(kind, t, index, axes, sizes)
    wanted = [int(sizes[dims.index(d)]) if d in dims else n for d, n in enumerate(t.shape)]
    if list(new.shape) != wanted:
        raise OperandError(f"{kind} replaces {wanted} by {list(new.shape)}")
    return lambda net, v, start, new: build.write_window(net, v, new, _starts(net, start, len(dims)), list(dims))


def dynamic_update(
    t: Tensor, index: Tensor, t_update: Tensor, axes: Sequence[int], sizes: Sequence[int], no_overlap: bool = False
) -> Tensor:
    """It with a window replaced, which begins at ``index`` of some axes."""
    checked("dynamic_update", t, index, t_update)
    return emit("dynamic_update", _updated("dynamic_update", (t, index, t_update), axes, sizes), t, index, t_update)


def dynamic_update_(
    t: Tensor, index: Tensor, t_update: Tensor, axes: Sequence[int], sizes: Sequence[int], no_overlap: bool = False
) -> Tensor:
    """A window of it replaced in place."""
    checked("dynamic_update_", t, index, t_update)
    return change("dynamic_update_", _updated("dynamic_update_", (t, index, t_update), axes, sizes), t, index, t_update)


__all__ = ["dynamic_slice", "dynamic_update", "dynamic_update_", "gather", "onehot", "scatter", "tied_gather"]
