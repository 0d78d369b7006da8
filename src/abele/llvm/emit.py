"""Short names for parts of generated code; every helper takes scalars and vectors of lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from abele.llvm import ir as ll

Value = Any
Type = Any

I1, I8, I16, I32, I64 = (ll.IntType(bits) for bits in (1, 8, 16, 32, 64))
F32 = ll.FloatType()
F64 = ll.DoubleType()
HALF = ll.HalfType()
POINTER = ll.PointerType()
VOID = ll.VoidType()
BF16 = ll.Type("bfloat")
"""LLVM's ``bfloat``; values of it are only ever made by bitcasts."""


def like(value: Value, scalar: Type) -> Type:
    """The type with ``scalar`` in every lane of ``value``."""
    return ll.VectorType(scalar, value.type.count) if isinstance(value.type, ll.VectorType) else scalar


def constant(type_: Type, value: float | int) -> Value:
    """``value`` as a constant of ``type_``, the same in all lanes."""
    if isinstance(type_, ll.VectorType):
        return ll.Constant(type_, [ll.Constant(type_.element, value)] * type_.count)
    return ll.Constant(type_, value)


def suffix(type_: Type) -> str:
    """Name of ``type_`` in the name of an overloaded intrinsic of LLVM."""
    if isinstance(type_, ll.VectorType):
        return f"v{type_.count}{suffix(type_.element)}"
    if isinstance(type_, ll.PointerType):
        return "p0"
    return {"float": "f32", "double": "f64", "half": "f16"}.get(str(type_), str(type_))


def declared(builder: ll.IRBuilder, name: str, result: Type, args: list[Type]) -> Value:
    """The external function or intrinsic ``name``, declared once a module."""
    known = builder.module.globals.get(name)
    return ll.Function(builder.module, ll.FunctionType(result, args), name) if known is None else known


def intrinsic(builder: ll.IRBuilder, name: str, *args: Value) -> Value:
    """A call of the LLVM intrinsic ``name``, overloaded on the type of its first argument, which it returns."""
    type_ = args[0].type
    return builder.call(declared(builder, f"{name}.{suffix(type_)}", type_, [a.type for a in args]), args)


OPAQUE_LANES = 4
"""Lanes that belong together half-way through a transposition of 16, where rows are made :func:`opaque`."""


def opaque(builder: ll.IRBuilder, value: Value) -> Value:
    """``value`` as if it came from nowhere, if it is of f32; that takes no instruction.

    Before it emits a shuffle, LLVM looks for a shorter way through all shuffles that it comes from. In a square of 16
    lanes that search takes longer than everything else, and ends with the shuffles as they are.
    """
    kind = value.type.element if isinstance(value.type, ll.VectorType) else value.type
    return intrinsic(builder, "llvm.arithmetic.fence", value) if kind == F32 else value


def prefetch(builder: ll.IRBuilder, address: Value, *, write: bool = False) -> None:
    """Ask for the cache line at ``address``, into all caches; an address without memory does no harm."""
    args = [address, constant(I32, int(write)), constant(I32, 3), constant(I32, 1)]
    builder.call(declared(builder, "llvm.prefetch.p0", VOID, [a.type for a in args]), args)


@contextmanager
def counted_loop(
    builder: ll.IRBuilder, low: Value, high: Value, step: Value | int = 1, flags: tuple[str, ...] = ()
) -> Iterator[Value]:
    """A loop from ``low`` to before ``high``, of i64; yields its index. ``flags`` are those of the step."""
    head, body, done = (builder.function.append_basic_block(part) for part in ("head", "loop", "done"))
    before = builder.block
    builder.branch(head)
    builder.position_at_end(head)
    index = builder.phi(I64)
    index.add_incoming(low, before)
    builder.cbranch(builder.icmp_signed("<", index, high), body, done)
    builder.position_at_end(body)
    # Blocks that the body appends come between, so the back edge starts from wherever the builder is then.
    yield index
    further = builder.add(index, constant(I64, step) if isinstance(step, int) else step, flags=flags)
    index.add_incoming(further, builder.block)
    builder.branch(head)
    builder.position_at_end(done)


def corrected(
    builder: ll.IRBuilder, wrong: Value, usual: Sequence[Value], correct: Callable[[], Sequence[Value]]
) -> list[Value]:
    """Values, those of ``correct`` in the lanes that are wrong; its code is passed by where none is.

    Args:
        builder: Builder that code is added to.
        wrong: True where a value must be corrected; per lane, or one.
        usual: The values before.
        correct: Emits the values after, in the same order.
    """
    some = wrong
    if isinstance(wrong.type, ll.VectorType):
        some = builder.call(declared(builder, f"llvm.vector.reduce.or.{suffix(wrong.type)}", I1, [wrong.type]), [wrong])
    before = builder.block
    rare, done = builder.append_basic_block("rare"), builder.append_basic_block("done")
    builder.cbranch(some, rare, done)
    builder.position_at_end(rare)
    chosen = [builder.select(wrong, new, old) for new, old in zip(correct(), usual, strict=True)]
    after = builder.block
    builder.branch(done)
    builder.position_at_end(done)
    results = []
    for old, new in zip(usual, chosen, strict=True):
        result = builder.phi(old.type)
        result.add_incoming(old, before)
        result.add_incoming(new, after)
        results.append(result)
    return results


def multiply_add(builder: ll.IRBuilder, x: Value, y: Value, z: Value) -> Value:
    """x·y + z, rounded once where the CPU can do that as fast."""
    return intrinsic(builder, "llvm.fmuladd", x, y, z)


def polynomial(builder: ll.IRBuilder, x: Value, coefficients: tuple[float, ...]) -> Value:
    """Horner's rule; coefficients from the constant term up."""
    *rest, result = (constant(x.type, c) for c in coefficients)
    for coefficient in reversed(rest):
        result = multiply_add(builder, result, x, coefficient)
    return result
