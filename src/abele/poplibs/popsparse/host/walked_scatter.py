"""Transposed products with single values whose pattern comes at run time: values are added where they belong.

Putting values in the order of their columns takes as long as a product with some 100 dense columns. A vertex that
makes some lines of the result instead goes through the buckets as they are, and adds for each value of its lines a
multiple of a row of X to the line.

Example: 2,048 columns in four shares are 512 lines of 64 dense columns each, 128 KiB, which stay in the cache.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet, macro
from abele.numerics import ElementType, f32, i64, u16, u32
from abele.poplibs.popsparse.host.product_codelets import Tiling


@dataclass(frozen=True)
class Scattering:
    """Sizes of buckets of single values; see :class:`~abele.poplibs.popsparse.host.walked.Buckets`.

    Attributes:
        cell_rows: Rows of a cell.
        cell_columns: Columns of a cell.
        rows: Rows of the matrix.
        header: Entries of a sub-group before its first row.
        meta_slots: Entries of a bucket of meta-info.
        nz_slots: Values of a bucket.
    """

    cell_rows: int
    cell_columns: int
    rows: int
    header: int
    meta_slots: int
    nz_slots: int


@macro
def _scatter(self, sizes, kind, n, j, stride, base, W, there):
    """Columns from ``j`` on of all lines of Sᵀ·X: each value adds its multiple of a row of X to its line."""
    num = i64(len(self.out)) // n
    low = i64(self.first)
    for i in range(num * W):
        self.s[i] = f32(0.0)
    for bucket in range(i64(len(self.meta)) // sizes.meta_slots):
        at, stop = bucket * sizes.meta_slots, bucket * sizes.meta_slots + sizes.meta_slots
        value, behind = bucket * sizes.nz_slots, bucket * sizes.nz_slots + sizes.nz_slots
        while at + sizes.header <= stop:
            if self.meta[at] == 0:
                at = stop
            else:
                line = i64(self.meta[at + 2]) * sizes.cell_columns - low
                top = i64(self.meta[at + 1]) * sizes.cell_rows
                if line < num and line + sizes.cell_columns > 0:
                    row, v = at + sizes.header, value
                    for _r in range(i64(self.meta[at + 6])):
                        if row + 2 <= stop:
                            count = i64(self.meta[row + 1])
                            of = top + i64(self.meta[row])
                            # Nothing is read beyond the bucket or X, whatever the meta-info says.
                            if row + 2 + count > stop or v + count > behind or of >= sizes.rows:
                                count = i64(0)
                            source = of * stride + base
                            for k in range(count):
                                to = line + i64(self.meta[row + 2 + k])
                                if to >= 0 and to < num:
                                    w = f32(self.nz[v + k])
                                    for c in range(W):
                                        self.s[to * W + c] += w * self.x[source + c]
                            v += count
                            row += 2 + count
                value += i64(self.meta[at + 3])
                at += max(i64(self.meta[at + 4]), i64(sizes.header))
    for i in range(num):
        for c in range(there):
            self.out[i * n + j + c] = kind(self.s[i * W + c])


@cache
def scattered_codelet(sizes: Scattering, how: Tiling, held: ElementType, made: ElementType) -> type:
    """Some lines of Sᵀ·X for values of one element, which need no order."""

    @codelet(name="HostSparseScattered")
    class HostSparseScattered(Vertex):
        meta: Input[Vector[u16]]
        nz: Input[Vector[held]]
        x: Input[Vector[f32]]
        out: Output[Vector[made]]
        s: InOut[Vector[f32]]
        first: u32
        n: u32
        stride: u32
        last: u32
        jump: u32

        def compute(self):
            n = i64(self.n)
            whole = n // how.width
            if how.rest > 0:
                whole = (n - how.there) // how.width
            for panel in range(whole):
                j = panel * how.width
                base = panel * i64(self.jump)
                _scatter(self, sizes, made, n, j, i64(self.stride), base=base, W=how.width, there=how.width)
            if how.rest > 0:
                behind = whole * i64(self.jump)
                _scatter(self, sizes, made, n, n - how.there, i64(self.last), base=behind, W=how.rest, there=how.there)

    return HostSparseScattered
