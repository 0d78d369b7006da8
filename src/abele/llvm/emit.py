"""Short names for what generated code is made of; every helper takes scalars and vectors of lanes alike."""

from __future__ import annotations

from typing import Any

from llvmlite import ir as ll

Value = Any
Type = Any

I1, I8, I16, I32, I64 = (ll.IntType(bits) for bits in (1, 8, 16, 32, 64))
F32 = ll.FloatType()
F64 = ll.DoubleType()
HALF = ll.HalfType()
POINTER = ll.PointerType()
VOID = ll.VoidType()


def like(value: Value, scalar: Type) -> Type:
    """The type with ``scalar`` in every lane of ``value``."""
    return ll.VectorType(scalar, value.type.count) if isinstance(value.type, ll.VectorType) else scalar


def constant(type_: Type, value: float | int) -> Value:
    """``value`` as a constant of ``type_``, the same in all lanes."""
    if isinstance(type_, ll.VectorType):
        return ll.Constant(type_, [ll.Constant(type_.element, value)] * type_.count)
    return ll.Constant(type_, value)


def suffix(type_: Type) -> str:
    """How LLVM names ``type_`` in the name of an overloaded intrinsic."""
    if isinstance(type_, ll.VectorType):
        return f"v{type_.count}{suffix(type_.element)}"
    return {"float": "f32", "double": "f64", "half": "f16"}.get(str(type_), str(type_))


def declared(builder: ll.IRBuilder, name: str, result: Type, args: list[Type]) -> Value:
    """The external function or intrinsic ``name``, declared once a module."""
    known = builder.module.globals.get(name)
    return ll.Function(builder.module, ll.FunctionType(result, args), name) if known is None else known


def intrinsic(builder: ll.IRBuilder, name: str, *args: Value) -> Value:
    """A call of the LLVM intrinsic ``name``, overloaded on the type of its first argument, which it returns."""
    type_ = args[0].type
    return builder.call(declared(builder, f"{name}.{suffix(type_)}", type_, [a.type for a in args]), args)


def multiply_add(builder: ll.IRBuilder, x: Value, y: Value, z: Value) -> Value:
    """x·y + z, rounded once where the CPU can do that as fast."""
    return intrinsic(builder, "llvm.fmuladd", x, y, z)


def polynomial(builder: ll.IRBuilder, x: Value, coefficients: tuple[float, ...]) -> Value:
    """Horner's rule; coefficients from the constant term up."""
    *rest, result = (constant(x.type, c) for c in coefficients)
    for coefficient in reversed(rest):
        result = multiply_add(builder, result, x, coefficient)
    return result
