"""Reductions over windows, and what goes back to the elements that windows chose.

Sums, maxima and minima of floats over undilated windows are the library's pooling, over the dimensions that the windows
extend along; the others are samples and channels. Their gradients in JAX's form are its gradients: a sum of gradients
with gaps between them, and ``select_and_scatter_add``.

Everything else goes *tap by tap*: for each place in a window, the view of the elements that all windows have there.
Reductions are associative, so a window over several dimensions is reduced along one after the other, and a long one in
steps that double: eleven elements are 8 + 2 + 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from abele.expr.derivative import arg
from abele.frontends.jaxpr.registry import PrimitiveCall, primitive
from abele.kernels.nest.ir import Const, Expr, apply, select
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import ElementType, bool_, f16, f32, i32
from abele.poplibs.popnn.pool_params import PoolKind, PoolParams

_Dims = Sequence[int]
_Padding = Sequence[tuple[int, int]]
_Fold = Callable[[Sequence[Value], Sequence[Value]], Sequence[Value]]
x, y = arg(0), arg(1)

FEW_TAPS = 8
"""Taps along a dimension up to which each is a view; more are reduced in steps that double."""
MOST_TAPS = 1024
"""Taps of a window that chooses an element. Each is an op."""


@dataclass(frozen=True)
class PaddedWindows:
    """Windows over an array, each number for every dimension.

    Attributes:
        shape: Extents of the array.
        size: Elements of a window.
        strides: Steps of the windows.
        padding: Elements before and after, negative to leave some out.
        base: Distance of neighbouring elements of the array: there is padding between them.
        dilation: Distance of neighbouring elements of a window.
    """

    shape: tuple[int, ...]
    size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    base: tuple[int, ...]
    dilation: tuple[int, ...]

    @classmethod
    def of(
        cls,
        value: Value,
        window_dimensions: _Dims,
        window_strides: _Dims,
        padding: _Padding,
        base_dilation: _Dims = (),
        window_dilation: _Dims = (),
    ) -> PaddedWindows:
        """Windows that an equation says."""
        ones = (1,) * value.ndim
        around = tuple((int(low), int(high)) for low, high in padding)
        lists = (window_dimensions, window_strides)
        size, strides = (tuple(map(int, n)) for n in lists)
        base, dilation = (tuple(map(int, n)) or ones for n in (base_dilation or (), window_dilation or ()))
        return cls(value.shape, size, strides, around, base, dilation)

    @property
    def padded(self) -> tuple[int, ...]:
        """Extents of the array with gaps and padding."""
        along = zip(self.shape, self.base, self.padding, strict=True)
        return tuple((max(0, (n - 1) * by + 1) if n else 0) + low + high for n, by, (low, high) in along)

    @property
    def outputs(self) -> tuple[int, ...]:
        """Number of windows along each dimension."""
        along = zip(self.padded, self.size, self.dilation, self.strides, strict=True)
        return tuple(max(0, (n - ((k - 1) * by + 1)) // s + 1) for n, k, by, s in along)

    def alone(self, dim: int) -> PaddedWindows:
        """These along one dimension, and single elements along the others, without padding."""

        def only(numbers: _Dims) -> tuple[int, ...]:
            return tuple(n if d == dim else 1 for d, n in enumerate(numbers))

        around = tuple(p if d == dim else (0, 0) for d, p in enumerate(self.padding))
        return PaddedWindows(
            self.shape, only(self.size), only(self.strides), around, only(self.base), only(self.dilation)
        )

    def tap(self, net: BlockBuilder, padded: Value, place: _Dims) -> Value:
        """The element at a place of each window, of the padded array."""
        for dim, number in enumerate(place):
            begin = number * self.dilation[dim]
            end = begin + (self.outputs[dim] - 1) * self.strides[dim] + 1
            padded = build.slice_(net, padded, dim, begin, end, self.strides[dim])
        return padded

    def places(self) -> list[tuple[int, ...]]:
        """Places in a window, in row-major order."""
        return list(itertools.product(*map(range, self.size)))


def padded(net: BlockBuilder, value: Value, windows: PaddedWindows, fill: Value | float) -> Value:
    """An array with ``fill`` between its elements and around them."""
    for dim, (by, (low, high)) in enumerate(zip(windows.base, windows.padding, strict=True)):
        before, extent, after = value.shape[:dim], value.shape[dim], value.shape[dim + 1 :]
        if by > 1 and extent > 1:
            single = build.reshape(net, value, (*before, extent, 1, *after))
            gap = _filled(net, fill, (*before, extent, by - 1, *after), value.dtype)
            apart = build.concat(net, [single, gap], dim + 1)
            value = build.reshape(net, apart, (*before, extent * by, *after))
            value = build.slice_(net, value, dim, 0, (extent - 1) * by + 1)
        ends = [_filled(net, fill, (*before, n, *after), value.dtype) if n > 0 else None for n in (low, high)]
        parts = [ends[0], value, ends[1]]
        value = build.concat(net, [p for p in parts if p is not None], dim)
        value = build.slice_(net, value, dim, max(0, -low), value.shape[dim] - max(0, -high))
    return value


def _filled(net: BlockBuilder, fill: Value | float, shape: _Dims, dtype: ElementType) -> Value:
    if isinstance(fill, Value):
        return build.expand(net, fill, shape)
    return build.full(net, fill, tuple(shape), dtype)


# --- reductions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Monoid:
    """A reduction by name.

    Attributes:
        pooled: Its name in pooling, if there is one.
        expression: Of two elements.
    """

    pooled: PoolKind | None
    expression: Expr

    def neutral(self, name: str, dtype: ElementType) -> float:
        """The element that changes nothing."""
        if name in ("add", "or"):
            return 0
        if name in ("mul", "and"):
            return 1
        return _extreme(dtype, largest=name == "min")


def _extreme(dtype: ElementType, *, largest: bool) -> float:
    if dtype.is_float:
        return math.inf if largest else -math.inf
    if dtype == bool_:
        return largest
    limits = np.iinfo(dtype.np)
    return int(limits.max if largest else limits.min)


_MONOIDS = {
    "add": _Monoid("sum", x + y),
    "mul": _Monoid(None, x * y),
    "max": _Monoid("max", apply("max", x, y)),
    "min": _Monoid("max", apply("min", x, y)),
    "and": _Monoid(None, apply("and", x, y)),
    "or": _Monoid(None, apply("or", x, y)),
}
_OF_BOOLS = {"add": "or", "max": "or", "mul": "and", "min": "and"}


def _register(name: str, operation: str) -> None:
    @primitive(name)
    def reduced(
        call: PrimitiveCall,
        value: Value,
        *,
        window_dimensions: _Dims,
        window_strides: _Dims,
        padding: _Padding,
        base_dilation: _Dims,
        window_dilation: _Dims,
    ) -> Value:
        windows = PaddedWindows.of(value, window_dimensions, window_strides, padding, base_dilation, window_dilation)
        if operation == "add":
            spread = _gradient_of_sums(call, windows)
            if spread is not None:
                return spread
        return _reduced(call.net, value, windows, operation)


for _name, _operation in (("reduce_window_sum", "add"), ("reduce_window_max", "max"), ("reduce_window_min", "min")):
    _register(_name, _operation)


def _reduced(net: BlockBuilder, value: Value, windows: PaddedWindows, operation: str) -> Value:
    """The reduction of every window by a known operation."""
    if value.dtype == bool_:
        operation = _OF_BOOLS.get(operation, operation)
    monoid = _MONOIDS[operation]
    pooling = _pooling(value, windows, monoid.pooled)
    if pooling is not None:
        sign = operation == "min"
        return _negated(net, pooling.of(net, _negated(net, value, sign)), sign)

    def fold(first: Sequence[Value], second: Sequence[Value]) -> Sequence[Value]:
        return [build.map_(net, monoid.expression, [*first, *second])]

    fill = monoid.neutral(operation, value.dtype)
    return _folded(net, [value], windows, [fill], fold)[0]


def _negated(net: BlockBuilder, value: Value, do: bool) -> Value:
    return build.map_(net, -x, [value]) if do else value


def _folded(
    net: BlockBuilder, values: Sequence[Value], windows: PaddedWindows, fills: Sequence[Value | float], fold: _Fold
) -> list[Value]:
    """Windows reduced along one dimension after the other."""
    values = [padded(net, v, windows, fill) for v, fill in zip(values, fills, strict=True)]
    for dim, (size, stride, by) in enumerate(zip(windows.size, windows.strides, windows.dilation, strict=True)):
        count = windows.outputs[dim]
        if size == stride == 1:
            continue
        if size <= FEW_TAPS:
            taps = [
                [build.slice_(net, v, dim, t * by, t * by + (count - 1) * stride + 1, stride) for v in values]
                for t in range(size)
            ]
            values = taps[0]
            for tap in taps[1:]:
                values = list(fold(values, tap))
            continue
        values = _doubled(net, values, dim, size, by, fold)
        values = [build.slice_(net, v, dim, 0, (count - 1) * stride + 1, stride) for v in values]
    return list(values)


def _doubled(net: BlockBuilder, values: Sequence[Value], dim: int, size: int, by: int, fold: _Fold) -> list[Value]:
    """Windows of ``size`` elements, ``by`` apart, from every element on that has so many."""
    made: list[Value] | None = None
    power, reach, done = list(values), 1, 0
    outputs = values[0].shape[dim] - (size - 1) * by
    while True:
        if size & reach:
            part = [build.slice_(net, v, dim, done * by, done * by + outputs) for v in power]
            made = part if made is None else list(fold(made, part))
            done += reach
        reach *= 2
        if reach > size:
            break
        rest = power[0].shape[dim] - reach // 2 * by
        halves = [[build.slice_(net, v, dim, at, at + rest) for v in power] for at in (0, reach // 2 * by)]
        power = list(fold(*halves))
    assert made is not None
    return made


@primitive("reduce_window")
def reduce_window(
    call: PrimitiveCall,
    *operands: Value,
    jaxpr: Any,
    consts: Sequence[Any],
    window_dimensions: _Dims,
    window_strides: _Dims,
    padding: _Padding,
    base_dilation: _Dims,
    window_dilation: _Dims,
) -> tuple[Value, ...]:
    """Windows of several arrays, reduced together by a function of the user's from its initial values on."""
    net, count = call.net, len(operands) // 2
    values, starts = operands[:count], operands[count:]
    windows = PaddedWindows.of(values[0], window_dimensions, window_strides, padding, base_dilation, window_dilation)
    name = _single_primitive(jaxpr)
    known = net.scalar(starts[0]) if count == 1 else None
    if name in _MONOIDS and known is not None and known == _MONOIDS[name].neutral(name, values[0].dtype):
        return (_reduced(net, values[0], windows, name),)

    def fold(first: Sequence[Value], second: Sequence[Value]) -> Sequence[Value]:
        return _called(call, jaxpr, consts, [*first, *second])

    if math.prod(windows.size) > FEW_TAPS**2:
        # Padding is the initial value, which changes nothing, as it has to.
        found = _folded(net, values, windows, starts, fold)
        return tuple(fold([build.expand(net, s, v.shape) for s, v in zip(starts, found, strict=True)], found))
    wide = [padded(net, v, windows, s) for v, s in zip(values, starts, strict=True)]
    inside = padded(net, build.full(net, True, values[0].shape, bool_), windows, False)
    made = [build.expand(net, s, windows.outputs) for s in starts]
    for place in windows.places():
        real = windows.tap(net, inside, place)
        joined = fold(made, [windows.tap(net, v, place) for v in wide])
        made = [build.map_(net, select(arg(2), x, y), [j, m, real]) for j, m in zip(joined, made, strict=True)]
    return tuple(made)


