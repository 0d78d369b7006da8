"""The vertices of static sparse products."""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Literal

from abele.codelet import Input, MultiVertex, Output, SupervisorVertex, Vector, Vertex, codelet
from abele.numerics import ElementType, f32, i64, u16, u32
from abele.poplibs.popsparse.static_ import costs


@cache
def partials_codelet(
    held: ElementType, taken: ElementType, result: ElementType, side: int, scaled: Literal["", "number", "tensor"] = ""
) -> type:
    """Product of a tile's blocks, of type ``held``, with the dense rows that it took, times ``factor`` if ``scaled``.

    ``counts`` has the blocks of each of its block rows, ``places`` the dense block row of each block. Its cycles depend
    on how its rows fall to workers, so they are given with the vertices.
    """

    @codelet(name="SparseDensePartials" if side == 1 else "BlockSparseDensePartials")
    class SparseDensePartials(SupervisorVertex):
        values: Input[Vector[held]]
        dense: Input[Vector[taken]]
        out: Output[Vector[result]]
        counts: Vector[u16]
        places: Vector[u16]
        width: u32
        if scaled == "number":
            factor: f32
        elif scaled == "tensor":
            factor: Input[f32]

        def compute(self):
            width = i64(self.width)
            first = i64(0)
            for r in range(len(self.counts)):
                count = i64(self.counts[r])
                for y in range(side):
                    for j in range(width):
                        total = f32(0.0)
                        for e in range(count):
                            value = ((first + e) * side + y) * side
                            row = i64(self.places[first + e]) * side
                            for x in range(side):
                                total += f32(self.values[value + x]) * f32(self.dense[(row + x) * width + j])
                        if scaled != "":
                            total *= self.factor
                        self.out[(r * side + y) * width + j] = result(total)
                first += count

        @staticmethod
        def cycles(v, ipu):
            raise AssertionError("cycles are given with the vertices")

    return SparseDensePartials


@cache
def sum_codelet(dtype: ElementType) -> type:
    """Sum of a stretch of the result over the tiles with partials of it, by one worker."""

    @codelet
    class SparseReduce(Vertex):
        x: Vector[Input[Vector[dtype]]]
        out: Output[Vector[dtype]]

        def compute(self):
            for i in range(len(self.out)):
                total = f32(0.0)
                for d in range(len(self.x)):
                    total += f32(self.x[d][i])
                self.out[i] = dtype(total)

        @staticmethod
        def cycles(v, ipu):
            return costs.reduce_slots(dtype, v.out, v.x.rows)

    return SparseReduce


@cache
def zero_codelet(dtype: ElementType) -> type:
    """Vertex that sets rows without values to zero."""

    @codelet
    class SparseZero(MultiVertex):
        out: Output[Vector[dtype]]

        def compute(self, worker_id):
            for i in range(worker_id, len(self.out), self.num_workers):
                self.out[i] = dtype(0)

        @staticmethod
        def cycles(v, ipu):
            return costs.zero_cycles(v.out * dtype.bytes)

    return SparseZero


@cache
def order_codelet(dtype: ElementType) -> type:
    """Vertex that puts arrived pieces of the result in order."""

    @codelet
    class SparseOrder(MultiVertex):
        x: Input[Vector[dtype]]
        out: Output[Vector[dtype]]

        def compute(self, worker_id):
            for i in range(worker_id, len(self.out), self.num_workers):
                self.out[i] = self.x[i]

        @staticmethod
        def cycles(v, ipu):
            return costs.order_cycles(v.out * dtype.bytes)

    return SparseOrder
