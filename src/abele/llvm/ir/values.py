"""Values of LLVM code: constants, arguments and instructions, each with the text by which others refer to it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from abele.llvm.ir.types import (
    ArrayType,
    DoubleType,
    FloatType,
    HalfType,
    IntType,
    PointerType,
    Type,
    VectorType,
)

if TYPE_CHECKING:
    from abele.llvm.ir.module import CodeBlock, NodeReference


class CodeValue:
    """Operand that an instruction can take.

    Attributes:
        type: Its type.
        ref: Text by which others refer to it.
        typed: The same with its type before it.
    """

    __slots__ = ("ref", "type", "typed")

    def __init__(self, type_: Type, ref: str) -> None:
        self.type = type_
        self.ref = ref
        self.typed = f"{type_.text} {ref}"


class _Undefined:
    """Value that may be anything."""


Undefined = _Undefined()


class Constant(CodeValue):
    """A constant: a number, :data:`Undefined`, None (null, all zeros), or the elements of a vector or array.

    A number for a vector is the same in all its lanes.

    Attributes:
        constant: Value that it was made of.
    """

    __slots__ = ("constant",)

    def __init__(self, type_: Type, constant: Any) -> None:
        super().__init__(type_, _constant_text(type_, constant))
        self.constant = constant

    def inttoptr(self, type_: Type) -> CodeValue:
        """An integer as an address."""
        return CodeValue(type_, f"inttoptr ({self.typed} to {type_.text})")


class ArgumentValue(CodeValue):
    """An argument of a function."""

    __slots__ = ("attributes",)

    def __init__(self, type_: Type, ref: str) -> None:
        super().__init__(type_, ref)
        self.attributes: list[str] = []

    def add_attribute(self, name: str) -> None:
        """Say more of it, such as ``noalias``."""
        self.attributes.append(name)

    def __str__(self) -> str:
        return " ".join((self.type.text, *self.attributes, self.ref))


class InstructionValue(CodeValue):
    """A line of a block, and the value that it gives."""

    __slots__ = ("text",)

    def __init__(self, type_: Type, ref: str, text: str) -> None:
        super().__init__(type_, ref)
        self.text = text

    def __str__(self) -> str:
        return self.text

    def set_metadata(self, name: str, node: NodeReference) -> None:
        """Attach ``node`` under ``name``."""
        self.text += f", !{name} {node.ref}"


class Slot(InstructionValue):
    """Memory of a function's own.

    Attributes:
        allocated_type: Type of its content.
    """

    __slots__ = ("allocated_type",)

    def __init__(self, type_: Type, ref: str, text: str, allocated: Type) -> None:
        super().__init__(type_, ref, text)
        self.allocated_type = allocated


class Phi(InstructionValue):
    """Value that depends on the block of origin."""

    __slots__ = ("incoming",)

    def __init__(self, type_: Type, ref: str) -> None:
        super().__init__(type_, ref, "")
        self.incoming: list[tuple[CodeValue, CodeBlock]] = []

    def add_incoming(self, value: CodeValue, block: CodeBlock) -> None:
        """It is ``value`` where control comes from ``block``."""
        self.incoming.append((value, block))

    def __str__(self) -> str:
        ways = ", ".join(f"[{value.ref}, {block.ref}]" for value, block in self.incoming)
        return f"{self.ref} = phi {self.type.text} {ways}{self.text}"


def _constant_text(type_: Type, value: Any) -> str:
    if value is Undefined:
        return "undef"
    if value is None:
        return "null" if isinstance(type_, PointerType) else "zeroinitializer"
    if isinstance(type_, VectorType | ArrayType):
        return _elements_text(type_, value)
    return _number_text(type_, value)


def _elements_text(type_: VectorType | ArrayType, value: Any) -> str:
    element = type_.element
    if not isinstance(value, Sequence):
        value = [value] * type_.count
    assert len(value) == type_.count, f"{len(value)} elements for {type_}"
    first = value[0]
    if isinstance(type_, VectorType) and all(v is first for v in value):
        return f"splat ({_element_text(element, first)})"
    text = ", ".join(_element_text(element, v) for v in value)
    return f"<{text}>" if isinstance(type_, VectorType) else f"[{text}]"


def _element_text(type_: Type, value: Any) -> str:
    return value.typed if isinstance(value, CodeValue) else f"{type_.text} {_constant_text(type_, value)}"


def _number_text(type_: Type, value: Any) -> str:
    if isinstance(type_, IntType):
        return ("true" if value else "false") if type_.width == 1 else str(int(value))
    # By its sign too: 0.0 and -0.0 are equal as keys.
    return _float_text(type_.text, struct.pack("d", value))


_FORMATS = {FloatType().text: "f", HalfType().text: "e", DoubleType().text: "d"}


@lru_cache(maxsize=4096)
def _float_text(name: str, packed: bytes) -> str:
    """A float as LLVM reads it: the bits of the double that is equal to it, rounded to its type."""
    form = _FORMATS[name]
    (value,) = struct.unpack("d", packed)
    (rounded,) = struct.unpack(form, struct.pack(form, value))
    return f"0x{struct.unpack('Q', struct.pack('d', rounded))[0]:016x}"