def _called(call: PrimitiveCall, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Value]) -> list[Value]:
    """A function of numbers on arrays of one shape: its equations are read as if they were of arrays."""
    shape = arguments[0].shape

    def batched(*numbers: Any) -> Any:
        return jax.core.eval_jaxpr(getattr(jaxpr, "jaxpr", jaxpr), consts, *numbers)

    for _ in shape:
        batched = jax.vmap(batched)
    return list(call.traced(batched, *arguments))


def _single_primitive(jaxpr: Any) -> str:
    """Name of the operation that a function of two numbers is; else nothing."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    if len(inner.eqns) != 1 or inner.eqns[0].outvars != inner.outvars:
        return ""
    eqn = inner.eqns[0]
    if eqn.primitive.name in ("jit", "pjit", "closed_call"):
        return _single_primitive(eqn.params["jaxpr"]) if list(eqn.invars) == list(inner.invars) else ""
    return str(eqn.primitive.name) if set(eqn.invars) == set(inner.invars) else ""


# --- the library's pooling --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _SeenPooling:
    """Pooling of an array whose dimensions are in another order.

    Attributes:
        order: Dimensions that are samples, the one of channels, and the field's.
        taken: Ranges of the field's dimensions that windows reach.
        params: The library's parameters.
        shape: Extents of the result in that order.
    """

    order: tuple[int, ...]
    taken: tuple[tuple[int, int], ...]
    params: PoolParams
    shape: tuple[int, ...]

    def seen(self, net: BlockBuilder, value: Value, shape: _Dims) -> Value:
        """An array as [samples, channels, *field]."""
        return build.reshape(net, build.permute(net, value, self.order), shape)

    def input(self, net: BlockBuilder, value: Value) -> Value:
        """The pooled array, less what no window reaches."""
        for dim, (begin, end) in zip(self.order[-len(self.taken) :], self.taken, strict=True):
            value = build.slice_(net, value, dim, begin, end)
        return self.seen(net, value, self.params.in_shape)

    def of(self, net: BlockBuilder, value: Value) -> Value:
        """Every window pooled."""
        return self.shown(net, build.pool(net, self.input(net, value), self.params), self.shape)

    def shown(self, net: BlockBuilder, made: Value, shape: _Dims) -> Value:
        """[samples, channels, *field] in the array's own order."""
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return build.permute(net, build.reshape(net, made, shape), back)

    def gradient(self, net: BlockBuilder, grad: Value, extents: _Dims, *saved: Value) -> Value:
        """The gradient by what was pooled, in its own order and extents, with zeros where no window reaches."""
        params = self.params
        made = net.emit("pool_grad", [grad, *saved], params.in_shape, grad.dtype, pooling=params)
        inside = [extents[d] for d in self.order]
        rank = len(self.taken)
        for number, (begin, end) in enumerate(self.taken):
            inside[number - rank] = end - begin
        value = self.shown(net, made, inside)
        for dim, (begin, end) in zip(self.order[-rank:], self.taken, strict=True):
            low, high = [0] * value.ndim, [0] * value.ndim
            low[dim], high[dim] = begin, extents[dim] - end
            value = build.pad(net, value, low, high)
        return value


