"""One function a vertex class, ``void vertex(fields…, worker, random, vertex)``, around its ``compute``.

It builds the object from pointers and lengths, calls ``compute`` and writes state back. Once everything is put in place
and the object is dissolved into registers, what remains is the code of the vertex over its fields.

Parameters, field by field: ``ptr`` for one element and for scalar state; ``ptr, i32`` for vectors (elements and their
number), for fields of rows (16 bytes each: pointer, i32 length, 4 unused) and for gathers (pointers to elements).
"""

from __future__ import annotations

from dataclasses import dataclass

from abele.codelet.cpp.metadata import global_name
from abele.codelet.cpp.reflect import Member, VertexClass

ROW_BYTES = 16
"""Bytes of pointer, length and padding: an ``Input<Vector<T>>`` on the host."""
LENGTH_OFFSET = 8
VIRTUAL = "abele.virtual"
"""Placeholder of the table of virtual functions of a vertex, which nothing makes: calls by it are calls of pointers."""
_AS_WRITTEN = '"no-builtin-memcpy" "no-builtin-memset" "no-builtin-memmove"'
"""Loops that copy and fill stay loops, to be counted as such."""


def entry_name(number: int) -> str:
    """Symbol of the function of vertex class ``number`` of a module."""
    return f"abele.vertex.{number}"


@dataclass(frozen=True)
class EntryParameter:
    """A parameter of the function.

    Attributes:
        name: Its name.
        type: Its LLVM type.
        member: The field that it belongs to; None for the worker, random numbers, and the vertex's number.
    """

    name: str
    type: str
    member: Member | None = None


def parameters(vertex: VertexClass) -> list[EntryParameter]:
    """Parameters of the function of a vertex class."""
    found = []
    for number, member in enumerate(vertex.members):
        found.append(EntryParameter(f"p{number}", "ptr", member))
        if member.shape != "scalar":
            found.append(EntryParameter(f"n{number}", "i32", member))
    return [*found, EntryParameter("worker", "i32"), EntryParameter("random", "ptr"), EntryParameter("vertex", "i64")]


def entry_text(vertex: VertexClass, number: int, signature: str, *, aliasing: bool) -> str:
    """LLVM text of the function.

    Args:
        vertex: The class.
        number: Its number in the module.
        signature: Type of its ``compute``, as ``i1 (ptr, i32)``.
        aliasing: True if its fields may overlap.
    """
    # Members lie wherever the host's compiler put them, so alignment 1 is all that is claimed; the object is dissolved
    # before any of it matters.
    lines, after = [f"  %object = alloca [{vertex.size} x i8], align 16"], []
    for index, at in enumerate(vertex.tables):
        lines.append(f"  %table{index} = getelementptr i8, ptr %object, i64 {at}")
        lines.append(f"  store ptr @{VIRTUAL}, ptr %table{index}, align 1")
    for index, member in enumerate(vertex.members):
        lines.append(f"  %at{index} = getelementptr i8, ptr %object, i64 {member.offset}")
        if member.direction == "state" and member.shape == "scalar":
            inward, outward = _state(member, index)
            lines += inward
            after += [] if member.const else outward
            continue
        lines.append(f"  store ptr %p{index}, ptr %at{index}, align 1")
        if member.shape != "scalar":
            lines.append(f"  %l{index} = getelementptr i8, ptr %at{index}, i64 {LENGTH_OFFSET}")
            lines.append(f"  store i32 %n{index}, ptr %l{index}, align 1")
    lines.append(f"  %this = getelementptr i8, ptr %object, i64 {vertex.this_offset}")
    lines.append(_call(vertex, signature))
    no_alias = "" if aliasing else "noalias "
    declared = [f"{p.type} {no_alias if p.type == 'ptr' else ''}%{p.name}" for p in parameters(vertex)]
    body = "\n".join([*lines, *after, "  ret void"])
    return f"define void @{entry_name(number)}({', '.join(declared)}) mustprogress {_AS_WRITTEN} {{\n{body}\n}}\n"


_HELD = {
    "": (None, None),
    "long": ("sext i32 {} to i64", "trunc i64 {} to i32"),
    "unsigned long": ("zext i32 {} to i64", "trunc i64 {} to i32"),
    "double": ("fpext float {} to double", "fptrunc double {} to float"),
}
"""Conversions of state that is held in 64 bits from 32 and back."""


def _state(member: Member, index: int) -> tuple[list[str], list[str]]:
    """Instructions that put a state scalar into the object, and back to where it is kept."""
    kept = "float" if member.held == "double" else f"i{8 * member.element.bytes}"
    widen, narrow = _HELD[member.held]
    if widen is None or narrow is None:
        inward = [
            f"  %v{index} = load {kept}, ptr %p{index}, align 1",
            f"  store {kept} %v{index}, ptr %at{index}, align 1",
        ]
        outward = [
            f"  %w{index} = load {kept}, ptr %at{index}, align 1",
            f"  store {kept} %w{index}, ptr %p{index}, align 1",
        ]
        return inward, outward
    held = widen.rpartition(" ")[2]
    inward = [
        f"  %k{index} = load {kept}, ptr %p{index}, align 1",
        f"  %v{index} = {widen.format(f'%k{index}')}",
        f"  store {held} %v{index}, ptr %at{index}, align 1",
    ]
    outward = [
        f"  %h{index} = load {held}, ptr %at{index}, align 1",
        f"  %w{index} = {narrow.format(f'%h{index}')}",
        f"  store {kept} %w{index}, ptr %p{index}, align 1",
    ]
    return inward, outward


def _call(vertex: VertexClass, signature: str) -> str:
    result = signature.partition(" (")[0]
    worker = ", i32 %worker" if vertex.kind == "multi" else ""
    name = "" if result == "void" else "%result = "
    return f"  {name}call {result} {global_name(vertex.compute)}(ptr %this{worker})"
