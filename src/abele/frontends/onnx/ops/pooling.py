"""Pooling over windows of a field."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from abele.arrays import Array
from abele.expr import Const, Expr, apply
from abele.expr.derivative import arg
from abele.frontends.onnx.ops.convolutions import each, field_padding
from abele.frontends.onnx.registry import NodeCall, op
from abele.network import Value
from abele.network.ops import build
from abele.network.ops.windows import best_of_windows, regular_taps, taken
from abele.numerics import f32, i32
from abele.poplibs.popnn.pool_params import PoolKind, PoolParams

Ints = Sequence[int]
x, y = arg(0), arg(1)


class _Windows:
    """Windows of a pooling over the field of an operand.

    Attributes:
        kernel, strides, dilations: Of each field dimension.
        low, high: Padding before and after each; what rounding up adds is in ``high``.
        inside: Padding after each, without that.
        outputs: Windows along each.
    """

    def __init__(
        self,
        call: NodeCall,
        value: Value,
        kernel: Ints,
        strides: Ints | None,
        pads: Ints | None,
        auto_pad: str,
        *,
        dilations: Ints | None = None,
        ceil_mode: int = 0,
    ) -> None:
        field = value.shape[2:]
        rank = len(field)
        if len(kernel) != rank:
            raise call.wrong(f"has a window of {len(kernel)} dimensions over {rank} field dimensions")
        self.kernel = list(kernel)
        self.strides, self.dilations = each(call, "strides", strides, rank), each(call, "dilations", dilations, rank)
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, self.dilations, strict=True)]
        self.low, self.inside = field_padding(call, auto_pad, pads, spans, self.strides, field)
        self.outputs, self.high = [], []
        for n, span, s, before, after in zip(field, spans, self.strides, self.low, self.inside, strict=True):
            room = n + before + after - span
            if room < 0:
                raise call.wrong(f"has a window of {span} over {n} elements with padding {before} and {after}")
            count = (-(-room // s) if ceil_mode else room // s) + 1
            if ceil_mode and (count - 1) * s >= n + before:
                count -= 1  # A window that would begin in the padding after the field is left out.
            self.outputs.append(count)
            self.high.append(max(after, (count - 1) * s + span - n - before))

    @property
    def plain(self) -> bool:
        """True if windows have no gaps."""
        return all(d == 1 for d in self.dilations)


def _pool(call: NodeCall, value: Value, windows: _Windows, kind: PoolKind) -> Value:
    batch, channels, *field = value.shape
    params = PoolParams(
        kind=kind,
        field=tuple(field),
        kernel=tuple(windows.kernel),
        stride=tuple(windows.strides),
        padding_lower=tuple(windows.low),
        padding_upper=tuple(windows.high),
        channels=channels,
        batch=batch,
        ties="first" if kind == "max" else "all",
    )
    made = build.pool(call.net, value, params)
    for number, count in enumerate(windows.outputs):
        made = build.slice_(call.net, made, number + 2, 0, count)
    return made


@op("MaxPool")
def max_pool(
    call: NodeCall,
    value: Value,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    storage_order: int = 0,
    strides: Ints | None = None,
) -> tuple[Value, ...]:
    """The largest element of each window, and where it is in the whole operand."""
    windows = _Windows(call, value, kernel_shape, strides, pads, auto_pad, dilations=dilations, ceil_mode=ceil_mode)
    given = value if value.dtype.is_float else build.cast(call.net, value, f32)
    if windows.plain and not call.wants(1):
        return (build.cast(call.net, _pool(call, given, windows, "max"), value.dtype),)
    taps = [
        regular_taps(n, k, s, d, low)
        for n, k, s, d, low in zip(
            windows.outputs, windows.kernel, windows.strides, windows.dilations, windows.low, strict=True
        )
    ]
    best, places = best_of_windows(call.net, given, taps)
    return build.cast(call.net, best, value.dtype), _flat_places(call, value, places, storage_order)


def _flat_places(call: NodeCall, value: Value, places: Value, storage_order: int) -> Value:
    """Places in the whole operand of places in a field."""
    field = value.shape[2:]
    if storage_order:
        places = _column_first(call, places, field)
    size = math.prod(field)
    starts = call.net.constant(_starts(value.shape, size), i32)
    return build.map_(call.net, x + y, [places, starts], i32)


def _column_first(call: NodeCall, places: Value, field: Ints) -> Value:
    """Places in a field counted with the first dimension fastest, of those counted row by row."""
    made: Expr = Const(0, i32)
    rest: Expr = x
    step = math.prod(field)
    for extent in reversed(field):
        step //= extent
        inner = apply("rem", rest, Const(extent, i32))
        made = made + inner * Const(step, i32)
        rest = (rest - inner) / Const(extent, i32)
    return build.map_(call.net, made, [places], i32)


def _starts(shape: tuple[int, ...], size: int) -> Array:
    """Number of the first element of each channel of each sample."""
    numbers = np.arange(shape[0] * shape[1]) * size
    return numbers.reshape(shape[0], shape[1], *(1,) * (len(shape) - 2))


@op("AveragePool")
def average_pool(
    call: NodeCall,
    value: Value,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Value:
    """The mean of each window, of padding too where that is asked for."""
    windows = _Windows(call, value, kernel_shape, strides, pads, auto_pad, dilations=dilations, ceil_mode=ceil_mode)
    return _averaged(call, value, windows, bool(count_include_pad))


def _averaged(call: NodeCall, value: Value, windows: _Windows, padding_counts: bool) -> Value:
    if windows.plain and not padding_counts:
        return _pool(call, value, windows, "avg")
    total = _summed(call, value, windows)
    counts = _counts(value.shape[2:], windows, padding_counts)
    factors = call.net.constant(counts, total.dtype)
    return call.map(x * y, total, factors)


def _summed(call: NodeCall, value: Value, windows: _Windows) -> Value:
    if windows.plain:
        return _pool(call, value, windows, "sum")
    made = value
    for number in range(len(windows.kernel)):
        dim = number + 2
        taps = regular_taps(
            windows.outputs[number],
            windows.kernel[number],
            windows.strides[number],
            windows.dilations[number],
            windows.low[number],
        )
        before = max(0, -min(map(min, taps)))
        after = max(0, max(map(max, taps)) - made.shape[dim] + 1)
        low, high = [0] * made.ndim, [0] * made.ndim
        low[dim], high[dim] = before, after
        wide = build.pad(call.net, made, low, high)
        made = build.total(call.net, [taken(call.net, wide, dim, [n + before for n in tap]) for tap in taps])
    return made


def _counts(field: Ints, windows: _Windows, padding_counts: bool) -> Array:
    """One over the elements of each window: those inside the field, or inside it and its padding."""
    rank = len(field)
    counts = np.ones((1,) * rank)
    for d in range(rank):
        taps = np.array(
            regular_taps(
                windows.outputs[d], windows.kernel[d], windows.strides[d], windows.dilations[d], windows.low[d]
            )
        )
        first, last = (-windows.low[d], field[d] + windows.inside[d]) if padding_counts else (0, field[d])
        there = ((taps >= first) & (taps < last)).sum(axis=0)
        counts = counts * there.reshape([-1 if e == d else 1 for e in range(rank)])
    return 1.0 / np.maximum(counts, 1)


@op("LpPool")
def lp_pool(
    call: NodeCall,
    value: Value,
    *,
    kernel_shape: Ints,
    p: float = 2,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Value:
    """The norm of each window."""
    windows = _Windows(call, value, kernel_shape, strides, pads, auto_pad, dilations=dilations, ceil_mode=ceil_mode)
    return _rooted(call, _summed(call, _powers(call, value, p), windows), p)


def _powers(call: NodeCall, value: Value, p: float) -> Value:
    return call.map(apply("abs", x) if p == 1 else x * x if p == 2 else apply("pow", apply("abs", x), float(p)), value)


def _rooted(call: NodeCall, value: Value, p: float) -> Value:
    return value if p == 1 else call.map(apply("sqrt", x) if p == 2 else apply("pow", x, 1.0 / float(p)), value)


def _fields(value: Value) -> list[int]:
    return list(range(2, value.ndim))


@op("GlobalAveragePool")
def global_average_pool(call: NodeCall, value: Value) -> Value:
    """The mean over the field."""
    return build.mean(call.net, value, _fields(value), keep=True)


@op("GlobalMaxPool")
def global_max_pool(call: NodeCall, value: Value) -> Value:
    """The largest element of the field."""
    return build.reduce(call.net, value, _fields(value), "max", keep=True)


@op("GlobalLpPool")
def global_lp_pool(call: NodeCall, value: Value, *, p: float = 2) -> Value:
    """The norm over the field."""
    return _rooted(call, build.reduce(call.net, _powers(call, value, p), _fields(value), keep=True), p)