def _pooling(value: Value, windows: PaddedWindows, kind: PoolKind | None) -> _SeenPooling | None:
    """The pooling that windows are; None where the library has none like it."""
    plain = all(n == 1 for n in (*windows.base, *windows.dilation))
    if kind is None or value.dtype not in (f16, f32) or not plain or 0 in windows.outputs:
        return None
    along = zip(windows.size, windows.strides, windows.padding, strict=True)
    field = [d for d, what in enumerate(along) if what != (1, 1, (0, 0))]
    if not field:
        return None
    rest = [d for d in range(value.ndim) if d not in field]
    batch, channels = (rest[:-1], rest[-1:]) if rest != [0] else (rest, [])
    order = (*batch, *channels, *field)
    taken = tuple(_reached(windows, d) for d in field)
    params = PoolParams(
        kind=kind,
        field=tuple(end - begin for begin, end in taken),
        kernel=tuple(windows.size[d] for d in field),
        stride=tuple(windows.strides[d] for d in field),
        padding_lower=tuple(max(0, windows.padding[d][0]) for d in field),
        padding_upper=tuple(max(0, windows.padding[d][1]) for d in field),
        channels=math.prod(value.shape[d] for d in channels),
        batch=math.prod(value.shape[d] for d in batch),
        ties="first" if kind == "max" else "all",
    )
    if min(params.field) < 1 or (kind == "max" and params.has_empty_windows):
        return None
    return _SeenPooling(order, taken, params, tuple(windows.outputs[d] for d in order))


