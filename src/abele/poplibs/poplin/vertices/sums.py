"""The vertices after the products: sums of partials, their conversion, and their addition to what is there."""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any

from abele.codelet import InOut, Input, Output, SupervisorVertex, Vector, codelet
from abele.numerics import ElementType, f32
from abele.poplibs.poplin.vertices import cost, records


def _row_sum(first, others, rows, size, i):
    """Sum of element ``i`` of ``first`` and of so many rows of ``others``, each ``size`` long."""
    total = f32(first[i])
    for d in range(rows):
        total += f32(others[d * size + i])
    return total


@cache
def reduce_add(partials: ElementType, output: ElementType) -> Any:
    """The vertex that sums a partial of its own and rows of others."""

    @codelet
    class ReduceAdd(SupervisorVertex):
        """Sums ``first`` and the rows of ``x``, each as long as ``out``."""

        first: Input[Vector[partials]]
        x: Input[Vector[partials]]
        out: Output[Vector[output]]

        def compute(self):
            size = len(self.out)
            rows = len(self.x) // size
            for i in range(size):
                self.out[i] = output(_row_sum(self.first, self.x, rows, size, i))

        @staticmethod
        def cycles(v, ipu):
            return cost.reduce_add(v.out, v.x // v.out + 1, partials, output)

        @staticmethod
        def state_bytes(v, ipu):
            return records.reduce_add_rows(v.out)

    return ReduceAdd


@cache
def reduce_add_list(partials: ElementType, output: ElementType) -> Any:
    """Vertex that sums partials at separate places."""

    @codelet
    class ReduceAddList(SupervisorVertex):
        """Sums the rows of ``x``, each as long as ``out``."""

        x: Vector[Input[Vector[partials]]]
        out: Output[Vector[output]]

        def compute(self):
            for i in range(len(self.out)):
                total = f32(0.0)
                for d in range(len(self.x)):
                    total += f32(self.x[d][i])
                self.out[i] = output(total)

        @staticmethod
        def cycles(v, ipu):
            return cost.reduce_add_list(v.out, v.x.rows, partials, output)

        @staticmethod
        def state_bytes(v, ipu):
            return records.reduce_add(v.x.rows)

    return ReduceAddList


@cache
def reduce_onto(partials: ElementType, product: ElementType, total: ElementType, *, scaled: bool) -> Any:
    """The vertex that sums partials and adds the sum, of type ``product``, to what is there.

    PopLibs' reductions do that with ``update`` and ``scale`` (``popops::ReduceParams``). What is there is read as one
    partial more.
    """

    def cycles_of(size, others):
        return cost.reduce_add(size, others + 2, partials, total)

    if not scaled:

        @codelet
        class ReduceOnto(SupervisorVertex):
            """Adds ``first`` and the rows of ``x``, each as long as ``out``, to ``out``."""

            first: Input[Vector[partials]]
            x: Input[Vector[partials]]
            out: InOut[Vector[total]]

            def compute(self):
                size = len(self.out)
                rows = len(self.x) // size
                for i in range(size):
                    added = _row_sum(self.first, self.x, rows, size, i)
                    self.out[i] = total(f32(self.out[i]) + f32(product(added)))

            @staticmethod
            def cycles(v, ipu):
                return cycles_of(v.out, v.x // v.out)

            @staticmethod
            def state_bytes(v, ipu):
                return records.reduce_add_rows(v.out)

        return ReduceOnto

    @codelet
    class ReduceScaledOnto(SupervisorVertex):
        """Adds ``first`` and the rows of ``x``, each as long as ``out``, times ``factor`` to ``out``."""

        first: Input[Vector[partials]]
        x: Input[Vector[partials]]
        factor: f32
        out: InOut[Vector[total]]

        def compute(self):
            size = len(self.out)
            rows = len(self.x) // size
            for i in range(size):
                added = _row_sum(self.first, self.x, rows, size, i)
                # Rounded before it is added, as a scaled addition does it.
                step = self.factor * f32(product(added))
                self.out[i] = total(f32(self.out[i]) + step)

        @staticmethod
        def cycles(v, ipu):
            return cycles_of(v.out, v.x // v.out)

        @staticmethod
        def state_bytes(v, ipu):
            return records.reduce_add_rows(v.out) + 4

    return ReduceScaledOnto


@cache
def cast(source: ElementType, target: ElementType, *, interleaved: bool) -> Any:
    """The vertex that converts partials to the type of the output; ``interleaved`` says in which memory they lie."""
    cycles_of = cost.cast_interleaved if interleaved else cost.cast

    @codelet
    class CastPartials(SupervisorVertex):
        """Converts every element."""

        x: Input[Vector[source]]
        out: Output[Vector[target]]

        def compute(self):
            for i in range(len(self.out)):
                self.out[i] = target(self.x[i])

        @staticmethod
        def cycles(v, ipu):
            return cycles_of(v.out, source, target)

    return CastPartials
