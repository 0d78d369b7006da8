"""Arithmetic, comparisons and selection, element by element, with PyTorch's broadcasting and type promotion."""

from __future__ import annotations

from typing import Any

from abele.expr.derivative import arg
from abele.expr.simplify import simplified
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.frontends.poptorch.capture.types import element_type
from abele.kernels.nest.ir import Const, Expr, apply, select
from abele.numerics import bool_
from abele.parallel import Value
from abele.parallel.ops import build

Operand = Value | float

x, y, z = arg(0), arg(1), arg(2)


@aten("aten.add")
def add(call: OperatorCall, a: Operand, b: Operand, alpha: float = 1) -> Value:
    """a + alpha · b; of bools, either."""
    if call.dtype == bool_:
        return call.map(apply("or", x, y), a, b)
    return call.map(x + (y if alpha == 1 else y * alpha), a, b)


@aten("aten.sub")
def sub(call: OperatorCall, a: Operand, b: Operand, alpha: float = 1) -> Value:
    """a − alpha · b."""
    return call.map(x - (y if alpha == 1 else y * alpha), a, b)


@aten("aten.rsub")
def rsub(call: OperatorCall, a: Operand, b: Operand, alpha: float = 1) -> Value:
    """b − alpha · a."""
    return call.map(y - (x if alpha == 1 else x * alpha), a, b)


@aten("aten.mul")
def mul(call: OperatorCall, a: Operand, b: Operand) -> Value:
    """a · b; of bools, both."""
    if call.dtype == bool_:
        return call.map(apply("and", x, y), a, b)
    return call.map(x * y, a, b)


@aten("aten.div")
def div(call: OperatorCall, a: Operand, b: Operand, rounding_mode: str | None = None) -> Value:
    """a / b, rounded if asked."""
    if rounding_mode is not None and not call.dtype.is_float:
        raise call.refuse(f"with rounding_mode {rounding_mode!r} has no lowering on integers")
    quotient: Expr = x / y
    if rounding_mode == "floor":
        quotient = apply("floor", quotient)
    elif rounding_mode == "trunc":
        quotient = select(quotient < 0.0, apply("ceil", quotient), apply("floor", quotient))
    if isinstance(b, (int, float)) and rounding_mode is None:
        return call.map(x * y, a, 1 / b)
    return call.map(quotient, a, b)


@aten("aten.pow")
def power(call: OperatorCall, a: Operand, b: Operand) -> Value:
    """a to the power of b."""
    if isinstance(b, (int, float)) and isinstance(a, Value):
        return call.map(simplified(apply("pow", x, Const(float(b)))), a)
    return call.map(apply("pow", x, y), a, b)


@aten("aten.maximum")
def maximum(call: OperatorCall, a: Value, b: Value) -> Value:
    """The larger of both."""
    return call.map(apply("max", x, y), a, b)


@aten("aten.minimum")
def minimum(call: OperatorCall, a: Value, b: Value) -> Value:
    """The smaller of both."""
    return call.map(apply("min", x, y), a, b)


def _compare(name: str, op: str) -> None:
    @aten(name)
    def compare(call: OperatorCall, a: Operand, b: Operand) -> Value:
        return call.map(apply(op, x, y), a, b, common=call.common_type(), dtype=bool_)


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _compare(f"aten.{_name}", _name)


@aten("aten.logical_and", "aten.bitwise_and", "aten.__and__")
def logical_and(call: OperatorCall, a: Operand, b: Operand) -> Value:
    """Both."""
    return call.map(apply("and", x, y), a, b)


@aten("aten.logical_or", "aten.bitwise_or", "aten.__or__")
def logical_or(call: OperatorCall, a: Operand, b: Operand) -> Value:
    """Either."""
    return call.map(apply("or", x, y), a, b)


@aten("aten.logical_not", "aten.bitwise_not")
def logical_not(call: OperatorCall, a: Value) -> Value:
    """Not."""
    return call.map(apply("not", x), a)


@aten("aten.where")
def where(call: OperatorCall, condition: Value, a: Operand, b: Operand) -> Value:
    """a where the condition holds, else b."""
    return call.map(select(x, y, z), condition, a, b, masks=[0])


@aten("aten.masked_fill")
def masked_fill(call: OperatorCall, value: Value, mask: Value, fill: Operand) -> Value:
    """The value, replaced where the mask holds."""
    return call.map(select(x, y, z), mask, fill, value, masks=[0])


@aten("aten.clamp", "aten.clip")
def clamp(call: OperatorCall, value: Value, low: Operand | None = None, high: Operand | None = None) -> Value:
    """The value limited to [low, high]."""
    return _limited(call, value, low, high)


def _limited(call: OperatorCall, value: Value, low: Operand | None, high: Operand | None) -> Value:
    """The value, at least ``low``, and that at most ``high``: where the bounds cross, ``high``."""
    bounds: list[Operand] = [bound for bound in (low, high) if bound is not None]
    # Comparisons, unlike max and min, pass the whole gradient at a bound, as PyTorch does.
    expression: Expr = x
    if low is not None:
        expression = select(x < y, y, x)
    if high is not None:
        limit = arg(len(bounds))
        inside = expression if low is None else select(limit < y, limit, expression)
        expression = select(x > limit, limit, inside)
    return call.map(expression, value, *bounds)


@aten("aten.clamp_min")
def clamp_min(call: OperatorCall, value: Value, low: Operand) -> Value:
    """The value, at least ``low``."""
    return _limited(call, value, low, None)


@aten("aten.clamp_max")
def clamp_max(call: OperatorCall, value: Value, high: Operand) -> Value:
    """The value, at most ``high``."""
    return _limited(call, value, None, high)


@aten("aten.hardtanh")
def hardtanh(call: OperatorCall, value: Value, low: float = -1.0, high: float = 1.0) -> Value:
    """The value limited to [low, high]."""
    return _limited(call, value, low, high)


@aten("aten._to_copy", "aten.to")
def to_copy(call: OperatorCall, value: Value, *args: Any, **kwargs: Any) -> Value:
    """The value in the type of the result; devices and layouts mean nothing here."""
    return build.cast(call.net, value, element_type(call.result.dtype))
