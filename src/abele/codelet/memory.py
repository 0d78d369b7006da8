"""Fields of one vertex in memory, as LLVM values: their places, and loads and stores of their elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from abele.codelet.early_exits import StoppedLoops
from abele.codelet.fields import FieldDef
from abele.codelet.rounding import NEAREST, Draws, Rounding
from abele.codelet.tree import Stmt
from abele.llvm import ir as ll
from abele.llvm import narrow
from abele.llvm.emit import F32, I1, I8, I64, POINTER, Value, constant
from abele.numerics import ElementType, bool_


def value_type(type_: ElementType) -> Any:
    """The LLVM type of a value: narrow floats are computed with as f32, bools as i1."""
    if type_.is_float:
        return F32
    return I1 if type_ == bool_ else ll.IntType(type_.bits)


def stored_type(type_: ElementType) -> Any:
    """The LLVM type of an element in memory: narrow floats as their bits."""
    return F32 if type_.is_float and type_.bits == 32 else ll.IntType(type_.bits)


@dataclass(frozen=True)
class FieldPlace:
    """One field of the vertex at hand.

    Attributes:
        pointer: First element; of a vector of vectors, pointers to its rows.
        length: Number of elements, or of rows; None for single elements.
        row_lengths: Pointer to the lengths of the rows, or None.
        row_length: Length of all rows, where it is known.
    """

    pointer: Value
    length: Value | None = None
    row_lengths: Value | None = None
    row_length: Value | None = None


def num_columns(field: FieldDef) -> int:
    """Columns that a field has in the tables."""
    if field.rank == 2:
        return 3
    return 1 if field.rank == 0 else 2


class Aliasing:
    """Metadata for LLVM on fields that do not overlap: one scope per field, and one for the tables themselves.

    Attributes:
        enabled: Off where fields may overlap.
        access_group: Marks the accesses of a loop that carries nothing through memory, while its code is emitted.
    """

    def __init__(self, module: ll.Module, names: list[str], enabled: bool) -> None:
        self.enabled = enabled
        self.access_group: Any = None
        if not enabled:
            return
        domain = module.add_metadata(["codelet"])
        scopes = {n: module.add_metadata([f"field {n}", domain]) for n in [*names, ""]}
        self._own = {n: module.add_metadata([s]) for n, s in scopes.items()}
        self._others = {n: module.add_metadata([s for m, s in scopes.items() if m != n]) for n in scopes}

    def mark(self, instruction: Any, name: str) -> Any:
        """Mark a load or store of field ``name``; empty for the tables."""
        if self.enabled:
            instruction.set_metadata("alias.scope", self._own[name])
            instruction.set_metadata("noalias", self._others[name])
        if self.access_group is not None:
            instruction.set_metadata("llvm.access.group", self.access_group)
        return instruction


@dataclass(frozen=True)
class Said:
    """Destination of the prints of the vertex at hand.

    Attributes:
        address: Pointer to the address of the function that takes them.
        vertex: Number of the vertex.
        sites: Number of each print.
    """

    address: Value
    vertex: Value
    sites: dict[Stmt, int]


@dataclass
class VertexMemory:
    """Loads and stores of the vertex at hand.

    Attributes:
        builder: Builder that code is added to.
        aliasing: Metadata of fields that may overlap.
        places: Place of each field.
        bits: Bits of narrow floats that have just been rounded, by value.
        rounding: Rounding of results to narrow floats.
        draws: Random words for rounding, if it is random.
        said: Destination of prints, in codelets that print.
        stopped: Loops that the host may stop, if there are any.
        may_vectorise: True if loops over elements can become vector code.
    """

    may_vectorise: ClassVar[bool] = True

    builder: ll.IRBuilder
    aliasing: Aliasing
    places: dict[str, FieldPlace]
    bits: dict[Value, Value]
    rounding: Rounding = NEAREST
    draws: Draws | None = None
    said: Said | None = None
    stopped: StoppedLoops | None = None

    def table(self, column: Value, index: Value, type_: Any) -> Value:
        """Entry ``index`` of a table column."""
        place = self.builder.gep(column, [index], inbounds=True, source_etype=type_)
        return self.aliasing.mark(self.builder.load(place, align=8, typ=type_), "")

    def row(self, field: FieldDef, number: Value) -> Value:
        """Pointer to the first element of a row."""
        return self.table(self.places[field.name].pointer, number, POINTER)

    def element(self, field: FieldDef, index: list[Value], row: Value | None = None) -> Value:
        """Pointer to an element of a field; ``row`` points to its row where that is known."""
        pointer = self.places[field.name].pointer
        if field.rank == 2:
            pointer = self.row(field, index[0]) if row is None else row
        if not index:
            return pointer
        return self.builder.gep(pointer, [index[-1]], inbounds=True, source_etype=stored_type(field.type))

    def length(self, field: FieldDef, row: Value | None) -> Value:
        """Number of elements of a vector, of rows, or of elements of a row."""
        place = self.places[field.name]
        if row is None:
            return place.length
        return self.table(place.row_lengths, row, I64) if place.row_length is None else place.row_length

    def load(self, field: FieldDef, index: list[Value], row: Value | None = None) -> Value:
        """An element as a value; ``row`` points to its row where that is known."""
        type_ = field.type
        raw = self.builder.load(self.element(field, index, row), align=type_.bytes, typ=stored_type(type_))
        self.aliasing.mark(raw, field.name)
        if type_ == bool_:
            return self.builder.icmp_unsigned("!=", raw, constant(I8, 0))
        return self.widened(raw, type_) if type_.is_narrow else raw

    def store(self, field: FieldDef, index: list[Value], value: Value, row: Value | None = None) -> None:
        """Write an element; ``row`` points to its row where that is known."""
        type_ = field.type
        if type_ == bool_:
            value = self.builder.zext(value, I8)
        elif type_.is_narrow:
            known = self.bits.get(value)
            value = narrow.narrowed(self.builder, value, type_) if known is None else known
        stored = self.builder.store(value, self.element(field, index, row), align=type_.bytes)
        self.aliasing.mark(stored, field.name)

    def rounded(self, value: Value, type_: ElementType) -> Value:
        """An f32 rounded to a narrow float type, still as f32."""
        word = None if self.draws is None else self.draws.next(self.builder, value)
        saturate = self.rounding.saturates
        return self.widened(narrow.narrowed(self.builder, value, type_, word, saturate=saturate), type_)

    def widened(self, raw: Value, type_: ElementType) -> Value:
        """The f32 of a narrow float's bits, which are remembered for a store of the same value."""
        value = narrow.widened(self.builder, raw, type_)
        self.bits[value] = raw
        return value
