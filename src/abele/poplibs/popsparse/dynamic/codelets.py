"""Vertices of dynamic sparse products: walks over the buckets of :mod:`~abele.poplibs.popsparse.dynamic.buckets`.

A vertex is given some buckets, the number of its own cell, and dense slices of that cell: ``dense`` has the slice's
rows one after the other, ``columns`` elements each, and rows of partials are ``stride`` elements apart. It works on
the sub-groups of its cell and passes over the others. Their cycles are given where they are placed.

Example: a cell with rows 0 to 24 and a bucket with a sub-group of another cell first: the vertex reads that one's id,
adds its link to the place, adds its number of blocks to the place among the values, and goes on.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet
from abele.numerics import ElementType, bool_, f32, i64, u16, u32


@dataclass(frozen=True)
class Walked:
    """Sizes and types of a codelet.

    Attributes:
        dtype: Type of values and dense operands.
        partials: Type of partial sums.
        block: Rows and columns of a block.
        header: Entries of a sub-group before its first row.
        meta_slots: Entries of a bucket.
        nz_slots: Blocks of a bucket.
    """

    dtype: ElementType
    partials: ElementType
    block: tuple[int, int]
    header: int
    meta_slots: int
    nz_slots: int


@cache
def product_codelet(how: Walked, *, transposed: bool, by_columns: bool, clears: bool) -> type:
    """Add the products of a cell's values with ``dense`` to ``out``, straight or transposed.

    Args:
        how: Sizes and types.
        transposed: True for rows of ``out`` that are columns of the matrix.
        by_columns: True for lists of columns, whose blocks lie anywhere among the values: each says where.
        clears: True to begin with zeros.
    """
    dtype, partials, header, slots = how.dtype, how.partials, how.header, how.meta_slots
    high, wide = how.block
    area, values = high * wide, how.nz_slots * high * wide
    entry = 2 if by_columns else 1

    @codelet(name=_PRODUCTS[transposed, by_columns])
    class SparseProduct(Vertex):
        meta: Input[Vector[u16]]
        nz: Input[Vector[dtype]]
        dense: Input[Vector[dtype]]
        out: InOut[Vector[partials]]
        cell: u32
        columns: u32
        stride: u32

        def compute(self):
            n, step = i64(self.columns), i64(self.stride)
            if clears:
                for i in range(i64(len(self.out))):
                    self.out[i] = partials(0.0)
            for bucket in range(i64(len(self.meta)) // slots):
                at, last, value = bucket * slots, bucket * slots + slots - header, bucket * values
                while at <= last:
                    if self.meta[at] == 0:
                        at = last + 1
                    else:
                        if u32(self.meta[at]) == self.cell:
                            row, v = at + header, value
                            for _r in range(i64(self.meta[at + 6])):
                                line, count = i64(self.meta[row]), i64(self.meta[row + 1])
                                for j in range(count):
                                    other = i64(self.meta[row + 2 + entry * j])
                                    if by_columns:
                                        v = value + i64(self.meta[row + 3 + entry * j]) * area
                                    for down in range(high):
                                        for across in range(wide):
                                            a = (other if by_columns else line) * high + down
                                            b = (line if by_columns else other) * wide + across
                                            w = f32(self.nz[v + down * wide + across])
                                            to = b * step if transposed else a * step
                                            of = a * n if transposed else b * n
                                            for c in range(n):
                                                d = w * f32(self.dense[of + c])
                                                self.out[to + c] = partials(f32(self.out[to + c]) + d)
                                    v += area
                                row += 2 + entry * count
                        value += i64(self.meta[at + 3]) * area
                        at += max(i64(self.meta[at + 4]), i64(header))

    return SparseProduct


_PRODUCTS = {
    (False, False): "SparseDenseForward",
    (True, False): "SparseDenseTransposed",
    (True, True): "SparseDenseGradA",
}
"""Names of products, by ``transposed`` and ``by_columns``."""


@cache
def weights_codelet(how: Walked) -> type:
    """Add the products of rows of ``grad`` and ``acts`` to ``out``, at the places of a cell's values."""
    dtype, header, slots = how.dtype, how.header, how.meta_slots
    high, wide = how.block
    area = high * wide

    @codelet
    class SparseGradW(Vertex):
        meta: Input[Vector[u16]]
        grad: Input[Vector[dtype]]
        acts: Input[Vector[dtype]]
        out: InOut[Vector[f32]]
        cell: Input[Vector[u32]]
        columns: u32

        def compute(self):
            n = i64(self.columns)
            at, last, value = i64(0), i64(slots - header), i64(0)
            while at <= last:
                if self.meta[at] == 0:
                    at = last + 1
                else:
                    if u32(self.meta[at]) == self.cell[0]:
                        row, v = at + header, value
                        for _r in range(i64(self.meta[at + 6])):
                            x, count = i64(self.meta[row]), i64(self.meta[row + 1])
                            for j in range(count):
                                y = i64(self.meta[row + 2 + j])
                                for down in range(high):
                                    for across in range(wide):
                                        a, b = (x * high + down) * n, (y * wide + across) * n
                                        total = f32(0.0)
                                        for c in range(n):
                                            total += f32(self.grad[a + c]) * f32(self.acts[b + c])
                                        self.out[v + down * wide + across] += total
                                v += area
                            row += 2 + count
                    value += i64(self.meta[at + 3]) * area
                    at += max(i64(self.meta[at + 4]), i64(header))

    return SparseGradW


