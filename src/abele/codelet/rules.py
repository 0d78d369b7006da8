"""Types of operations: the common type of mixed operands, and the implicit conversions."""

from __future__ import annotations

import numpy as np

from abele.codelet.tree import CastExpr, ConstExpr, VertexExpr
from abele.numerics import ElementType, bool_, f16, f32, i64, to_device, to_host


def common_type(left: VertexExpr, right: VertexExpr) -> ElementType:
    """The type in which an operation on both is computed.

    A literal takes the type of what it meets. Otherwise floats win over integers, wide over narrow, and of one width
    unsigned over signed, f32 over the two 16-bit floats, bf16 and f16 together included; bools count as numbers.
    """
    if is_weak(left) != is_weak(right):
        weak, other = (left, right) if is_weak(left) else (right, left)
        return _adapted(weak, other.type)
    return _wider(_number(left.type), _number(right.type))


def _adapted(weak: VertexExpr, wanted: ElementType) -> ElementType:
    wanted = _number(wanted)
    return f32 if weak.type.is_float and not wanted.is_float else wanted


def _number(type_: ElementType) -> ElementType:
    return i64 if type_ == bool_ else type_


def _wider(one: ElementType, two: ElementType) -> ElementType:
    if one == two:
        return one
    if one.is_float != two.is_float:
        return one if one.is_float else two
    if one.is_float:
        return f32
    if one.bits != two.bits:
        return one if one.bits > two.bits else two
    return one if one.kind == "uint" else two


def is_weak(value: VertexExpr) -> bool:
    """True if ``value`` is a number without a type of its own."""
    return isinstance(value, ConstExpr) and value.weak


def converts(value: VertexExpr, wanted: ElementType, *, narrowing: bool) -> bool:
    """True if ``value`` becomes a ``wanted`` without being asked: integers and bools to any integer (modulo) and to
    floats, floats to floats; to a narrower float only where ``narrowing`` (when stored to a field)."""
    have = value.type
    if have == wanted:
        return True
    if wanted == bool_:
        return False
    if not have.is_float:
        return True
    if not wanted.is_float:
        return False
    return narrowing or is_weak(value) or wanted == f32


def cast(value: VertexExpr, wanted: ElementType) -> VertexExpr:
    """``value`` converted; numbers are converted right here."""
    if isinstance(value, ConstExpr):
        return ConstExpr(type=wanted, value=fold(value.value, wanted), line=value.line)
    if isinstance(value, CastExpr) and value.arg.type == wanted and wanted.is_quarter:
        return value.arg  # a copy
    return value if value.type == wanted else CastExpr(type=wanted, arg=value, line=value.line)


def computed(value: VertexExpr) -> VertexExpr:
    """``value`` as something to compute with: 8-bit floats become f16, which holds them all, scaled ones f32."""
    if not value.type.is_quarter:
        return value
    return cast(value, f32 if value.type.scale else f16)


def fold(value: float | int | bool, wanted: ElementType) -> float | int | bool:
    """A number as an element of ``wanted``: rounded once, or modulo 2^bits."""
    if wanted == bool_:
        return bool(value)
    if wanted.is_quarter:
        return float(to_host(to_device(value, wanted), wanted))
    if wanted.is_float:
        with np.errstate(over="ignore"):  # what is too large is infinite, as where it is computed
            return float(wanted.np.type(value))
    low = -(1 << (wanted.bits - 1)) if wanted.kind == "int" else 0
    high = low + (1 << wanted.bits) - 1
    if isinstance(value, float):
        return 0 if value != value else int(min(max(value, low), high))
    return (int(value) - low) % (1 << wanted.bits) + low
