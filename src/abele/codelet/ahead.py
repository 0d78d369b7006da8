"""Prefetches of the next vertex' rows, while the vertex at hand runs.

A block of a grid is many short rows that lie far apart. Processors prefetch streams within a page: they find every
such row anew, and a row of two or three lines ends before they have. But the driver knows where the next vertex'
rows are, and asks for them in shares, one before each worker, so that memory is busy all the time. A prefetch
changes no value.

It is for short rows only. Measured in ``benchmarks/codelets.py``: a 5-point stencil on blocks of 46 x 32 cells takes
half the time; lattice-Boltzmann blocks with rows of twelve lines, which the processor streams, take a fifth longer.
"""

from __future__ import annotations

from dataclasses import dataclass

from abele.codelet.fields import FieldDef
from abele.codelet.memory import FieldPlace, VertexMemory, stored_type
from abele.codelet.vertex import NUM_WORKERS
from abele.llvm.emit import I64, POINTER, Value, constant, counted_loop, intrinsic, prefetch
from abele.llvm.host import LINE_BYTES

MAX_ROW_LINES = 4
"""Longer rows are streams, which the processor follows by itself."""
MAX_LINES = 4096
"""Lines of a vertex: with more the first would leave a second-level cache of 256 KiB before they are used."""


@dataclass
class NextRows:
    """Rows of one field of the next vertex.

    Attributes:
        field: The field.
        place: Place of its rows.
        rows: Number of rows.
        lines: Cache lines of each.
    """

    field: FieldDef
    place: FieldPlace
    rows: int
    lines: int

    @staticmethod
    def lines_of(field: FieldDef, row_length: int) -> int:
        """Lines that a row may touch, wherever in a line it begins."""
        return (row_length * field.type.bytes + LINE_BYTES - 2) // LINE_BYTES + 1


def emit_prefetch(memory: VertexMemory, found: tuple[NextRows, ...], worker: Value | None) -> None:
    """Ask for the share of ``worker`` of the next vertex' rows; without workers for all of them."""
    b = memory.builder
    for rows in found:
        first, last = constant(I64, 0), constant(I64, rows.rows)
        if worker is not None:
            each = constant(I64, -(-rows.rows // NUM_WORKERS))
            first = b.mul(worker, each)
            last = intrinsic(b, "llvm.smin", b.add(first, each), last)
        _rows(memory, rows, first, last)


def _rows(memory: VertexMemory, found: NextRows, first: Value, last: Value) -> None:
    b = memory.builder
    element, size = stored_type(found.field.type), found.field.type.bytes
    with counted_loop(b, first, last) as row:
        pointer = memory.table(found.place.pointer, row, POINTER)
        for line in range(found.lines):
            prefetch(b, b.gep(pointer, [constant(I64, line * LINE_BYTES // size)], source_etype=element))
