"""Vertices of dynamic sparse products: what they do with the rows of blocks that they come by.

A vertex is given some buckets, the number of its own cell, and dense slices of that cell: ``dense`` has the slice's
rows one after the other, ``columns`` elements each, and rows of partials are ``stride`` elements apart. It works on
the sub-groups of its cell (:mod:`~abele.poplibs.popsparse.dynamic.walk`). Their cycles are given where they are placed.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Literal

from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet, macro
from abele.numerics import ElementType, bool_, f32, i64, u16, u32
from abele.poplibs.popsparse.dynamic.walk import Walked, each_row, given_cell, own_cell


@cache
def product_codelet(
    how: Walked,
    *,
    transposed: bool,
    by_columns: bool,
    clears: bool,
    taken: ElementType,
    scaled: Literal["", "number", "tensor"] = "",
) -> type:
    """Add the products of a cell's values with ``dense`` to ``out``, straight or transposed.

    Args:
        how: Sizes and types.
        transposed: True for rows of ``out`` that are columns of the matrix.
        by_columns: True for lists of columns, whose blocks lie anywhere among the values: each says where.
        clears: True to begin with zeros.
        taken: Type of the dense operand.
        scaled: Form in which it has a ``factor`` of the products; empty for none.
    """
    dtype, partials, high, wide = how.dtype, how.partials, how.high, how.wide
    area, entry = how.area, 2 if by_columns else 1

    @macro
    def multiply(self, at, row, count, value, v):
        n, step, line = i64(self.columns), i64(self.stride), i64(self.meta[row])
        for j in range(count):
            other = i64(self.meta[row + 2 + entry * j])
            of_block = value + i64(self.meta[row + 3 + entry * j]) * area if by_columns else v + j * area
            for down in range(high):
                for across in range(wide):
                    a = (other if by_columns else line) * high + down
                    b = (line if by_columns else other) * wide + across
                    w = f32(self.nz[of_block + down * wide + across])
                    if scaled != "":
                        w *= self.factor
                    to = b * step if transposed else a * step
                    of = a * n if transposed else b * n
                    for c in range(n):
                        d = w * f32(self.dense[of + c])
                        self.out[to + c] = partials(f32(self.out[to + c]) + d)

    @codelet(name=_PRODUCTS[transposed, by_columns])
    class SparseProduct(Vertex):
        meta: Input[Vector[u16]]
        nz: Input[Vector[dtype]]
        dense: Input[Vector[taken]]
        out: InOut[Vector[partials]]
        cell: u32
        columns: u32
        stride: u32
        if scaled == "number":
            factor: f32
        elif scaled == "tensor":
            factor: Input[f32]

        def compute(self):
            if clears:
                for i in range(i64(len(self.out))):
                    self.out[i] = partials(0.0)
            each_row(self, how, entry, own_cell, multiply)

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
    dtype, high, wide, area = how.dtype, how.high, how.wide, how.area

    @macro
    def sample(self, at, row, count, value, v):
        n, x = i64(self.columns), i64(self.meta[row])
        for j in range(count):
            y = i64(self.meta[row + 2 + j])
            for down in range(high):
                for across in range(wide):
                    a, b = (x * high + down) * n, (y * wide + across) * n
                    total = f32(0.0)
                    for c in range(n):
                        total += f32(self.grad[a + c]) * f32(self.acts[b + c])
                    self.out[v + j * area + down * wide + across] += total

    @codelet
    class SparseGradW(Vertex):
        meta: Input[Vector[u16]]
        grad: Input[Vector[dtype]]
        acts: Input[Vector[dtype]]
        out: InOut[Vector[f32]]
        cell: Input[Vector[u32]]
        columns: u32

        def compute(self):
            each_row(self, how, 1, given_cell, sample)

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
