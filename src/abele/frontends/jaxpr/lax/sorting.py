"""Orders: sorting by keys, the best elements, and the index of an extremum."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from abele.expr.derivative import arg
from abele.frontends.jaxpr.registry import PrimitiveCall, primitive
from abele.frontends.jaxpr.types import element_type
from abele.kernels.nest.ir import Const, apply, select
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import bool_, f32, i32

x, y, z = arg(0), arg(1), arg(2)

Pair = tuple[Value, Value]


def _as_rows(net: BlockBuilder, value: Value, dim: int) -> Value:
    """[rows, extent of ``dim``]."""
    moved = build.permute(net, value, [*(d for d in range(value.ndim) if d != dim), dim])
    return build.reshape(net, moved, (value.size // value.shape[dim], value.shape[dim]))


def _from_rows(net: BlockBuilder, rows: Value, shape: Sequence[int], dim: int) -> Value:
    """Rows as an array of ``shape`` but for the extent of ``dim``: the way back of :func:`_as_rows`."""
    others = [d for d in range(len(shape)) if d != dim]
    made = build.reshape(net, rows, (*(shape[d] for d in others), rows.shape[1]))
    order = [*others, dim]
    return build.permute(net, made, [order.index(d) for d in range(len(order))])


@primitive("sort")
def sort(call: PrimitiveCall, *values: Value, dimension: int, num_keys: int) -> tuple[Value, ...]:
    """The operands in the order of the first ones, of which later ones count where earlier ones are equal.

    By stable sorts from the last key to the first, each of which says where elements come from.
    """
    net, shape = call.net, values[0].shape
    rows = [_as_rows(net, v, dimension) for v in values]
    places: Value | None = None
    ordered = rows[0]
    for key in reversed(rows[:num_keys]):
        given = key if places is None else _taken(net, [key], places)[0]
        ordered, found = build.sort(net, given)
        places = found if places is None else _taken(net, [places], found)[0]
    assert places is not None
    made = [ordered, *_taken(net, rows[1:], places)]
    return tuple(_from_rows(net, v, shape, dimension) for v in made)


def _taken(net: BlockBuilder, rows: Sequence[Value], places: Value) -> list[Value]:
    """Elements of rows [groups, n] at places [groups, m]; those of one type are looked up together."""
    made: dict[int, Value] = {}
    types = dict.fromkeys(v.dtype for v in rows)
    for dtype in types:
        own = [i for i, v in enumerate(rows) if v.dtype == dtype]
        counted = [i for i in own if _counts_up(net, rows[i])]
        made |= dict.fromkeys(counted, build.cast(net, places, dtype))
        own = [i for i in own if i not in counted]
        if not own:
            continue
        columns = [build.reshape(net, rows[i], (*rows[i].shape, 1)) for i in own]
        taken = build.look_up_groups(net, build.concat(net, columns, 2), places)
        for column, i in enumerate(own):
            made[i] = build.reshape(net, build.slice_(net, taken, 2, column, column + 1), places.shape)
    return [made[i] for i in range(len(rows))]


def _counts_up(net: BlockBuilder, rows: Value) -> bool:
    """True for the numbers of columns: taken at places they are the places."""
    while (maker := net.makers.get(rows)) is not None and maker.kind == "expand" and maker.inputs[0].ndim == rows.ndim:
        rows = maker.inputs[0]
    known = net.contents(rows)
    return known is not None and rows.dtype != bool_ and bool((known == np.arange(known.shape[1])).all())


@primitive("top_k")
def top_k(call: PrimitiveCall, value: Value, *, k: int, axis: int) -> Pair:
    """The largest elements along a dimension, best first, and their indices."""
    return _best(call, value, k, axis, largest=True)


@primitive("approx_top_k")
def approx_top_k(call: PrimitiveCall, value: Value, *, k: int, reduction_dimension: int, is_max_k: bool) -> Pair:
    """The best elements along a dimension, all of them as they are found, and their indices."""
    return _best(call, value, k, reduction_dimension, largest=is_max_k)


def _best(call: PrimitiveCall, value: Value, count: int, dim: int, *, largest: bool) -> Pair:
    net, axis = call.net, dim % value.ndim
    made, places = build.top_k(net, _as_rows(net, value, axis), count, largest=largest)
    best, index = (_from_rows(net, v, value.shape, axis) for v in (made, places))
    return best, build.cast(net, index, call.results[1][1])


@primitive("argmax")
def argmax(call: PrimitiveCall, value: Value, *, axes: Sequence[int], index_dtype: Any) -> Value:
    """The first index of the largest element along a dimension; of NaN, if there is one."""
    return _index_of(call, value, axes[0], "max", index_dtype)


@primitive("argmin")
def argmin(call: PrimitiveCall, value: Value, *, axes: Sequence[int], index_dtype: Any) -> Value:
    """The first index of the smallest element along a dimension; of NaN, if there is one."""
    return _index_of(call, value, axes[0], "min", index_dtype)


def _index_of(call: PrimitiveCall, value: Value, dim: int, operation: str, dtype: Any) -> Value:
    net = call.net
    numbers = build.cast(net, value, i32) if value.dtype == bool_ else value
    best = build.reduce(net, numbers, [dim], operation, keep=True)
    never = Const(value.shape[dim], i32)
    # NaN is the extremum, and equals nothing.
    missed = select(x.ne(x), z, never) if numbers.dtype.is_float else never
    hits = build.map_(net, select(x.eq(y), z, missed), [numbers, best, build.positions(net, value.shape, dim)], i32)
    return build.cast(net, build.reduce(net, hits, [dim], "min"), element_type(dtype))


# --- searches ---------------------------------------------------------------------------------------------------------

_METHODS = ("scan", "scan_unrolled", "sort", "compare_all")


def searched(call: PrimitiveCall, jaxpr: Any, operands: Sequence[Value]) -> Value | None:
    """Places of values in an ordered row, if a jaxpr is what ``jnp.searchsorted`` traces to; None for others.

    JAX searches in a loop, of whose steps each looks all values up; the library has a vertex for it.
    """
    if len(operands) != 2 or operands[0].ndim != 1 or any(v.dtype not in (f32, i32) for v in operands):
        return None
    row, values = operands
    side = _side(str(jaxpr), *((v.shape, v.dtype.np) for v in operands))
    if side is None or row.dtype != values.dtype or call.dtype != i32 or not values.size:
        return None
    net = call.net
    rows, wanted = build.reshape(net, row, (1, row.size)), build.reshape(net, values, (1, values.size))
    found = build.reshape(net, build.search(net, rows, wanted, right=side == "right"), values.shape)
    if side == "left" or not row.dtype.is_float:
        return found
    # NaN is the largest of all, and not below infinity.
    numbers = build.reduce(net, build.map_(net, select(x.eq(x), 1, 0), [row], i32), [0])
    return build.map_(net, select(y.ne(y), x, apply("min", x, z)), [found, values, numbers], i32)


@lru_cache
def _side(text: str, *operands: tuple[tuple[int, ...], Any]) -> str | None:
    """The side on which a jaxpr searches."""
    specs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in operands]
    for method in _METHODS:
        for side in ("left", "right"):
            search = partial(jnp.searchsorted, side=side, method=method)
            (eqn,) = jax.make_jaxpr(search)(*specs).eqns[-1:]
            if "jaxpr" in eqn.params and str(eqn.params["jaxpr"]) == text:
                return side
    return None
