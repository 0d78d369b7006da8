"""Vertices that move the dense operands of sparse products: into panels, and from rows to columns.

Rows become columns eight at a time. Loads run along eight rows, and their elements go, interleaved, to a small buffer,
which vector code does by shuffles; from there they are copied, those of two strips together, eight by eight.

Example: 64 × 64 elements are eight strips of 8 × 64. A strip is 32 loads of 512 bits, 2 KiB of buffer in order, and 64
copies of 32 bytes. Squares of 16 × 16, one element at a time, took three times as long.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache

from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet, macro
from abele.numerics import ElementType, f32, i64, u32

EDGE = 64
"""Elements of a row that are turned at a time."""
LESS = 16
"""The same of shorter rows."""
BUFFER = 16 * EDGE
"""Elements of the buffer."""


@cache
def copy_codelet(given: ElementType, wanted: ElementType) -> type:
    """A row, copied, in another element type if need be."""

    @codelet(name="HostSparseCopy")
    class HostSparseCopy(Vertex):
        x: Input[Vector[given]]
        out: Output[Vector[wanted]]

        def compute(self):
            for i in range(len(self.x)):
                self.out[i] = wanted(self.x[i])

    return HostSparseCopy


@cache
def scaled_codelet(given: ElementType, is_number: bool) -> type:
    """A row times a factor, a number or a tensor, in f32."""

    @codelet(name="HostSparseScaled")
    class HostSparseScaled(Vertex):
        x: Input[Vector[given]]
        out: Output[Vector[f32]]
        if is_number:
            factor: f32
        else:
            factor: Input[f32]

        def compute(self):
            for i in range(len(self.x)):
                self.out[i] = f32(self.x[i]) * self.factor

    return HostSparseScaled


@cache
def pack_codelet(kind: ElementType, width: int, there: int) -> type:
    """Some columns of some rows as rows of a panel, in f32.

    Args:
        kind: Element type of the rows.
        width: Columns of the panel.
        there: Columns that are taken; the others become zero.
    """

    @codelet(name="HostSparsePack")
    class HostSparsePack(Vertex):
        x: Input[Vector[kind]]
        out: Output[Vector[f32]]
        row: u32
        column: u32
        columns: u32

        def compute(self):
            n = i64(self.columns)
            at = i64(self.row) * n + i64(self.column)
            for r in range(i64(len(self.out)) // width):
                for c in range(there):
                    self.out[r * width + c] = f32(self.x[at + r * n + c])
                for c in range(there, width):
                    self.out[r * width + c] = f32(0.0)

    return HostSparsePack


@macro
def _eight(self, kind, at, apart, count, half):
    """Interleave eight rows in a half of the buffer, ``count`` elements of each; rows are ``apart`` elements apart."""
    for r in range(count):
        self.buffer[half * 8 * count + 8 * r] = kind(self.x[at + r])
        self.buffer[half * 8 * count + 8 * r + 1] = kind(self.x[at + apart + r])
        self.buffer[half * 8 * count + 8 * r + 2] = kind(self.x[at + 2 * apart + r])
        self.buffer[half * 8 * count + 8 * r + 3] = kind(self.x[at + 3 * apart + r])
        self.buffer[half * 8 * count + 8 * r + 4] = kind(self.x[at + 4 * apart + r])
        self.buffer[half * 8 * count + 8 * r + 5] = kind(self.x[at + 5 * apart + r])
        self.buffer[half * 8 * count + 8 * r + 6] = kind(self.x[at + 6 * apart + r])
        self.buffer[half * 8 * count + 8 * r + 7] = kind(self.x[at + 7 * apart + r])


@macro
def _four(self, kind, at, apart, count):
    """As :func:`_eight`, of four rows."""
    for r in range(count):
        self.buffer[4 * r] = kind(self.x[at + r])
        self.buffer[4 * r + 1] = kind(self.x[at + apart + r])
        self.buffer[4 * r + 2] = kind(self.x[at + 2 * apart + r])
        self.buffer[4 * r + 3] = kind(self.x[at + 3 * apart + r])


@macro
def _turned(self, kind, at, apart, to, width, rows, count):
    """Turn ``count`` elements of so many rows from ``at`` on; they become rows ``width`` apart from ``to`` on."""
    for pair in range(rows // 16):
        _eight(self, kind, at + pair * 16 * apart, apart, count=count, half=0)
        _eight(self, kind, at + pair * 16 * apart + 8 * apart, apart, count=count, half=1)
        for r in range(count):
            # Both halves of a line at once: columns 4 KiB apart drive each other out of the cache.
            for c in range(8):
                self.out[to + r * width + pair * 16 + c] = self.buffer[8 * r + c]
            for c in range(8):
                self.out[to + r * width + pair * 16 + 8 + c] = self.buffer[8 * count + 8 * r + c]
    done = rows // 16 * 16
    if rows - done >= 8:
        _eight(self, kind, at + done * apart, apart, count=count, half=0)
        for r in range(count):
            for c in range(8):
                self.out[to + r * width + done + c] = self.buffer[8 * r + c]
        done += 8
    if rows - done >= 4:
        _four(self, kind, at + done * apart, apart, count=count)
        for r in range(count):
            for c in range(4):
                self.out[to + r * width + done + c] = self.buffer[4 * r + c]
        done += 4
    for c in range(done, rows):
        for r in range(count):
            self.out[to + r * width + c] = kind(self.x[at + c * apart + r])


@macro
def _all_turned(self, kind, at, apart, width, rows, count):
    """Turn ``count`` elements of so many rows from ``at`` on."""
    whole = count // EDGE
    for part in range(whole):
        _turned(self, kind, at + part * EDGE, apart, to=part * EDGE * width, width=width, rows=rows, count=EDGE)
    less = (count - whole * EDGE) // LESS
    for part in range(less):
        r = whole * EDGE + part * LESS
        _turned(self, kind, at + r, apart, to=r * width, width=width, rows=rows, count=LESS)
    for r in range(whole * EDGE + less * LESS, count):
        for c in range(rows):
            self.out[r * width + c] = kind(self.x[at + c * apart + r])


@cache
def pack_across_codelet(kind: ElementType, width: int, there: int) -> type:
    """As :func:`pack_codelet`, of columns that lie one after the other."""

    @codelet(name="HostSparsePackAcross")
    class HostSparsePackAcross(Vertex):
        x: Input[Vector[kind]]
        out: Output[Vector[f32]]
        buffer: InOut[Vector[f32]]
        row: u32
        column: u32
        rows: u32

        def compute(self):
            k = i64(self.rows)
            at = i64(self.column) * k + i64(self.row)
            height = i64(len(self.out)) // width
            _all_turned(self, f32, at, k, width=i64(width), rows=i64(there), count=height)
            for r in range(height):
                for c in range(there, width):
                    self.out[r * width + c] = f32(0.0)

    return HostSparsePackAcross


@cache
def transpose_codelet(kind: ElementType) -> type:
    """Some columns of a matrix as rows."""

    @codelet(name="HostSparseTranspose")
    class HostSparseTranspose(Vertex):
        x: Input[Vector[kind]]
        out: Output[Vector[kind]]
        buffer: InOut[Vector[kind]]
        rows: u32
        column: u32

        def compute(self):
            rows = i64(self.rows)
            columns = i64(len(self.x)) // rows
            _all_turned(self, kind, i64(self.column), columns, width=rows, rows=rows, count=i64(len(self.out)) // rows)

    return HostSparseTranspose
