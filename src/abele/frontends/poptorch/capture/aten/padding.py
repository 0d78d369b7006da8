"""Padding: constants, or the value itself repeated, mirrored or wrapped round. All of it is views."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.network import BlockBuilder, Value
from abele.network.ops import build

Ends = Callable[[BlockBuilder, Value, int, int, int], tuple[Value | None, Value | None]]
"""Function that gives the values before and after a value along a dimension, by the length of each; None for
nothing.
"""


@aten("aten.constant_pad_nd")
def constant_pad(call: OperatorCall, value: Value, amounts: Sequence[int], fill: float = 0) -> Value:
    """The value with constants around it; negative amounts cut."""
    return _with_constants(call.net, value, amounts, fill)


@aten("aten.pad")
def pad(
    call: OperatorCall, value: Value, amounts: Sequence[int], mode: str = "constant", fill: float | None = None
) -> Value:
    """The value with something around it, as the mode says."""
    if mode == "constant":
        return _with_constants(call.net, value, amounts, fill or 0)
    return _padded(call.net, value, amounts, _MODES[mode])


@aten("aten.reflection_pad1d", "aten.reflection_pad2d", "aten.reflection_pad3d")
def reflection_pad(call: OperatorCall, value: Value, amounts: Sequence[int]) -> Value:
    """The value mirrored at its ends."""
    return _padded(call.net, value, amounts, _mirrored)


@aten("aten.replication_pad1d", "aten.replication_pad2d", "aten.replication_pad3d")
def replication_pad(call: OperatorCall, value: Value, amounts: Sequence[int]) -> Value:
    """The value with its ends repeated."""
    return _padded(call.net, value, amounts, _repeated)


@aten("aten._pad_circular")
def circular_pad(call: OperatorCall, value: Value, amounts: Sequence[int]) -> Value:
    """The value wrapped round."""
    return _padded(call.net, value, amounts, _wrapped)


@aten("aten._pad_enum")
def pad_by_number(
    call: OperatorCall, value: Value, amounts: Sequence[int], mode: int, fill: float | None = None
) -> Value:
    """The value with something around it, as the number of the mode says."""
    if mode == 0:
        return _with_constants(call.net, value, amounts, fill or 0)
    return _padded(call.net, value, amounts, (_mirrored, _repeated, _wrapped)[mode - 1])


def replicated(net: BlockBuilder, value: Value, dim: int, low: int, high: int) -> Value:
    """``value`` with its first and last index along ``dim`` repeated ``low`` and ``high`` times more."""
    return _around(net, value, dim, low, high, _repeated)


def _per_dim(value: Value, amounts: Sequence[int]) -> tuple[list[int], list[int]]:
    """Amounts before and after each dimension; they are given in pairs, that of the last dimension first."""
    low, high = [0] * value.ndim, [0] * value.ndim
    for number, (before, after) in enumerate(zip(amounts[::2], amounts[1::2], strict=True)):
        low[-1 - number], high[-1 - number] = before, after
    return low, high


def _cut(net: BlockBuilder, value: Value, low: Sequence[int], high: Sequence[int]) -> Value:
    """The value without what negative amounts cut."""
    for dim in range(value.ndim):
        begin, end = max(0, -low[dim]), value.shape[dim] - max(0, -high[dim])
        value = build.slice_(net, value, dim, begin, end)
    return value


def _with_constants(net: BlockBuilder, value: Value, amounts: Sequence[int], fill: float) -> Value:
    low, high = _per_dim(value, amounts)
    starts, ends = [max(0, n) for n in low], [max(0, n) for n in high]
    return build.pad(net, _cut(net, value, low, high), starts, ends, fill=float(fill))


def _padded(net: BlockBuilder, value: Value, amounts: Sequence[int], ends: Ends) -> Value:
    low, high = _per_dim(value, amounts)
    if ends is _wrapped:
        # Negative amounts crop before wrapping, while mirroring and repeating read the whole value.
        value = _cut(net, value, low, high)
        low, high = ([max(0, n) for n in sides] for sides in (low, high))
    for dim in range(value.ndim):
        value = _around(net, value, dim, max(0, low[dim]), max(0, high[dim]), ends)
    return _cut(net, value, low, high)


def _around(net: BlockBuilder, value: Value, dim: int, low: int, high: int, ends: Ends) -> Value:
    if not low and not high:
        return value
    before, after = ends(net, value, dim, low, high)
    return build.concat(net, [p for p in (before, value, after) if p is not None], dim)


def _part(net: BlockBuilder, value: Value, dim: int, begin: int, count: int) -> Value | None:
    return build.slice_(net, value, dim, begin, begin + count) if count else None


def _mirrored(net: BlockBuilder, value: Value, dim: int, low: int, high: int) -> tuple[Value | None, Value | None]:
    parts = _part(net, value, dim, 1, low), _part(net, value, dim, value.shape[dim] - 1 - high, high)
    return _turned(net, parts[0], dim), _turned(net, parts[1], dim)


def _turned(net: BlockBuilder, value: Value | None, dim: int) -> Value | None:
    return None if value is None else build.reverse(net, value, [dim])


def _repeated(net: BlockBuilder, value: Value, dim: int, low: int, high: int) -> tuple[Value | None, Value | None]:
    def times(index: int, count: int) -> Value | None:
        one = build.slice_(net, value, dim, index, index + 1)
        return build.expand(net, one, (*value.shape[:dim], count, *value.shape[dim + 1 :])) if count else None

    return times(0, low), times(value.shape[dim] - 1, high)


def _wrapped(net: BlockBuilder, value: Value, dim: int, low: int, high: int) -> tuple[Value | None, Value | None]:
    return _part(net, value, dim, value.shape[dim] - low, low), _part(net, value, dim, 0, high)


_MODES: dict[str, Ends] = {"reflect": _mirrored, "replicate": _repeated, "circular": _wrapped}
