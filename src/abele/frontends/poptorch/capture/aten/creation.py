"""Tensors made of one number."""

from __future__ import annotations

from collections.abc import Sequence

from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.network import Value
from abele.network.ops import build


def _filled(call: OperatorCall, number: float) -> Value:
    return build.full(call.net, number, call.shape, call.dtype)


@aten("aten.zeros_like", "aten.new_zeros")
def zeros(call: OperatorCall, *args: object, **kwargs: object) -> Value:
    """Zeros in the shape of the result."""
    return _filled(call, 0)


@aten("aten.ones_like", "aten.new_ones")
def ones(call: OperatorCall, *args: object, **kwargs: object) -> Value:
    """Ones in the shape of the result."""
    return _filled(call, 1)


@aten("aten.full_like")
def full_like(call: OperatorCall, value: Value, fill: float, **kwargs: object) -> Value:
    """One number in the shape of the result."""
    return _filled(call, fill)


@aten("aten.new_full")
def new_full(call: OperatorCall, value: Value, size: Sequence[int], fill: float, **kwargs: object) -> Value:
    """One number in the shape of the result."""
    return _filled(call, fill)


@aten("aten.fill")
def fill(call: OperatorCall, value: Value, number: float | Value) -> Value:
    """One number in the shape of the result."""
    if isinstance(number, Value):
        return build.expand(call.net, call.operand(number, call.dtype), call.shape)
    return _filled(call, number)