@cache
def clear_codelet(kind: ElementType) -> type:
    """Zeros."""

    @codelet
    class SparseZero(Vertex):
        out: Output[Vector[kind]]

        def compute(self):
            for i in range(i64(len(self.out))):
                self.out[i] = kind(0.0)

    return SparseZero


@cache
def reduce_codelet(partials: ElementType, made: ElementType) -> type:
    """Sum of some partials, one row each, in the type of the result."""

    @codelet
    class SparseReduce(Vertex):
        parts: Vector[Input[Vector[partials]]]
        out: Output[Vector[made]]

        def compute(self):
            for i in range(i64(len(self.out))):
                total = f32(0.0)
                for p in range(i64(len(self.parts))):
                    total += f32(self.parts[p][i])
                self.out[i] = made(total)

    return SparseReduce


@codelet
class SparseNextPass(Vertex):
    """Step to the next pass of spilt buckets: which shifts it takes, and whether tiles compute in it.

    ``info`` is the overflow info, ``state`` the place along x and y; ``more``, ``turns`` and ``works`` become 1 where
    there is another pass, it is in the next cell along x, and buckets have something that far away.
    """

    info: Input[Vector[u16]]
    state: InOut[Vector[u32]]
    more: Output[Vector[bool_]]
    turns: Output[Vector[bool_]]
    works: Output[Vector[bool_]]

    def compute(self):  # noqa: D102
        self.turns[0] = bool_(False)
        self.works[0] = bool_(False)
        self.state[1] += u32(1)
        if self.state[1] >= u32(self.info[1]):
            self.state[1] = u32(0)
            self.state[0] += u32(1)
            self.turns[0] = bool_(True)
        self.more[0] = bool_(False)
        if self.state[0] < u32(self.info[0]):
            self.more[0] = bool_(True)
            self.works[0] = bool_(self.info[3 + i64(self.state[0])] != 0)


@codelet
class SparseFirstPass(Vertex):
    """State of the first pass."""

    info: Input[Vector[u16]]
    state: Output[Vector[u32]]

    def compute(self):  # noqa: D102
        for i in range(i64(len(self.state))):
            self.state[i] = u32(0)


@codelet
class SparseLastPass(Vertex):
    """State after the last pass: how far buckets are from home."""

    info: Input[Vector[u16]]
    state: Output[Vector[u32]]

    def compute(self):  # noqa: D102
        for i in range(i64(len(self.state))):
            self.state[i] = u32(self.info[i]) - u32(1)


@codelet
class SparseHomeward(Vertex):
    """A step back, along y (``works``) as long as there is one, then along x (``turns``)."""

    info: Input[Vector[u16]]
    state: InOut[Vector[u32]]
    more: Output[Vector[bool_]]
    turns: Output[Vector[bool_]]
    works: Output[Vector[bool_]]

    def compute(self):  # noqa: D102
        self.more[0] = bool_(True)
        self.turns[0] = bool_(False)
        self.works[0] = bool_(False)
        if self.state[1] > u32(0):
            self.state[1] -= u32(1)
            self.works[0] = bool_(True)
        elif self.state[0] > u32(0):
            self.state[0] -= u32(1)
            self.turns[0] = bool_(True)
        else:
            self.more[0] = bool_(False)