def _reached(windows: PaddedWindows, dim: int) -> tuple[int, int]:
    """The indices of a dimension that negative padding leaves."""
    low, high = windows.padding[dim]
    return max(0, -low), windows.shape[dim] - max(0, -high)


def _gradient_of_sums(call: PrimitiveCall, windows: PaddedWindows) -> Value | None:
    """JAX's gradient of sums over windows: sums over windows of gradients with gaps, as many as the stride leaves."""
    pad = call.maker(0)
    if pad is None or pad.primitive.name != "pad" or any(s != 1 for s in windows.strides):
        return None
    grad, fill = (call.reader.value(v) for v in pad.invars)
    low, high, gaps = zip(*pad.params["padding_config"], strict=True)
    plain = all(n == 1 for n in (*windows.base, *windows.dilation)) and not any(map(any, windows.padding))
    if not plain or call.net.scalar(fill) != 0 or not any(gaps):
        return None
    # Element i of what was summed is in window (i + lower padding − k) / stride for each k of the window.
    lower = [size - 1 - before for size, before in zip(windows.size, low, strict=True)]
    strides = [gap + 1 for gap in gaps]
    extents = windows.outputs
    upper = [
        (count - 1) * stride + size - extent - before
        for count, stride, size, extent, before in zip(grad.shape, strides, windows.size, extents, lower, strict=True)
    ]
    del high
    ones = (1,) * len(extents)
    forward = PaddedWindows(extents, windows.size, tuple(strides), tuple(zip(lower, upper, strict=True)), ones, ones)
    like = Value(extents, grad.dtype)
    pooling = _pooling(like, forward, "sum")
    if pooling is None or forward.outputs != grad.shape:
        return None
    return pooling.gradient(call.net, pooling.seen(call.net, grad, pooling.params.out_shape), extents)


