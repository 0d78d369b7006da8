"""Writer of the functions of the packed routine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from abele.kernels.routines.blocking import Blocking
from abele.llvm import ir as ll
from abele.llvm.emit import F32, I32, I64, POINTER, VOID, constant, counted_loop, declared, suffix
from abele.numerics import as_element_type

Value = Any


class RoutineWriter:
    """A module's functions, one after the other, and their common parts."""

    def __init__(self, module: ll.Module, sizes: Blocking) -> None:
        self.module, self.sizes = module, sizes
        self.wide = ll.VectorType(F32, sizes.lanes)
        self.function: Any = None
        self.builder: Any = None

    def open(self, name: str, types: Sequence[Any], *, internal: bool = True) -> Any:
        """Begin function ``name`` with arguments of ``types``; gives the arguments. Pointers among them never meet."""
        self.function = ll.Function(self.module, ll.FunctionType(VOID, types), name)
        if internal:
            self.function.linkage = "internal"
        for argument in self.function.args:
            if argument.type == POINTER:
                argument.add_attribute("noalias")
        self.builder = ll.IRBuilder(self.function.append_basic_block("entry"))
        return self.function.args

    def at(self, base: Value, index: Value, type_: Any) -> Value:
        """The address of element ``index`` of ``type_`` from ``base`` on."""
        return self.builder.gep(base, [index], source_etype=type_)

    def least(self, first: Value, second: Value) -> Value:
        """The smaller of two integers."""
        return self.builder.select(self.builder.icmp_signed("<", first, second), first, second)

    def most(self, first: Value, second: Value) -> Value:
        """The larger of two integers."""
        return self.builder.select(self.builder.icmp_signed(">", first, second), first, second)

    def parts(self, whole: Value, part: Value | int) -> Value:
        """``whole / part``, rounded up."""
        part = i64(part) if isinstance(part, int) else part
        return self.builder.sdiv(self.builder.add(whole, self.builder.sub(part, i64(1))), part)

    def mask(self, there: Value, vector: int) -> Value:
        """The lanes of the ``vector``-th vector whose number is below ``there``."""
        lanes = self.sizes.lanes
        numbers = ll.Constant(ll.VectorType(I64, lanes), [ll.Constant(I64, vector * lanes + n) for n in range(lanes)])
        return self.builder.icmp_signed("<", numbers, self.splat(there, numbers.type))

    def splat(self, value: Value, type_: Any) -> Value:
        """A vector of ``type_`` with ``value`` in every lane."""
        one = self.builder.insert_element(ll.Constant(type_, ll.Undefined), value, ll.Constant(I32, 0))
        return self.builder.shuffle_vector(one, one, constant(ll.VectorType(I32, type_.count), 0))

    def call(self, name: str, result: Any, *args: Value) -> Value:
        """A call of the intrinsic ``name``, overloaded on the type of its result."""
        full = f"{name}.{suffix(result)}"
        return self.builder.call(declared(self.builder, full, result, [a.type for a in args]), args)

    def masked_load(self, place: Value, mask: Value, type_: Any, align: int = 2) -> Value:
        """The lanes of ``mask`` from memory at an address that ``align`` divides, zeros in the others."""
        args = [place, ll.Constant(I32, align), mask, constant(type_, 0)]
        full = f"llvm.masked.load.{suffix(type_)}.p0"
        return self.builder.call(declared(self.builder, full, type_, [a.type for a in args]), args)

    def masked_store(self, value: Value, place: Value, mask: Value) -> None:
        """Store the lanes of ``mask``."""
        args = [value, place, ll.Constant(I32, 4), mask]
        full = f"llvm.masked.store.{suffix(value.type)}.p0"
        self.builder.call(declared(self.builder, full, VOID, [a.type for a in args]), args)

    def loop(self, low: Value, high: Value, step: Value | int) -> AbstractContextManager[Value]:
        """A loop from ``low`` to before ``high``; yields its index."""
        return counted_loop(self.builder, low, high, step)


def i64(value: int) -> Value:
    """A constant of 64 bits."""
    return ll.Constant(I64, value)


def stored_type(type_: str) -> Any:
    """LLVM type of elements in memory."""
    return F32 if type_ == "f32" else ll.IntType(8 * element_bytes(type_))


def element_bytes(type_: str) -> int:
    """Bytes of an element."""
    return as_element_type(type_).bytes
