"""Types of LLVM values; two are equal where their text is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Type:
    """A type.

    Attributes:
        text: As it is written.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Type) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


class VoidType(Type):
    """Result type of a function that gives nothing."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("void")


class IntType(Type):
    """Integer of ``width`` bits."""

    __slots__ = ("width",)

    def __init__(self, width: int) -> None:
        super().__init__(f"i{width}")
        self.width = width


class HalfType(Type):
    """A float of 16 bits."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("half")


class FloatType(Type):
    """A float of 32 bits."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("float")


class DoubleType(Type):
    """A float of 64 bits."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("double")


class PointerType(Type):
    """Address; ``pointee`` has the signature, where it is of a function."""

    __slots__ = ("pointee",)

    def __init__(self, pointee: FunctionType | None = None) -> None:
        super().__init__("ptr")
        self.pointee = pointee


class VectorType(Type):
    """Vector of ``count`` elements of one type, computed with side by side."""

    __slots__ = ("count", "element")

    def __init__(self, element: Type, count: int) -> None:
        super().__init__(f"<{count} x {element.text}>")
        # Who asks for it knows which type it is.
        self.element: Any = element
        self.count = count


class ArrayType(Type):
    """Array of ``count`` elements of one type in memory."""

    __slots__ = ("count", "element")

    def __init__(self, element: Type, count: int) -> None:
        super().__init__(f"[{count} x {element.text}]")
        self.element, self.count = element, count


class FunctionType(Type):
    """Types of the arguments and result of a function."""

    __slots__ = ("args", "result")

    def __init__(self, result: Type, args: Sequence[Type]) -> None:
        super().__init__(f"{result.text} ({', '.join(a.text for a in args)})")
        self.result, self.args = result, tuple(args)

    def as_pointer(self) -> PointerType:
        """The type of an address that can be called so."""
        return PointerType(self)
