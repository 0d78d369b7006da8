"""LLVM code of the kernel operations, on scalars and on vectors of lanes alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir as ll

from abele.kernels.nest.ops import OPS
from abele.llvm import math as llvm_math
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


def constant(type_: Any, value: float | int) -> Any:
    """``value`` as a constant of the LLVM type ``type_``, the same in all lanes."""
    if isinstance(type_, ll.VectorType):
        return ll.Constant(type_, [ll.Constant(type_.element, value)] * type_.count)
    return ll.Constant(type_, value)


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


def type_suffix(type_: Any) -> str:
    """How LLVM names ``type_`` inside the name of an overloaded intrinsic."""
    if isinstance(type_, ll.VectorType):
        return f"v{type_.count}{type_suffix(type_.element)}"
    if isinstance(type_, ll.PointerType):
        return "p0"
    return {"float": "f32", "double": "f64", "half": "f16"}.get(str(type_), str(type_))


def intrinsic(builder: ll.IRBuilder, name: str, args: list[Value], result: Any = None, *overloads: Any) -> Value:
    """Call the LLVM intrinsic ``name``, overloaded on the type of the first argument unless ``overloads`` are given."""
    full = ".".join([name, *map(type_suffix, overloads or (args[0].type,))])
    known = builder.module.globals.get(full)
    if known is None:
        kind = ll.FunctionType(result or args[0].type, [a.type for a in args])
        known = ll.Function(builder.module, kind, full)
    return builder.call(known, args)


def fma(builder: ll.IRBuilder, x: Value, y: Value, z: Value) -> Value:
    """x·y + z, rounded once."""
    return intrinsic(builder, "llvm.fma", [x, y, z])


def combine(builder: ll.IRBuilder, name: str, x: Value, y: Value, type_: ElementType) -> Value:
    """``x`` and ``y`` combined: ``add``, ``mul``, ``max`` or ``min``."""
    return apply_op(builder, name, [x, y], type_)


def apply_op(builder: ll.IRBuilder, op: str, args: list[Value], type_: ElementType) -> Value:
    """The operation ``op`` on arguments of compute type ``type_`` (of ``select``: that of its last two)."""
    table = _FLOAT if type_.is_float else _INTEGER
    return table[op](builder, *args) if op in table else _signed(builder, op, args, type_)


def _signed(builder: ll.IRBuilder, op: str, args: list[Value], type_: ElementType) -> Value:
    signed = type_.kind == "int"
    if OPS[op].compares and OPS[op].symbol:
        compare = builder.icmp_signed if signed else builder.icmp_unsigned
        return compare(OPS[op].symbol, *args)
    match op:
        case "max" | "min":
            return intrinsic(builder, f"llvm.{'s' if signed else 'u'}{op}", args)
        case "div":
            return _divide(builder, *args, signed=signed)
        case "shr":
            return (builder.ashr if signed else builder.lshr)(args[0], _shift_count(builder, args[1]))
        case "relu":
            zero = constant(args[0].type, 0)
            return intrinsic(builder, "llvm.smax", [args[0], zero]) if signed else args[0]
        case "abs":
            false = ll.Constant(ll.IntType(1), 0)
            return intrinsic(builder, "llvm.abs", [args[0], false], None, args[0].type) if signed else args[0]
    raise KeyError(op)


def _divide(b: ll.IRBuilder, x: Value, y: Value, *, signed: bool) -> Value:
    """Truncating division; 0 by zero, so that nothing traps, lanes which hold nothing included."""
    zero = constant(y.type, 0)
    by_zero = b.icmp_signed("==", y, zero)
    safe = b.select(by_zero, constant(y.type, 1), y)
    if not signed:
        return b.select(by_zero, zero, b.udiv(x, safe))
    minus = b.icmp_signed("==", y, constant(y.type, -1))
    quotient = b.select(minus, b.neg(x), b.sdiv(x, b.select(minus, constant(y.type, 1), safe)))
    return b.select(by_zero, zero, quotient)


def _shift_count(b: ll.IRBuilder, count: Value) -> Value:
    """A shift's count, modulo the width."""
    scalar = count.type.element if isinstance(count.type, ll.VectorType) else count.type
    return b.and_(count, constant(count.type, scalar.width - 1))


