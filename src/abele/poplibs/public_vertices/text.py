"""Pieces of the text of library vertices: declarations of fields, and loops over their elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from abele.codelet.write import type_name
from abele.machine import Ipu
from abele.numerics import ElementType
from abele.poplibs.popops.expressions.element_codelets import OperandPlace

WORKERS = 6


def vector(name: str, dtype: ElementType, way: str = "Input", layout: str = "SPAN", align: int = 8) -> str:
    """The declaration of a vector."""
    return f"{name}: {way}[Vector[{type_name(dtype)}, {layout}, {align}]]"


def rows(name: str, dtype: ElementType, way: str = "Input", inner: str = "SPAN", align: int = 8) -> str:
    """The declaration of a vector of vectors."""
    return f"{name}: Vector[{way}[Vector[{type_name(dtype)}, {inner}, {align}]]]"


def one(name: str, dtype: ElementType, way: str = "Input") -> str:
    """The declaration of a single element."""
    return f"{name}: {way}[{type_name(dtype)}]"


def state(name: str, dtype: ElementType) -> str:
    """The declaration of a number that belongs to the vertex."""
    return f"{name}: {type_name(dtype)}"


def indented(lines: Sequence[str], depth: int = 1) -> list[str]:
    """Lines, indented by ``depth`` blocks."""
    return [f"{'    ' * depth}{line}" for line in lines]


def shared_loop(size: str, body: Sequence[str], grain: int = 1) -> list[str]:
    """A loop over ``i`` below ``size``, of which every worker takes a stretch of whole grains."""
    chunk = WORKERS * grain
    return [
        f"size = {size}",
        f"share = (size + {chunk - 1}) // {chunk} * {grain}",
        "for i in range(worker_id * share, min(worker_id * share + share, size)):",
        *indented(body),
    ]


def loop(size: str, body: Sequence[str], variable: str = "i") -> list[str]:
    """A loop below ``size``."""
    return [f"for {variable} in range({size}):", *indented(body)]


def row_loop(field: str, body: Sequence[str]) -> list[str]:
    """A loop over rows ``r`` of a field, and elements ``i`` of each."""
    return loop(f"len(self.{field})", loop(f"len(self.{field}[r])", body), "r")


def place(text: str, dtype: ElementType) -> OperandPlace:
    """The operand at ``text``."""
    return OperandPlace("", dtype, "Input", "full", text)


def wide(text: str, dtype: ElementType, kind: ElementType) -> str:
    """The element ``text`` of type ``dtype`` as one of type ``kind``."""
    return text if dtype == kind else f"{type_name(kind)}({text})"


def vectors(size: Any, dtype: ElementType, ipu: Ipu) -> Any:
    """Vectors that ``size`` elements make up."""
    return -(-size // ipu.vector_width(dtype))
