"""Appends instructions to blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from abele.llvm.ir.module import CodeBlock, CodeFunction, CodeModule
from abele.llvm.ir.types import IntType, PointerType, Type, VectorType, VoidType
from abele.llvm.ir.values import CodeValue, Constant, InstructionValue, Phi, Slot

_Place = AbstractContextManager[None]
_I1 = IntType(1)
_VOID = VoidType()
_POINTER = PointerType()
_SIGNED = {"<": "slt", "<=": "sle", ">": "sgt", ">=": "sge", "==": "eq", "!=": "ne"}
_UNSIGNED = {"<": "ult", "<=": "ule", ">": "ugt", ">=": "uge", "==": "eq", "!=": "ne"}
_FLOATS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}


class IRBuilder:
    """Writes instructions at the end of a block.

    Attributes:
        block: The block.
    """

    def __init__(self, block: CodeBlock) -> None:
        self.block = block

    @property
    def function(self) -> CodeFunction:
        """The function of the block."""
        return self.block.function

    @property
    def module(self) -> CodeModule:
        """The module of the function."""
        return self.block.function.module

    def append_basic_block(self, name: str = "") -> CodeBlock:
        """A new block at the end of the function."""
        return self.block.function.append_basic_block(name)

    # Places

    def position_at_end(self, block: CodeBlock) -> None:
        """Go on at the end of ``block``."""
        self.block = block

    @contextmanager
    def goto_entry_block(self) -> Iterator[None]:
        """Write at the end of the function's first block for a while, before its terminator."""
        back, self.block = self.block, self.function.blocks[0]
        yield
        self.block = back

    @contextmanager
    def if_then(self, condition: CodeValue) -> Iterator[None]:
        """Run the instructions written inside where ``condition`` holds."""
        then, done = self.append_basic_block("then"), self.append_basic_block("done")
        self.cbranch(condition, then, done)
        self.position_at_end(then)
        yield
        if not self.block.is_terminated:
            self.branch(done)
        self.position_at_end(done)

    @contextmanager
    def if_else(
        self, condition: CodeValue
    ) -> Iterator[tuple[AbstractContextManager[None], AbstractContextManager[None]]]:
        """Two places to write at: code where ``condition`` holds, and code elsewhere."""
        then, otherwise, done = (self.append_basic_block(name) for name in ("then", "else", "done"))
        self.cbranch(condition, then, otherwise)

        @contextmanager
        def inside(block: CodeBlock) -> Iterator[None]:
            self.position_at_end(block)
            yield
            if not self.block.is_terminated:
                self.branch(done)

        yield inside(then), inside(otherwise)
        self.position_at_end(done)

    # Arithmetic

    def add(self, x: CodeValue, y: CodeValue, flags: Sequence[str] = ()) -> InstructionValue:
        """x + y of integers."""
        return self._two(" ".join(("add", *flags)), x, y)

    def sub(self, x: CodeValue, y: CodeValue, flags: Sequence[str] = ()) -> InstructionValue:
        """x - y of integers."""
        return self._two(" ".join(("sub", *flags)), x, y)

    def mul(self, x: CodeValue, y: CodeValue, flags: Sequence[str] = ()) -> InstructionValue:
        """x · y of integers."""
        return self._two(" ".join(("mul", *flags)), x, y)

    def sdiv(self, x: CodeValue, y: CodeValue) -> InstructionValue:
        """x / y of signed integers, towards zero."""
        return self._two("sdiv", x, y)

    def udiv(self, x: CodeValue, y: CodeValue) -> InstructionValue:
        """x / y of unsigned integers."""
        return self._two("udiv", x, y)

    def srem(self, x: CodeValue, y: CodeValue) -> InstructionValue:
        """Remainder of x / y, signed integers."""
        return self._two("srem", x, y)

    def urem(self, x: CodeValue, y: CodeValue) -> InstructionValue:
        """Remainder of x / y, unsigned integers."""
        return self._two("urem", x, y)

    def and_(self, x: CodeValue, y: CodeValue) -> InstructionValue:
        """Bits of both."""
        return self._two("and", x, y)

    def or_(self, x: CodeValue, y: CodeValue) -> InstructionValue:
        """Bits of either."""
        return self._two("or", x, y)

    def xor(self, x: CodeValue, y: CodeValue) -> InstructionValue:
        """Bits of one alone."""
        return self._two("xor", x, y)

    def shl(self, x: CodeValue, y: CodeValue) -> InstructionValue:
        """x moved up by y bits."""
        return self._two("shl", x, y)

    def lshr(self, x: CodeValue, y: CodeValue) -> InstructionValue:
        """x moved down by y bits, zeros moved in."""
        return self._two("lshr", x, y)

    def ashr(self, x: CodeValue, y: CodeValue) -> InstructionValue:
        """x moved down by y bits, copies of the sign moved in."""
        return self._two("ashr", x, y)

    def neg(self, x: CodeValue) -> InstructionValue:
        """-x of integers."""
        return self._two("sub", Constant(x.type, 0), x)

    def not_(self, x: CodeValue) -> InstructionValue:
        """Every bit turned over."""
        return self._two("xor", x, Constant(x.type, -1))

    def fadd(self, x: CodeValue, y: CodeValue) -> InstructionValue:
        """x + y of floats."""
        return self._two("fadd", x, y)

    def fsub(self, x: CodeValue, y: CodeValue) -> InstructionValue:
        """x - y of floats."""
        return self._two("fsub", x, y)

    def fmul(self, x: CodeValue, y: CodeValue) -> InstructionValue:
        """x · y of floats."""
        return self._two("fmul", x, y)

    def fdiv(self, x: CodeValue, y: CodeValue) -> InstructionValue:
        """x / y of floats."""
        return self._two("fdiv", x, y)

    def frem(self, x: CodeValue, y: CodeValue) -> InstructionValue:
        """Remainder of x / y, floats."""
        return self._two("frem", x, y)

    def fneg(self, x: CodeValue) -> InstructionValue:
        """-x of floats."""
        return self._give(x.type, f"fneg {x.typed}")

    def freeze(self, x: CodeValue) -> InstructionValue:
        """x, or any one value where x is undefined."""
        return self._give(x.type, f"freeze {x.typed}")

    # Comparisons

    def icmp_signed(self, sign: str, x: CodeValue, y: CodeValue) -> InstructionValue:
        """Comparison of signed integers."""
        return self._compare(f"icmp {_SIGNED[sign]}", x, y)

    def icmp_unsigned(self, sign: str, x: CodeValue, y: CodeValue) -> InstructionValue:
        """Comparison of unsigned integers."""
        return self._compare(f"icmp {_UNSIGNED[sign]}", x, y)

    def fcmp_ordered(self, sign: str, x: CodeValue, y: CodeValue) -> InstructionValue:
        """Comparison of floats; false where either is NaN."""
        return self._compare(f"fcmp {sign if sign == 'ord' else 'o' + _FLOATS[sign]}", x, y)

    def fcmp_unordered(self, sign: str, x: CodeValue, y: CodeValue) -> InstructionValue:
        """Comparison of floats; true where either is NaN."""
        return self._compare(f"fcmp {sign if sign == 'uno' else 'u' + _FLOATS[sign]}", x, y)

    def select(self, condition: CodeValue, x: CodeValue, y: CodeValue) -> InstructionValue:
        """x where ``condition`` holds, else y."""
        return self._give(x.type, f"select {condition.typed}, {x.typed}, {y.typed}")

    # Conversions

    def trunc(self, x: CodeValue, type_: Type) -> CodeValue:
        """An integer's lower bits."""
        return self._cast("trunc", x, type_)

    def zext(self, x: CodeValue, type_: Type) -> CodeValue:
        """An integer made wider by zeros."""
        return self._cast("zext", x, type_)

    def sext(self, x: CodeValue, type_: Type) -> CodeValue:
        """An integer made wider by its sign."""
        return self._cast("sext", x, type_)

    def fptrunc(self, x: CodeValue, type_: Type) -> CodeValue:
        """A float rounded to a narrower type."""
        return self._cast("fptrunc", x, type_)

    def fpext(self, x: CodeValue, type_: Type) -> CodeValue:
        """A float in a wider type."""
        return self._cast("fpext", x, type_)

    def sitofp(self, x: CodeValue, type_: Type) -> CodeValue:
        """A signed integer as a float."""
        return self._cast("sitofp", x, type_)

    def uitofp(self, x: CodeValue, type_: Type) -> CodeValue:
        """An unsigned integer as a float."""
        return self._cast("uitofp", x, type_)

    def fptosi(self, x: CodeValue, type_: Type) -> CodeValue:
        """A float as a signed integer."""
        return self._cast("fptosi", x, type_)

    def fptoui(self, x: CodeValue, type_: Type) -> CodeValue:
        """A float as an unsigned integer."""
        return self._cast("fptoui", x, type_)

    def ptrtoint(self, x: CodeValue, type_: Type) -> CodeValue:
        """An address as an integer."""
        return self._cast("ptrtoint", x, type_)

    def inttoptr(self, x: CodeValue, type_: Type) -> CodeValue:
        """An integer as an address."""
        return self._cast("inttoptr", x, type_)

    def bitcast(self, x: CodeValue, type_: Type) -> CodeValue:
        """The same bits as another type."""
        return self._cast("bitcast", x, type_)

    # Vectors

    def extract_element(self, vector: CodeValue, index: CodeValue) -> InstructionValue:
        """One lane."""
        assert isinstance(vector.type, VectorType)
        return self._give(vector.type.element, f"extractelement {vector.typed}, {index.typed}")

    def insert_element(self, vector: CodeValue, value: CodeValue, index: CodeValue) -> InstructionValue:
        """The vector with one lane set."""
        return self._give(vector.type, f"insertelement {vector.typed}, {value.typed}, {index.typed}")

    def shuffle_vector(self, x: CodeValue, y: CodeValue, order: CodeValue) -> InstructionValue:
        """Lanes of two vectors, numbered through both."""
        assert isinstance(x.type, VectorType)
        assert isinstance(order.type, VectorType)
        type_ = VectorType(x.type.element, order.type.count)
        return self._give(type_, f"shufflevector {x.typed}, {y.typed}, {order.typed}")

    # Memory

    def alloca(self, type_: Type, size: CodeValue | None = None, *, align: int = 0, name: str = "") -> Slot:
        """Memory for ``size`` values, one by default, as long as the function runs."""
        count = f", {size.typed}" if size is not None else ""
        ref = f"%{self.block.function.label(name)}"
        text = f"{ref} = alloca {type_.text}{count}{f', align {align}' if align else ''}"
        slot = Slot(_POINTER, ref, text, type_)
        self._add(slot)
        return slot

    def load(self, pointer: CodeValue, *, typ: Type, align: int | None = None) -> InstructionValue:
        """The value of type ``typ`` in memory."""
        return self._give(typ, f"load {typ.text}, {pointer.typed}{'' if align is None else f', align {align}'}")

    def store(self, value: CodeValue, pointer: CodeValue, align: int | None = None) -> InstructionValue:
        """Put ``value`` into memory."""
        return self._do(f"store {value.typed}, {pointer.typed}{'' if align is None else f', align {align}'}")

    def load_atomic(self, pointer: CodeValue, ordering: str, align: int, *, typ: Type) -> InstructionValue:
        """The value of type ``typ`` in memory that other threads write to as well."""
        return self._give(typ, f"load atomic {typ.text}, {pointer.typed} {ordering}, align {align}")

    def atomic_rmw(self, op: str, pointer: CodeValue, value: CodeValue, ordering: str) -> InstructionValue:
        """Change memory that other threads change as well; gives the value before."""
        return self._give(value.type, f"atomicrmw {op} {pointer.typed}, {value.typed} {ordering}")

    def fence(self, ordering: str) -> InstructionValue:
        """Fence between memory accesses before and after, of order ``ordering``: ``seq_cst`` …"""
        return self._do(f"fence {ordering}")

    def gep(
        self, pointer: CodeValue, indices: Sequence[CodeValue], *, source_etype: Type, inbounds: bool = False
    ) -> InstructionValue:
        """Address of the element at ``indices``, of type ``source_etype``; many addresses, where there are vectors."""
        wide = next((v.type for v in (pointer, *indices) if isinstance(v.type, VectorType)), None)
        type_ = _POINTER if wide is None else VectorType(_POINTER, wide.count)
        places = ", ".join([pointer.typed, *[i.typed for i in indices]])
        return self._give(type_, f"getelementptr {'inbounds ' * inbounds}{source_etype.text}, {places}")

    # Control

    def call(self, function: CodeValue, args: Sequence[CodeValue]) -> InstructionValue:
        """Call a function, or an address whose type has its signature."""
        assert isinstance(function.type, PointerType)
        assert function.type.pointee is not None, "an address of no known function"
        result = function.type.pointee.result
        text = f"call {result.text} {function.ref}({', '.join([a.typed for a in args])})"
        return self._do(text) if isinstance(result, VoidType) else self._give(result, text)

    def phi(self, type_: Type, name: str = "") -> Phi:
        """A value that depends on where control came from."""
        phi = Phi(type_, f"%{self.block.function.label(name)}")
        self.block.instructions.append(phi)
        return phi

    def branch(self, target: CodeBlock) -> InstructionValue:
        """Go on at ``target``."""
        return self._leave(f"br label {target.ref}")

    def cbranch(self, condition: CodeValue, then: CodeBlock, otherwise: CodeBlock) -> InstructionValue:
        """Go on at ``then`` where ``condition`` holds, else at ``otherwise``."""
        return self._leave(f"br {condition.typed}, label {then.ref}, label {otherwise.ref}")

    def ret(self, value: CodeValue) -> InstructionValue:
        """Return ``value``."""
        return self._leave(f"ret {value.typed}")

    def ret_void(self) -> InstructionValue:
        """Return."""
        return self._leave("ret void")

    def unreachable(self) -> InstructionValue:
        """Control never comes here."""
        return self._leave("unreachable")

    # Lines

    def _two(self, op: str, x: CodeValue, y: CodeValue) -> InstructionValue:
        return self._give(x.type, f"{op} {x.typed}, {y.ref}")

    def _compare(self, op: str, x: CodeValue, y: CodeValue) -> InstructionValue:
        type_ = VectorType(_I1, x.type.count) if isinstance(x.type, VectorType) else _I1
        return self._give(type_, f"{op} {x.typed}, {y.ref}")

    def _cast(self, op: str, x: CodeValue, type_: Type) -> CodeValue:
        if x.type == type_ and not isinstance(type_, PointerType):
            return x
        return self._give(type_, f"{op} {x.typed} to {type_.text}")

    def _give(self, type_: Type, text: str) -> InstructionValue:
        """A line that gives a value."""
        ref = f"%{self.block.function.label()}"
        return self._add(InstructionValue(type_, ref, f"{ref} = {text}"))

    def _do(self, text: str) -> InstructionValue:
        """A line that gives none."""
        return self._add(InstructionValue(_VOID, "", text))

    def _leave(self, text: str) -> InstructionValue:
        """A line that ends the block."""
        line = self._do(text)
        self.block.is_terminated = True
        return line

    def _add(self, line: InstructionValue) -> InstructionValue:
        lines = self.block.instructions
        if self.block.is_terminated:
            lines.insert(len(lines) - 1, line)
        else:
            lines.append(line)
        return line
