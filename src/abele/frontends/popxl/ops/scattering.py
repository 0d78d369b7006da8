"""Ops that join elements by number, of whole tensors or of groups, and that count elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.frontends.popxl.errors import GraphArgumentError
from abele.frontends.popxl.ops.common import check_same_types, checked, emit, one_dim
from abele.frontends.popxl.ops.indexing import _inside, zeros_outside
from abele.frontends.popxl.tensors import Tensor
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops.joins import JOINS, join_at, spread_numbers, take_of_groups
from abele.numerics import f32, i32, u32

x, y, z = arg(0), arg(1), arg(2)


def _joined(
    kind: str,
    data: Tensor,
    indices: Tensor,
    reduction: Any,
    initial: Tensor | None,
    dim: int,
    *,
    size: int | None,
    grouped: bool,
    spreads: bool,
) -> Tensor:
    name = str(getattr(reduction, "name", reduction)).lower()
    if name not in JOINS:
        raise GraphArgumentError(f"{kind} has the reduction {reduction!r}: {', '.join(JOINS)}")
    given = [data, indices, *([] if initial is None else [initial])]
    checked(kind, *given)
    if not indices.dtype.is_int:
        raise GraphArgumentError(f"{kind} takes whole numbers as indices, {indices.id!r} is {indices.dtype.name}")
    if initial is not None:
        check_same_types(kind, (data, initial))
        size = initial.shape[dim] if size is None else size
        wanted = tuple(size if d == dim else n for d, n in enumerate(data.shape))
        if initial.shape != wanted:
            raise GraphArgumentError(f"{kind} has initial values {list(initial.shape)} for {list(wanted)}")
    if size is None:
        raise GraphArgumentError(f"{kind} has neither axis_size nor initial_values", remedy="give axis_size")
    extent = int(size)
    fits = [data.shape[d] for d in ((0, dim) if grouped else (dim,)) if data.shape[d] != 1]
    if indices.shape != data.shape and not (spreads and [n for n in indices.shape if n != 1] == fits):
        raise GraphArgumentError(f"{kind} has indices {list(indices.shape)} for data {list(data.shape)}")

    def meaning(net: BlockBuilder, v: Value, index: Value, *first: Value) -> Value:
        numbers = spread_numbers(net, _inside(net, index, extent), v.shape, dim, grouped)
        assert numbers is not None
        start = first[0] if first else None
        return join_at(net, v, numbers, dim, extent, initial=start, reduction=name)

    return emit(kind, meaning, *given)


def scatter_reduce(
    data: Tensor,
    indices: Tensor,
    reduction: Any,
    initial_values: Tensor | None = None,
    axis: int = 0,
    axis_size: int | None = None,
    enable_index_broadcast: bool = True,
    available_memory_proportion: float | None = None,
) -> Tensor:
    """Elements joined at their numbers along an axis of extent ``axis_size``.

    Args:
        data: Elements.
        indices: Number of each; or one per entry of the axis, with ``enable_index_broadcast``.
        reduction: ``sum``, ``max``, ``min``, ``mul``, or ``none``: one of them stays.
        initial_values: Values at first; without them places that nothing reaches are zero, for ``mul`` one.
        axis: The axis.
        axis_size: Its extent in the result; by default that of ``initial_values``.
        enable_index_broadcast: Take fewer indices.
        available_memory_proportion: No effect.
    """
    checked("scatter_reduce", data, indices)
    dim = one_dim("scatter_reduce", axis, data.rank)
    how: dict[str, Any] = {"size": axis_size, "grouped": False, "spreads": enable_index_broadcast}
    return _joined("scatter_reduce", data, indices, reduction, initial_values, dim, **how)


def grouped_scatter_reduce(
    data: Tensor,
    indices: Tensor,
    reduction: Any,
    initial_values: Tensor | None = None,
    axis: int = 0,
    axis_size: int | None = None,
    group_size: int | None = None,
    enable_index_broadcast: bool = True,
    available_memory_proportion: float | None = None,
) -> Tensor:
    """As :func:`scatter_reduce` for each entry of the first dimension; ``axis`` counts from the second on."""
    checked("grouped_scatter_reduce", data, indices)
    _check_groups("grouped_scatter_reduce", data, indices, group_size)
    dim = 1 + one_dim("grouped_scatter_reduce", axis, data.rank - 1)
    how: dict[str, Any] = {"size": axis_size, "grouped": True, "spreads": enable_index_broadcast}
    return _joined("grouped_scatter_reduce", data, indices, reduction, initial_values, dim, **how)


def _check_groups(kind: str, t: Tensor, indices: Tensor, count: int | None) -> None:
    if t.rank < 2 or not indices.rank or indices.shape[0] != t.shape[0] or count not in (None, t.shape[0]):
        said = "" if count is None else f" and group_size {count}"
        raise GraphArgumentError(
            f"{kind} takes one group per entry of dimension 0: {list(t.shape)} and {list(indices.shape)}{said}"
        )


def groupedgather(
    t: Tensor,
    indices: Tensor,
    axis: int = 0,
    group_size: int | None = None,
    available_memory_proportion: float | None = None,
    zero_OOR: bool = False,
) -> Tensor:
    """Entries of an axis by number, with numbers of its own for each entry of the first dimension.

    ``axis`` counts from the second dimension on.
    """
    checked("groupedgather", t, indices)
    _check_groups("groupedgather", t, indices, group_size)
    dim = 1 + one_dim("groupedgather", axis, t.rank - 1)
    extent = t.shape[dim]

    def meaning(net: BlockBuilder, v: Value, index: Value) -> Value:
        made = take_of_groups(net, v, _inside(net, index, extent), dim)
        if not zero_OOR:
            return made
        lined = (index.shape[0], *(1,) * (dim - 1), *index.shape[1:], *(1,) * (v.ndim - dim - 1))
        return zeros_outside(net, made, build.reshape(net, index, lined), extent)

    return emit("groupedgather", meaning, t, indices)


def histogram(t: Tensor, levels: Sequence[float], absolute_of_input: bool = False) -> Tensor:
    """Number of elements below the first level, between two levels, and from the last one on: uint32[levels + 1].

    Args:
        t: f16 or f32.
        levels: Rising limits.
        absolute_of_input: True to count magnitudes.
    """
    checked("histogram", t)
    limits = np.asarray(levels, np.float32).reshape(-1)
    if not t.dtype.is_floating_point or not limits.size or (np.diff(limits) < 0).any():
        raise GraphArgumentError(f"histogram takes floats and rising levels, not {t!r} and {list(levels)}")

    def meaning(net: BlockBuilder, v: Value) -> Value:
        flat = build.reshape(net, build.cast(net, v, f32), (1, v.size))
        sized = build.map_(net, apply("abs", x), [flat]) if absolute_of_input else flat
        places = build.search(net, net.constant(limits[None], f32), sized, right=True)
        # What is no number belongs nowhere.
        numbers = build.map_(net, select(y.ne(y), -1, x), [places, sized], i32)
        count = limits.size + 1
        made = build.sum_rows(
            net, build.full(net, 1.0, (v.size, 1), f32), build.reshape(net, numbers, (v.size,)), count
        )
        return build.cast(net, build.reshape(net, made, (count,)), u32)

    return emit("histogram", meaning, t)


__all__ = ["grouped_scatter_reduce", "groupedgather", "histogram", "scatter_reduce"]