# --- chosen elements --------------------------------------------------------------------------------------------------


@primitive("select_and_scatter_add")
def select_and_scatter_add(
    call: PrimitiveCall,
    source: Value,
    value: Value,
    *,
    select_prim: Any,
    window_dimensions: _Dims,
    window_strides: _Dims,
    padding: _Padding,
) -> Value:
    """Sources of windows, added to the element that each window chose: the gradient of a maximum."""
    net, windows = call.net, PaddedWindows.of(value, window_dimensions, window_strides, padding)
    pooling = _pooling(value, windows, "max")
    if pooling is not None and select_prim.name in ("ge", "le"):
        seen = pooling.input(net, _negated(net, value, select_prim.name == "le"))
        best = build.pool(net, seen, pooling.params)
        grad = build.cast(net, pooling.seen(net, source, pooling.params.out_shape), value.dtype)
        return build.cast(net, pooling.gradient(net, grad, value.shape, seen, best), call.dtype)
    comparison = _COMPARISONS.get(select_prim.name)
    if comparison is None:
        raise call.refuse(f"that chooses by {select_prim.name} has no lowering", "choose by lax.ge or lax.le")
    least = _extreme(value.dtype, largest=select_prim.name in ("le", "lt"))
    places = _chosen(call, value, windows, least, _by(net, comparison))
    return _scattered(net, source, places, windows, call.dtype)


_COMPARISONS = {"ge": x >= y, "gt": x > y, "le": x <= y, "lt": x < y}


def _by(net: BlockBuilder, comparison: Expr) -> Callable[[Value, Value], Value]:
    """A window keeps its element where the comparison of it with the next one holds."""

    def stays(best: Value, tap: Value) -> Value:
        return build.map_(net, comparison, [best, tap], bool_)

    return stays


def _chosen(
    call: PrimitiveCall,
    value: Value,
    windows: PaddedWindows,
    fill: Value | float,
    stays: Callable[[Value, Value], Value],
) -> Value:
    """The number of the place in each window that is chosen, i32; −1 where there is nothing but padding."""
    net, every = call.net, windows.places()
    if len(every) > MOST_TAPS:
        raise call.refuse(
            f"of windows of {len(every)} elements has no lowering", "choose along one dimension at a time"
        )
    wide = padded(net, value, windows, fill)
    inside = padded(net, build.full(net, True, value.shape, bool_), windows, False)
    best: Value | None = None
    where: Value | None = None
    for number, place in enumerate(every):
        tap, real = windows.tap(net, wide, place), windows.tap(net, inside, place)
        if best is None or where is None:
            best = tap
            where = build.map_(net, select(arg(0), Const(0, i32), Const(-1, i32)), [real], i32)
            continue
        keeps = build.map_(
            net,
            select(arg(1), select(arg(2) < 0, False, arg(0)), True),
            [stays(best, tap), real, where],
            bool_,
        )
        where = build.map_(net, select(arg(1), arg(0), Const(number, i32)), [where, keeps], i32)
        best = build.map_(net, select(arg(2), arg(0), arg(1)), [best, tap, keeps])
    assert where is not None
    return where


