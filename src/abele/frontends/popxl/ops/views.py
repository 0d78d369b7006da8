"""Ops that move elements or show them otherwise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError
from abele.frontends.popxl.graph import get_current_graph
from abele.frontends.popxl.ops.common import check_same_types, checked, dims_of, emit, emit_many, one_dim
from abele.frontends.popxl.tensors import Tensor
from abele.network import BlockBuilder, Value
from abele.network.ops import build

Ints = Sequence[int]


def _full_shape(t: Tensor, shape: Ints) -> tuple[int, ...]:
    wanted = [int(n) for n in shape]
    if any(n < -1 for n in wanted) or wanted.count(-1) > 1:
        raise GraphArgumentError(f"the shape {wanted} has more than one open dimension, or a negative one")
    if -1 in wanted:
        rest = math.prod(n for n in wanted if n != -1)
        if rest and t.nelms % rest == 0:
            wanted[wanted.index(-1)] = t.nelms // rest
    if math.prod(wanted) != t.nelms:
        raise GraphArgumentError(f"{t.id!r} of shape {list(t.shape)} does not fit in {list(shape)}")
    return tuple(wanted)


def reshape(t: Tensor, shape: Ints) -> Tensor:
    """It in another shape; one dimension may be -1."""
    checked("reshape", t)
    wanted = _full_shape(t, shape)
    return emit("reshape", lambda net, v: build.reshape(net, v, wanted), t)


def reshape_(t: Tensor, shape: Ints) -> Tensor:
    """A view of it in another shape."""
    checked("reshape_", t)
    wanted, before = _full_shape(t, shape), t.shape
    return get_current_graph().view(
        "reshape_",
        lambda net, v: build.reshape(net, v, wanted),
        lambda net, _, new: build.reshape(net, new, before),
        t,
    )


def flatten(t: Tensor) -> Tensor:
    """It in one dimension."""
    return reshape(t, (-1,))


def flatten_(t: Tensor) -> Tensor:
    """A view of it in one dimension."""
    return reshape_(t, (-1,))


def squeeze(t: Tensor, axes: Ints | None = None) -> Tensor:
    """It without dimensions of one index: all of them, or those named."""
    checked("squeeze", t)
    chosen = (
        dims_of("squeeze", list(axes), t.rank) if axes is not None else [d for d, n in enumerate(t.shape) if n == 1]
    )
    if any(t.shape[d] != 1 for d in chosen):
        raise GraphArgumentError(f"squeeze removes dimensions of 1 from {list(t.shape)}, not {list(chosen)}")
    left = [n for d, n in enumerate(t.shape) if d not in chosen]
    return emit("squeeze", lambda net, v: build.reshape(net, v, left), t)


def _order(kind: str, t: Tensor, permutation: Ints | None) -> list[int]:
    if permutation is None:
        return list(reversed(range(t.rank)))
    found = [int(d) % t.rank if -t.rank <= d < t.rank else -1 for d in permutation]
    if sorted(found) != list(range(t.rank)):
        raise GraphArgumentError(f"{kind} takes an order of {t.rank} dimensions, not {list(permutation)}")
    return found


def transpose(t: Tensor, permutation: Ints | None = None) -> Tensor:
    """It with its dimensions in another order, by default the reverse."""
    checked("transpose", t)
    order = _order("transpose", t, permutation)
    return emit("transpose", lambda net, v: build.permute(net, v, order), t)


def transpose_(t: Tensor, permutation: Ints | None = None) -> Tensor:
    """A view of it with its dimensions in another order."""
    checked("transpose_", t)
    order = _order("transpose_", t, permutation)
    back = [order.index(d) for d in range(len(order))]
    return get_current_graph().view(
        "transpose_",
        lambda net, v: build.permute(net, v, order),
        lambda net, _, new: build.permute(net, new, back),
        t,
    )


def detach_(t: Tensor) -> Tensor:
    """A view of it, through which no gradient goes."""
    checked("detach_", t)
    return get_current_graph().view("detach_", lambda net, v: build.detach(net, v), lambda net, _, new: new, t)


Runs = list[tuple[int, int, int, int]]
"""Of each dimension that is sliced: its number, begin, end and step."""


def _runs(t: Tensor, start: Any, stop: Any, step: Any, axis: Any) -> Runs:
    lists = [None if v is None else list(v) if isinstance(v, list | tuple) else [v] for v in (start, stop, step, axis)]
    count = max((len(v) for v in lists if v is not None), default=0)
    starts, stops, steps, axes = (v if v is not None else [None] * count for v in lists)
    if lists[3] is None:
        axes = list(range(count))
    if not len(starts) == len(stops) == len(steps) == len(axes) == count:
        raise GraphArgumentError("slice takes as many starts, stops, steps and axes")
    found = []
    for a, b, s, dim in zip(starts, stops, steps, axes, strict=True):
        number = one_dim("slice", int(dim or 0), t.rank)
        if s == 0:
            raise GraphArgumentError("slice has a step of 0")
        begin, end, by = _python_slice(a, b, s).indices(t.shape[number])
        found.append((number, begin, end, by))
    return found


def _python_slice(a: Any, b: Any, s: Any) -> Any:
    return np.s_[a:b:s]


def _sliced(net: BlockBuilder, value: Value, runs: Runs) -> Value:
    for dim, begin, end, step in runs:
        if step > 0:
            value = build.slice_(net, value, dim, begin, max(begin, end), step)
            continue
        count = max(0, -(-(begin - end) // -step))
        if count == 0:
            value = build.slice_(net, value, dim, 0, 0)
            continue
        first = begin + step * (count - 1)
        value = build.reverse(net, build.slice_(net, value, dim, first, begin + 1, -step), [dim])
    return value


def _check_elements(t: Tensor, runs: Runs) -> None:
    for dim, begin, end, step in runs:
        if len(range(begin, end, step)) == 0:
            raise GraphArgumentError(f"slice leaves nothing of dimension {dim} of {list(t.shape)}")


def slice(t: Tensor, start: Any = None, stop: Any = None, step: Any = None, axis: Any = None) -> Tensor:
    """Indices of one or several axes from ``start`` to before ``stop``."""
    return _part("slice", t, start, stop, step, axis)


def _part(kind: str, t: Tensor, start: Any, stop: Any, step: Any, axis: Any) -> Tensor:
    checked(kind, t)
    runs = _runs(t, start, stop, step, axis)
    _check_elements(t, runs)
    return emit(kind, lambda net, v: _sliced(net, v, runs), t)


def slice_(t: Tensor, start: Any = None, stop: Any = None, step: Any = None, axis: Any = None) -> Tensor:
    """A view of indices of one or several axes."""
    checked("slice_", t)
    runs = _runs(t, start, stop, step, axis)
    _check_elements(t, runs)
    if any(s != 1 for *_, s in runs):
        raise GraphArgumentError("slice_ takes a step of 1", remedy="ops.slice, which copies")

    def write(net: BlockBuilder, base: Value, new: Value) -> Value:
        return _window_written(net, base, new, [(dim, begin) for dim, begin, _, _ in runs])

    return get_current_graph().view("slice_", lambda net, v: _sliced(net, v, runs), write, t)


def _window_written(net: BlockBuilder, base: Value, new: Value, starts: Sequence[tuple[int, int]]) -> Value:
    """``base`` with a window replaced, whose begin is known."""
    if not starts:
        return new
    (dim, begin), *rest = starts
    size = new.shape[dim]
    middle = build.slice_(net, base, dim, begin, begin + size)
    inner = _window_written(net, middle, new, rest)
    parts = [
        build.slice_(net, base, dim, 0, begin),
        inner,
        build.slice_(net, base, dim, begin + size, base.shape[dim]),
    ]
    kept = [p for p in parts if p.size]
    return kept[0] if len(kept) == 1 else build.concat(net, kept, dim)


def indexed(t: Tensor, key: Any) -> Tensor:
    """``t[key]``.

    Raises:
        GraphTypeError: A key of another kind than integers, slices and tensors.
        GraphArgumentError: An index that there is not.
    """
    from abele.frontends.popxl.ops.elementwise import where
    from abele.frontends.popxl.ops.indexing import gather
    from abele.frontends.popxl.tensors import constant

    if isinstance(key, Tensor):
        if key.dtype.name == "bool":
            return where(key, t, constant(0, t.dtype))
        if key.dtype.is_int:
            return gather(t, key)
    if isinstance(key, np.ndarray | list) and np.asarray(key).size:
        return indexed(t, constant(np.asarray(key)))
    keys = key if isinstance(key, tuple) else (key,)
    if Ellipsis in [k for k in keys if not isinstance(k, Tensor)]:
        place = keys.index(Ellipsis)
        keys = (*keys[:place], *([np.s_[:]] * (t.rank - len(keys) + 1)), *keys[place + 1 :])
    if len(keys) > t.rank:
        raise GraphArgumentError(f"{len(keys)} indices for {t.id!r}, which has {t.rank} dimensions")
    runs, dropped = [], []
    for dim, k in enumerate(keys):
        if isinstance(k, int | np.integer) and not isinstance(k, bool):
            if not -t.shape[dim] <= k < t.shape[dim]:
                raise GraphArgumentError(f"index {k} of dimension {dim}, which has {t.shape[dim]}")
            number = int(k) % t.shape[dim]
            runs.append((dim, number, number + 1, 1))
            dropped.append(dim)
        elif isinstance(k, type(np.s_[:])):
            runs.append((dim, *k.indices(t.shape[dim])))
        else:
            raise GraphTypeError(f"a tensor is indexed by integers, slices and tensors, not {k!r}")
    runs = [(d, a, b, s) for d, a, b, s in runs if (a, b, s) != (0, t.shape[d], 1)]
    checked("slice", t)
    _check_elements(t, runs)
    kept = [d for d in range(t.rank) if d not in dropped]

    def meaning(net: BlockBuilder, v: Value) -> Value:
        made = _sliced(net, v, runs)
        return build.reshape(net, made, [made.shape[d] for d in kept])

    return emit("slice", meaning, t)


def concat(ts: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors after each other along an axis."""
    found, dim = _in_line("concat", ts, axis)
    return emit("concat", lambda net, *values: build.concat(net, list(values), dim), *found)


