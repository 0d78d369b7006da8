"""LLVM code of the kernel operations, on scalars and on vectors of lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from abele.expr.operation import TABLE
from abele.llvm import ir as ll
from abele.llvm.emit import declared, suffix
from abele.numerics import ElementType, bool_, f32, i32, i64, u32, u64

Value = Any
Emit = Callable[..., Value]

_LLVM_TYPES = {
    f32: ll.FloatType(),
    i32: ll.IntType(32),
    u32: ll.IntType(32),
    i64: ll.IntType(64),
    u64: ll.IntType(64),
    bool_: ll.IntType(1),
}


def llvm_type(type_: ElementType, lanes: int = 1) -> Any:
    """The LLVM type of a value of compute type ``type_``: a scalar, or a vector of ``lanes``."""
    scalar = _LLVM_TYPES[type_]
    return ll.VectorType(scalar, lanes) if lanes > 1 else scalar


def splat(builder: ll.IRBuilder, value: Value, lanes: int) -> Value:
    """``value`` in all of ``lanes`` lanes."""
    if lanes == 1 or isinstance(value.type, ll.VectorType):
        return value
    wide = ll.VectorType(value.type, lanes)
    if isinstance(value, ll.Constant):
        return ll.Constant(wide, [value] * lanes)
    one = builder.insert_element(ll.Constant(wide, ll.Undefined), value, ll.Constant(ll.IntType(32), 0))
    order = ll.Constant(ll.VectorType(ll.IntType(32), lanes), [0] * lanes)
    return builder.shuffle_vector(one, one, order)


def overloaded(builder: ll.IRBuilder, name: str, args: list[Value], result: Any, *overloads: Any) -> Value:
    """Call the LLVM intrinsic ``name`` that gives ``result``, overloaded on the types ``overloads``."""
    full = ".".join([name, *map(suffix, overloads)])
    return builder.call(declared(builder, full, result, [a.type for a in args]), args)


def combine(builder: ll.IRBuilder, name: str, x: Value, y: Value, type_: ElementType) -> Value:
    """``x`` and ``y`` combined: ``add``, ``mul``, ``max`` or ``min``."""
    return apply_op(builder, name, [x, y], type_)


def apply_op(builder: ll.IRBuilder, op: str, args: list[Value], type_: ElementType) -> Value:
    """The operation ``op`` on arguments of compute type ``type_`` (of ``select``: that of its last two)."""
    code = TABLE[op].code
    assert code is not None
    if type_.is_float:
        assert code.f32 is not None
        return code.f32(builder, *args)
    assert code.integer is not None
    return code.integer(builder, *args, signed=type_.kind == "int")


def saturated(b: ll.IRBuilder, x: Value, target: Any, *, signed: bool) -> Value:
    """Floats as integers: towards zero, held at the ends of the range, 0 for NaN."""
    return overloaded(b, f"llvm.fpto{'s' if signed else 'u'}i.sat", [x], target, target, x.type)