def _scattered(net: BlockBuilder, source: Value, places: Value, windows: PaddedWindows, dtype: ElementType) -> Value:
    """Sources added at the places of their windows: for each place, those that are there, spread by the strides."""
    total: Value | None = None
    zero = Const(0.0) if dtype.is_float else Const(0, dtype)
    for number, place in enumerate(windows.places()):
        here = build.map_(net, select(arg(1).eq(Const(number, i32)), arg(0), zero), [source, places], dtype)
        here = _placed(net, here, place, windows, 0)
        total = here if total is None else build.map_(net, x + y, [total, here], dtype)
    assert total is not None
    return _unpadded(net, total, windows)


def _placed(net: BlockBuilder, value: Value, place: _Dims, windows: PaddedWindows, fill: float) -> Value:
    """An element of each window where it is in the padded array, with ``fill`` elsewhere."""
    at = [number * by for number, by in zip(place, windows.dilation, strict=True)]
    around = []
    for dim, begin in enumerate(at):
        reach = (windows.outputs[dim] - 1) * windows.strides[dim] + 1
        around.append((begin, windows.padded[dim] - begin - reach))
    ones = (1,) * value.ndim
    spread = PaddedWindows(value.shape, ones, ones, tuple(around), windows.strides, ones)
    return padded(net, value, spread, fill)


def _unpadded(net: BlockBuilder, value: Value, windows: PaddedWindows) -> Value:
    """The array's own elements of a padded one; zeros where padding is negative."""
    back = tuple((-low, -high) for low, high in windows.padding)
    ones = (1,) * value.ndim
    return padded(net, value, PaddedWindows(value.shape, ones, ones, back, ones, ones), 0)


@primitive("select_and_gather_add")
def select_and_gather_add(
    call: PrimitiveCall,
    source: Value,
    value: Value,
    *,
    select_prim: Any,
    window_dimensions: _Dims,
    window_strides: _Dims,
    padding: _Padding,
    base_dilation: _Dims,
    window_dilation: _Dims,
) -> Value:
    """Sources of the elements that windows choose: the derivative of a maximum along a tangent."""
    net = call.net
    windows = PaddedWindows.of(value, window_dimensions, window_strides, padding, base_dilation, window_dilation)
    comparison = _COMPARISONS[select_prim.name]
    least = _extreme(value.dtype, largest=select_prim.name in ("le", "lt"))

    def fold(first: Sequence[Value], second: Sequence[Value]) -> Sequence[Value]:
        stays = build.map_(net, comparison, [first[0], second[0]], bool_)
        return [build.map_(net, select(arg(2), x, y), [a, b, stays]) for a, b in zip(first, second, strict=True)]

    return _folded(net, [value, source], windows, [least, 0], fold)[1]


@primitive("select_and_scatter")
def select_and_scatter(
    call: PrimitiveCall,
    value: Value,
    source: Value,
    start: Value,
    *,
    select_jaxpr: Any,
    select_consts: Sequence[Any],
    scatter_jaxpr: Any,
    scatter_consts: Sequence[Any],
    window_dimensions: _Dims,
    window_strides: _Dims,
    padding: _Padding,
) -> Value:
    """Sources of windows, joined by a function of the user's to the element that another function chose in each."""
    net, windows = call.net, PaddedWindows.of(value, window_dimensions, window_strides, padding)

    def stays(best: Value, tap: Value) -> Value:
        return _called(call, select_jaxpr, select_consts, [best, tap])[0]

    places = _chosen(call, value, windows, 0, stays)
    made = build.expand(net, start, windows.padded)
    for number, place in enumerate(windows.places()):
        here = build.map_(net, arg(0).eq(Const(number, i32)), [places], bool_)
        spread = _placed(net, build.cast(net, source, value.dtype), place, windows, 0)
        hit = _placed(net, here, place, windows, False)
        joined = _called(call, scatter_jaxpr, scatter_consts, [made, spread])[0]
        made = build.map_(net, select(arg(2), x, y), [joined, made, hit])
    return build.cast(net, _unpadded(net, made, windows), call.dtype)