def saturated(b: ll.IRBuilder, x: Value, target: Any, *, signed: bool) -> Value:
    """Floats as integers: towards zero, held at the ends of the range, 0 for NaN."""
    return intrinsic(b, f"llvm.fpto{'s' if signed else 'u'}i.sat", [x], target, target, x.type)


def _compare(sign: str) -> Emit:
    def emit(b: ll.IRBuilder, x: Value, y: Value) -> Value:
        ordered = b.fcmp_unordered if sign == "!=" else b.fcmp_ordered
        return ordered(sign, x, y)

    return emit


def _extreme(sign: str) -> Emit:
    """The larger or smaller; NaN if either is NaN."""

    def emit(b: ll.IRBuilder, x: Value, y: Value) -> Value:
        best = b.select(b.fcmp_ordered(sign, x, y), x, y)
        return b.select(b.fcmp_unordered("uno", x, x), x, best)

    return emit


def _relu(b: ll.IRBuilder, x: Value) -> Value:
    zero = constant(x.type, 0.0)
    return b.select(b.fcmp_ordered("<=", x, zero), zero, x)


def _unary(name: str) -> Emit:
    return lambda b, x: intrinsic(b, f"llvm.{name}", [x])


def _math(name: str) -> Emit:
    return lambda b, *args: llvm_math.FUNCTIONS[name](b, *args)


def _not(b: ll.IRBuilder, x: Value) -> Value:
    return b.xor(x, constant(x.type, 1 if str(x.type).endswith("i1") or "i1>" in str(x.type) else -1))


_FAST = ("contract",)

_FLOAT: dict[str, Emit] = {
    "add": lambda b, x, y: b.fadd(x, y, _FAST),
    "sub": lambda b, x, y: b.fsub(x, y, _FAST),
    "mul": lambda b, x, y: b.fmul(x, y, _FAST),
    "div": lambda b, x, y: b.fdiv(x, y),
    "neg": lambda b, x: b.fneg(x),
    "max": _extreme(">"),
    "min": _extreme("<"),
    "abs": _unary("fabs"),
    "sqrt": _unary("sqrt"),
    "floor": _unary("floor"),
    "ceil": _unary("ceil"),
    "round": _unary("rint"),
    "rsqrt": lambda b, x: b.fdiv(constant(x.type, 1.0), intrinsic(b, "llvm.sqrt", [x])),
    "inv": lambda b, x: b.fdiv(constant(x.type, 1.0), x),
    "square": lambda b, x: b.fmul(x, x, _FAST),
    "relu": _relu,
    "select": lambda b, c, x, y: b.select(c, x, y),
}
_FLOAT |= {name: _math(name) for name in ("exp", "log", "tanh", "sigmoid", "erf", "sin", "cos", "pow")}
_FLOAT |= {name: _compare(str(OPS[name].symbol)) for name in ("eq", "ne", "lt", "le", "gt", "ge")}

_INTEGER: dict[str, Emit] = {
    "add": lambda b, x, y: b.add(x, y),
    "sub": lambda b, x, y: b.sub(x, y),
    "mul": lambda b, x, y: b.mul(x, y),
    "neg": lambda b, x: b.neg(x),
    "square": lambda b, x: b.mul(x, x),
    "and": lambda b, x, y: b.and_(x, y),
    "or": lambda b, x, y: b.or_(x, y),
    "xor": lambda b, x, y: b.xor(x, y),
    "not": _not,
    "shl": lambda b, x, y: b.shl(x, _shift_count(b, y)),
    "select": lambda b, c, x, y: b.select(c, x, y),
}