def concat_(ts: Sequence[Tensor], axis: int = 0) -> Tensor:
    """A view of tensors after each other along an axis."""
    found, dim = _in_line("concat_", ts, axis)
    ends = [int(n) for n in np.cumsum([t.shape[dim] for t in found])]

    def write(net: BlockBuilder, *values: Value) -> list[Value]:
        return [build.slice_(net, values[-1], dim, end - t.shape[dim], end) for t, end in zip(found, ends, strict=True)]

    return get_current_graph().view("concat_", lambda net, *values: build.concat(net, list(values), dim), write, *found)


def _in_line(kind: str, ts: Sequence[Tensor], axis: int) -> tuple[list[Tensor], int]:
    found = [ts] if isinstance(ts, Tensor) else list(ts)
    if not found:
        raise GraphArgumentError(f"{kind} takes at least one tensor")
    checked(kind, *found)
    check_same_types(kind, found)
    dim = one_dim(kind, axis, found[0].rank)
    rests = {tuple(n for d, n in enumerate(t.shape) if d != dim) for t in found}
    if len(rests) > 1 or any(t.rank != found[0].rank for t in found):
        raise GraphArgumentError(f"{kind} has {', '.join(str(list(t.shape)) for t in found)} along axis {axis}")
    return found, dim


def split(t: Tensor, splits: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """It in several parts along an axis: as many of one size, or of the sizes given."""
    checked("split", t)
    dim = one_dim("split", axis, t.rank)
    sizes = [t.shape[dim] // splits] * splits if isinstance(splits, int) else [int(n) for n in splits]
    if sum(sizes) != t.shape[dim]:
        raise GraphArgumentError(f"split makes {splits} of axis {axis}, which has {t.shape[dim]}")
    ends = np.cumsum(sizes)

    def meaning(net: BlockBuilder, v: Value) -> list[Value]:
        return [build.slice_(net, v, dim, int(e) - n, int(e)) for n, e in zip(sizes, ends, strict=True)]

    return emit_many("split", meaning, t)


def subsample(t: Tensor, strides: int | Ints) -> Tensor:
    """Every so many-th index of each dimension."""
    checked("subsample", t)
    steps = [strides] * t.rank if isinstance(strides, int) else list(strides)
    return _part("subsample", t, [None] * len(steps), [None] * len(steps), steps, None)


def ipu_copy(t: Tensor, destination: int, source: int | None = None) -> Tensor:
    """It on another IPU."""
    from abele.frontends.popxl.graph import ipu

    with ipu(destination):
        return emit("ipu_copy", lambda net, v: build.transfer(net, v), t)


def io_tile_copy(t: Tensor) -> Tensor:
    """A copy: this machine sets no tiles aside for the host."""
    return emit("io_tile_copy", lambda net, v: v, t)


__all__ = [
    "concat",
    "concat_",
    "detach_",
    "flatten",
    "flatten_",
    "io_tile_copy",
    "ipu_copy",
    "reshape",
    "reshape_",
    "slice",
    "slice_",
    "split",
    "squeeze",
    "subsample",
    "transpose",
    "transpose_",
]
