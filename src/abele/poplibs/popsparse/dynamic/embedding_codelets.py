"""Vertices of slices and updates of dynamic sparse matrices, on the tiles and on the host.

Example: rows 25 to 50 of a cell and the indices 3, 30, 31: the vertex finds rows 5 and 6 of its cell, if the bucket has
them, and writes the columns of their values; columns without a value stay zero.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache

from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet, macro
from abele.numerics import ElementType, f32, i64, u16, u32
from abele.poplibs.popsparse.dynamic.walk import Walked, any_cell, each_row, given_cell, own_cell


@cache
def slice_codelet(how: Walked, cell_rows: int, *, clears: bool) -> type:
    """Write the values of rows that ``dense`` names to ``out``, a column of it for each index."""
    dtype, high, wide, area = how.dtype, how.high, how.wide, how.area

    @macro
    def take(self, at, row, count, value, v):
        first = (i64(self.meta[at + 1]) * cell_rows + i64(self.meta[row])) * high
        for i in range(i64(self.columns)):
            down = i64(self.dense[i]) - first
            if down >= 0 and down < high:
                for j in range(count):
                    y = i64(self.meta[row + 2 + j]) * wide
                    for across in range(wide):
                        self.out[(y + across) * i64(self.stride) + i] = self.nz[v + j * area + down * wide + across]

    @codelet
    class SparseEmbeddingSlice(Vertex):
        meta: Input[Vector[u16]]
        nz: Input[Vector[dtype]]
        dense: Input[Vector[u32]]
        out: InOut[Vector[dtype]]
        cell: u32
        columns: u32
        stride: u32

        def compute(self):
            if clears:
                for i in range(i64(len(self.out))):
                    self.out[i] = dtype(0.0)
            each_row(self, how, 1, own_cell, take)

    return SparseEmbeddingSlice


@cache
def update_codelet(how: Walked, cell_rows: int, num_indices: int, columns: int) -> type:
    """Add the columns of slices whose index is a row of the bucket to the sums of that row's values.

    ``grad`` are indices of the tile that the slices ``acts`` come from; beyond the last index there are none.
    """
    dtype, high, wide, area = how.dtype, how.high, how.wide, how.area
    whole = num_indices // columns
    rest = num_indices - whole * columns

    @macro
    def add(self, at, row, count, value, v):
        step = i64(self.columns)
        # Which z tile this comes from tells how many indices it has.
        z = i64(self.cell[1])
        n = step if z < whole else (i64(rest) if z == whole else i64(0))
        first = (i64(self.meta[at + 1]) * cell_rows + i64(self.meta[row])) * high
        for i in range(n):
            down = i64(self.grad[i]) - first
            if down >= 0 and down < high:
                for j in range(count):
                    y = i64(self.meta[row + 2 + j]) * wide
                    for across in range(wide):
                        d = f32(self.acts[(y + across) * step + i])
                        self.out[v + j * area + down * wide + across] += d

    @codelet
    class SparseEmbeddingUpdate(Vertex):
        meta: Input[Vector[u16]]
        grad: Input[Vector[u32]]
        acts: Input[Vector[dtype]]
        out: InOut[Vector[f32]]
        cell: Input[Vector[u32]]
        columns: u32

        def compute(self):
            each_row(self, how, 1, given_cell, add)

    return SparseEmbeddingUpdate


@cache
def add_codelet(dtype: ElementType, scale: ElementType) -> type:
    """Add scaled sums to values."""
    factor = scale

    @codelet
    class SparseScaledAdd(Vertex):
        values: InOut[Vector[dtype]]
        sums: Input[Vector[f32]]
        scale: Input[Vector[factor]]

        def compute(self):
            s = f32(self.scale[0])
            for i in range(i64(len(self.values))):
                d = s * self.sums[i]
                self.values[i] = dtype(f32(self.values[i]) + d)

    return SparseScaledAdd


@cache
def host_slice_codelet(how: Walked, cell_rows: int) -> type:
    """The columns of one part of y, of all slices."""
    dtype, high, wide, area = how.dtype, how.high, how.wide, how.area

    @macro
    def of_part(self, at):
        return u32(self.meta[at + 2]) == self.part

    @macro
    def take(self, at, row, count, value, v):
        first = (i64(self.meta[at + 1]) * cell_rows + i64(self.meta[row])) * high
        for i in range(i64(len(self.indices))):
            down = i64(self.indices[i]) - first
            if down >= 0 and down < high:
                for j in range(count):
                    y = i64(self.meta[row + 2 + j]) * wide
                    for across in range(wide):
                        self.out[y + across][i] = self.nz[v + j * area + down * wide + across]

    @codelet
    class HostSparseSlice(Vertex):
        meta: Input[Vector[u16]]
        nz: Input[Vector[dtype]]
        indices: Input[Vector[u32]]
        out: Vector[Output[Vector[dtype]]]
        part: u32

        def compute(self):
            for y in range(i64(len(self.out))):
                for i in range(i64(len(self.out[y]))):
                    self.out[y][i] = dtype(0.0)
            each_row(self, how, 1, of_part, take)

    return HostSparseSlice


@cache
def host_update_codelet(how: Walked, cell: tuple[int, int], num_indices: int, scale: ElementType) -> type:
    """Values of one bucket, with the slices of all indices added."""
    dtype, high, wide, area, factor = how.dtype, how.high, how.wide, how.area, scale
    rows, columns = cell

    @macro
    def add(self, at, row, count, value, v):
        first = (i64(self.meta[at + 1]) * rows + i64(self.meta[row])) * high
        for j in range(count):
            y = (i64(self.meta[at + 2]) * columns + i64(self.meta[row + 2 + j])) * wide
            for down in range(high):
                for across in range(wide):
                    total = f32(0.0)
                    for i in range(num_indices):
                        if i64(self.indices[i]) == first + down:
                            total += f32(self.slices[(y + across) * num_indices + i])
                    to = v + j * area + down * wide + across
                    d = f32(self.scale[0]) * total
                    self.values[to] = dtype(f32(self.values[to]) + d)

    @codelet
    class HostSparseUpdate(Vertex):
        meta: Input[Vector[u16]]
        values: InOut[Vector[dtype]]
        indices: Input[Vector[u32]]
        slices: Input[Vector[dtype]]
        scale: Input[Vector[factor]]

        def compute(self):
            each_row(self, how, 1, any_cell, add)

    return HostSparseUpdate
