"""Memory of a vertex whose every access is held against the size of its field: an index outside touches nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from abele.codelet.fields import FieldDef
from abele.codelet.memory import VertexMemory, stored_type
from abele.llvm import ir as ll
from abele.llvm.emit import I64, POINTER, Value, constant

WORDS = 4
"""Words that :attr:`CompiledCodelet.run_checked` reports in: 1 + vertex (0: nothing wrong), field, index, size."""


@dataclass(frozen=True, slots=True)
class Violation:
    """The first access outside a field.

    Attributes:
        vertex: Number of the vertex among those that ran.
        field: Position of the field among those of the codelet.
        index: The index.
        size: Number of elements (or rows).
    """

    vertex: int
    field: int
    index: int
    size: int

    @staticmethod
    def of(words: Any) -> Violation | None:
        """The violation that words report, if any."""
        first, field, index, size = (int(w) for w in words[:WORDS])
        return Violation(first - 1, field, index, size) if first else None


class CheckedMemory(VertexMemory):
    """Loads and stores that go nowhere, and are reported, where they would leave their field."""

    may_vectorise = False

    def begin(self, report: Value, vertex: Value, fields: tuple[FieldDef, ...]) -> None:
        """Say where to report, and which vertex this is."""
        self._report, self._vertex = report, vertex
        self._numbers = {f.name: n for n, f in enumerate(fields)}
        with self.builder.goto_entry_block():
            self._nowhere = self.builder.alloca(ll.ArrayType(I64, 2), name="nowhere")
            for word in range(2):
                place = self.builder.gep(self._nowhere, [constant(I64, word)], source_etype=I64)
                self.builder.store(constant(I64, 0), place)

    def row(self, field: FieldDef, number: Value) -> Value:
        """Pointer to the first element of a row; of a row that is not there, to nothing."""
        return self._of_row(field, number, self.places[field.name].pointer, POINTER)

    def length(self, field: FieldDef, row: Value | None) -> Value:
        """Number of elements or rows; 0 for a row that is not there."""
        place = self.places[field.name]
        return place.length if row is None else self._of_row(field, row, place.row_lengths, I64)

    def element(self, field: FieldDef, index: list[Value], row: Value | None = None) -> Value:
        """Pointer to an element of a field; of one that is not there, to nothing."""
        b, pointer = self.builder, self.places[field.name].pointer
        if not index:
            return pointer
        size = self.length(field, index[0] if field.rank == 2 else None)
        if field.rank == 2:
            pointer = self.row(field, index[0]) if row is None else row
        inside = self._inside(field, index[-1], size)
        place = b.gep(pointer, [index[-1]], source_etype=stored_type(field.type))
        return b.select(inside, place, self._nowhere)

    def _of_row(self, field: FieldDef, row: Value, column: Value, type_: Any) -> Value:
        b = self.builder
        inside = self._inside(field, row, self.places[field.name].length)
        place = b.gep(column, [row], source_etype=type_)
        return b.load(b.select(inside, place, self._nowhere), align=8, typ=type_)

    def _inside(self, field: FieldDef, index: Value, size: Value) -> Value:
        """True if an index is inside; reported if not, unless something was reported before."""
        b = self.builder
        inside = b.icmp_unsigned("<", index, size)
        first = b.icmp_unsigned("==", b.load(self._report, typ=I64), constant(I64, 0))
        report, after = b.append_basic_block("outside"), b.append_basic_block("known")
        b.cbranch(b.and_(b.not_(inside), first), report, after)
        b.position_at_end(report)
        words = (b.add(self._vertex, constant(I64, 1)), constant(I64, self._numbers[field.name]), index, size)
        for word, value in reversed(list(enumerate(words))):
            b.store(value, b.gep(self._report, [constant(I64, word)], source_etype=I64))
        b.branch(after)
        b.position_at_end(after)
        return inside
