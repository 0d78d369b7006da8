"""Collectives: exchanges between replicas along the axes of a mesh, or of a map over replicas.

A ``shard_map`` reads a function of parts in a network that all replicas run alike: what enters is cut, of which each
replica takes its own part (nothing moves), and what leaves is gathered. Replica i·b + j of a mesh [a, b] is at (i, j):
each axis goes along groups of replicas that lie equally far apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from abele.expr.derivative import arg
from abele.frontends.jaxpr.registry import PrimitiveCall, primitive
from abele.kernels.nest.ir import select
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops.replicas import APART
from abele.numerics import bool_, i32
from abele.poplibs.gcl import CommGroup

_Names = str | Sequence[str | int]


def mesh_axes(shape: Mapping[str, int]) -> dict[str, CommGroup]:
    """Groups of replicas along each axis of a mesh, the last axis innermost."""
    axes, stride = {}, 1
    for name, size in reversed(tuple(shape.items())):
        axes[name] = CommGroup.strided(size, stride)
        stride *= size
    return axes


def _joined(call: PrimitiveCall, names: _Names, groups: Any = None) -> CommGroup:
    """The groups along one axis, or along several as one, in row-major order."""
    found = [call.reader.axes[n] for n in ((names,) if isinstance(names, str) else names) if isinstance(n, str)]
    for outer, inner in pairwise(found):
        if outer.stride != inner.stride * inner.size:
            raise call.refuse(f"over the axes {names}", "name axes of a mesh that follow each other, in its order")
    if not found:
        return CommGroup.none()
    whole = CommGroup.strided(math.prod(g.size for g in found), found[-1].stride)
    return whole if groups is None else _subgroups(call, whole, np.asarray(groups))


def _subgroups(call: PrimitiveCall, whole: CommGroup, groups: Any) -> CommGroup:
    """Groups within an axis, by the numbers along it."""
    step = int(groups[0, 1] - groups[0, 0]) if groups.ndim == 2 and groups.shape[1] > 1 else 1
    if groups.ndim == 2:
        found = CommGroup.strided(int(groups.shape[1]), step)
        if step > 0 and not whole.size % (step * found.size):
            members = found.members(whole.size)
            if np.array_equal(members, groups) or np.array_equal(members, groups[np.argsort(groups[:, 0])]):
                return CommGroup.strided(found.size, step * whole.stride)
    raise call.refuse(
        f"over the groups {groups.tolist()}", "groups of one size whose members lie equally far apart, in order"
    )


def _each(values: Sequence[Value]) -> Any:
    return tuple(values) if len(values) != 1 else values[0]


# --- sums and extrema -------------------------------------------------------------------------------------------------


@primitive("psum", "psum_invariant", "unreduced_psum")
def psum(call: PrimitiveCall, *values: Value, axes: _Names, axis_index_groups: Any = None) -> Any:
    """Sums over replicas."""
    group, dims = _joined(call, axes, axis_index_groups), _positions(axes)

    def one(value: Value) -> Value:
        local = build.reduce(call.net, value, dims, "add") if dims else value
        return build.replica_sum(call.net, local, group, APART)

    return _each([one(v) for v in values])


def _positions(axes: _Names) -> list[int]:
    return [a for a in axes if isinstance(a, int)]


@primitive("pmax")
def pmax(call: PrimitiveCall, *values: Value, axes: _Names, axis_index_groups: Any = None) -> Any:
    """The largest over replicas."""
    return _each([_largest(call, v, _joined(call, axes, axis_index_groups), _positions(axes)) for v in values])


def _largest(call: PrimitiveCall, value: Value, group: CommGroup, dims: Sequence[int]) -> Value:
    local = build.reduce(call.net, value, dims, "max") if dims else value
    if local.dtype != bool_:
        return build.replica_max(call.net, local, group)
    found = build.replica_max(call.net, build.cast(call.net, local, i32), group)
    return build.map_(call.net, arg(0).ne(0), [found], bool_)


@primitive("pmin")
def pmin(call: PrimitiveCall, *values: Value, axes: _Names, axis_index_groups: Any = None) -> Any:
    """The smallest over replicas: the largest of what orders the other way."""
    group, dims = _joined(call, axes, axis_index_groups), _positions(axes)

    def turned(value: Value) -> Value:
        if value.dtype.is_float:
            return build.map_(call.net, -arg(0), [value], value.dtype)
        if value.dtype == bool_:
            return build.map_(call.net, arg(0).eq(False), [value], bool_)
        return build.map_(call.net, _inverted(value), [value], value.dtype)

    return _each([turned(_largest(call, turned(v), group, dims)) for v in values])


def _inverted(value: Value) -> Any:
    """Every bit turned, which orders integers the other way and has no overflow."""
    limits = np.iinfo(value.dtype.np)
    return (int(limits.max) - arg(0)) if limits.min == 0 else (-1 - arg(0))


# --- parts ------------------------------------------------------------------------------------------------------------


@primitive("all_gather", "all_gather_invariant")
def all_gather(
    call: PrimitiveCall,
    *values: Value,
    axis_name: _Names,
    all_gather_dimension: int,
    tiled: bool,
    axis_index_groups: Any = None,
) -> Any:
    """Values of all replicas, along a new dimension or one after the other along an old one."""
    group, dim, net = _joined(call, axis_name, axis_index_groups), all_gather_dimension, call.net

    def one(value: Value) -> Value:
        shape = value.shape if tiled else (*value.shape[:dim], 1, *value.shape[dim:])
        return _gathered(net, build.reshape(net, value, shape), dim, group)

    return _each([one(v) for v in values])


def _gathered(net: BlockBuilder, value: Value, dim: int, group: CommGroup) -> Value:
    return build.replica_gather(net, value, dim, group, APART)


@primitive("reduce_scatter", "unreduced_reduce_scatter")
def reduce_scatter(
    call: PrimitiveCall, value: Value, *, axis_name: _Names, scatter_dimension: int, tiled: bool, axis_index_groups: Any
) -> Value:
    """The own part of the sum along a dimension."""
    group = _joined(call, axis_name, axis_index_groups)
    made = build.replica_scatter(call.net, value, scatter_dimension, group, of_sum=True)
    return made if tiled else build.reshape(call.net, made, call.shape)


@primitive("all_to_all")
def all_to_all(
    call: PrimitiveCall,
    value: Value,
    *,
    axis_name: _Names,
    split_axis: int,
    concat_axis: int,
    tiled: bool,
    axis_index_groups: Any,
) -> Value:
    """Part r along a dimension to the replica of rank r, and theirs put together along another one."""
    net, group = call.net, _joined(call, axis_name, axis_index_groups)
    size = group.size
    extent = value.shape[split_axis] // size
    split = (*value.shape[:split_axis], size, extent, *value.shape[split_axis + 1 :])
    order = [split_axis, *(d for d in range(len(split)) if d != split_axis)]
    rows = build.permute(net, build.reshape(net, value, split), order)
    swapped = build.replica_exchange(net, rows, group)
    # Rows are [ranks, dimensions of a part]; ranks go before the dimension that they are put together along.
    if not tiled:
        swapped = build.reshape(net, swapped, (size, *value.shape[:split_axis], *value.shape[split_axis + 1 :]))
    ndim = swapped.ndim
    back = [*range(1, concat_axis + 1), 0, *range(concat_axis + 1, ndim)]
    return build.reshape(net, build.permute(net, swapped, back), call.shape)


# --- sends ------------------------------------------------------------------------------------------------------------


@primitive("ppermute")
def ppermute(call: PrimitiveCall, *values: Value, axis_name: _Names, perm: Sequence[tuple[int, int]]) -> Any:
    """Values of the replicas that send here; zeros where none does."""
    net, group = call.net, _joined(call, axis_name)
    sources = {int(receiver): int(sender) for sender, receiver in perm}
    is_sent = np.array([rank in sources for rank in range(group.size)])
    every = _whole_permutation(sources, group.size)
    rank = None if is_sent.all() else build.replica_rank(net, group)

    def one(value: Value) -> Value:
        found = build.replica_permute(net, value, group, every)
        if rank is None:
            return found
        mask = build.reshape(net, build.read_row(net, net.constant(is_sent, bool_), rank), (1,) * value.ndim)
        zero = build.full(net, 0, (1,) * value.ndim, value.dtype)
        return build.map_(net, select(arg(2), arg(0), arg(1)), [found, zero, mask], value.dtype)

    return _each([one(v) for v in values])


def _whole_permutation(sources: Mapping[int, int], size: int) -> list[int]:
    """Sender of each rank; ranks that none is named for take what is left, their own values where they can."""
    left = sorted(set(range(size)) - set(sources.values()))
    own = [r for r in left if r not in sources]
    others = iter([r for r in left if r in sources])
    return [sources[r] if r in sources else r if r in own else next(others) for r in range(size)]


@primitive("pbroadcast")
def pbroadcast(call: PrimitiveCall, value: Value, *, axis_name: _Names, source: int) -> Value:
    """The value of one replica."""
    everyone = _gathered(call.net, build.reshape(call.net, value, (1, *value.shape)), 0, _joined(call, axis_name))
    return build.reshape(call.net, build.slice_(call.net, everyone, 0, source, source + 1), value.shape)


@primitive("axis_index")
def axis_index(call: PrimitiveCall, *, axis_name: _Names) -> Value:
    """The number of the replica along an axis."""
    return build.replica_rank(call.net, _joined(call, axis_name))


@primitive("pvary", "pcast", "preduced", "vary_unreduced_cast")
def same(call: PrimitiveCall, *values: Value) -> Any:
    """The values: only what JAX knows of them changes."""
    return _each(values)


# --- shard_map --------------------------------------------------------------------------------------------------------


@primitive("shard_map")
def shard_map(
    call: PrimitiveCall, *operands: Value, jaxpr: Any, mesh: Any, in_specs: Sequence[Any], out_specs: Sequence[Any]
) -> Any:
    """Results of a function of parts: operands are cut as said, and results put together."""
    axes = mesh_axes(dict(mesh.shape))
    inner = PrimitiveCall(call.reader.inside(call.net, axes={**call.reader.axes, **axes}), call.net, call.eqn)
    net = call.net

    def cut(value: Value, spec: Any) -> Value:
        for dim, names in enumerate(spec):
            if names is not None:
                value = build.replica_scatter(net, value, dim, _joined(inner, names))
        return value

    def whole(value: Value, spec: Any) -> Value:
        for dim, names in enumerate(spec):
            if names is not None:
                value = _gathered(net, value, dim, _joined(inner, names))
        return value

    parts = [cut(v, spec) for v, spec in zip(operands, in_specs, strict=True)]
    made = inner.reader.jaxpr(jaxpr, (), parts)
    return tuple(whole(v, spec) for v, spec in zip(made, out_specs, strict=True))


shard_map.runs = True  # type: ignore[attr-defined]
for _handler in (psum, pmax, pmin, all_gather, reduce_scatter, all_to_all, ppermute, pbroadcast, axis_index):
    _handler.runs = True  # type: ignore[attr-defined]
