"""The vertices after the products: sums of partials, their conversion, and their addition to what is there."""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any

from abele.codelet import InOut, Input, Output, SupervisorVertex, Vector, codelet
from abele.numerics import ElementType, f32, i32
from abele.poplibs.poplin.vertices import cost, records


def _row_sum(first, others, rows, size, i):
    """Sum of element ``i`` of ``first`` and of so many rows of ``others``, each ``size`` long."""
    total = f32(first[i])
    for d in range(rows):
        total += f32(others[d * size + i])
    return total


# The matrix units write whole groups of out-channels. Where there are fewer, partials have channels that belong to no
# output: they are sent and summed with the others, and left out by the last vertex, which is "padded". Channels lie
# innermost: of every ``pitch`` elements the first ``channels`` are of the output.


def _place(i, channels, pitch):
    """Place of element ``i`` of the output among padded channels."""
    return i // channels * pitch + i % channels


@cache
def reduce_add(partials: ElementType, output: ElementType, *, padded: bool = False) -> Any:
    """The vertex that sums a partial of its own and rows of others."""

    @codelet
    class ReduceAdd(SupervisorVertex):
        """Sums ``first`` and the rows of ``x``, each as long as it."""

        least_code_bytes = records.REDUCE_ADD_CODE_BYTES

        first: Input[Vector[partials]]
        x: Input[Vector[partials]]
        out: Output[Vector[output]]
        if padded:
            channels: i32
            pitch: i32

        def compute(self):
            size = len(self.first)
            rows = len(self.x) // size
            for i in range(len(self.out)):
                at = _place(i, self.channels, self.pitch) if padded else i
                self.out[i] = output(_row_sum(self.first, self.x, rows, size, at))

        @staticmethod
        def cycles(v, ipu):
            return cost.reduce_add(v.first, v.x // v.first + 1, partials, output)

        @staticmethod
        def state_bytes(v, ipu):
            return records.reduce_add_rows(v.first)

    return ReduceAdd


@cache
def reduce_add_list(partials: ElementType, output: ElementType, *, padded: bool = False) -> Any:
    """Vertex that sums partials at separate places."""

    @codelet
    class ReduceAddList(SupervisorVertex):
        """Sums the rows of ``x``."""

        least_code_bytes = records.REDUCE_ADD_CODE_BYTES

        x: Vector[Input[Vector[partials]]]
        out: Output[Vector[output]]
        if padded:
            channels: i32
            pitch: i32

        def compute(self):
            for i in range(len(self.out)):
                at = _place(i, self.channels, self.pitch) if padded else i
                total = f32(0.0)
                for d in range(len(self.x)):
                    total += f32(self.x[d][at])
                self.out[i] = output(total)

        @staticmethod
        def cycles(v, ipu):
            size = v.out // v.channels * v.pitch if padded else v.out
            return cost.reduce_add_list(size, v.x.rows, partials, output)

        @staticmethod
        def state_bytes(v, ipu):
            return records.reduce_add(v.x.rows)

    return ReduceAddList


@cache
def reduce_onto(
    partials: ElementType, product: ElementType, total: ElementType, *, scaled: bool, padded: bool = False
) -> Any:
    """The vertex that sums partials and adds the sum, of type ``product``, to what is there.

    PopLibs' reductions do that with ``update`` and ``scale`` (``popops::ReduceParams``). What is there is read as one
    partial more.
    """

    def cycles_of(size, others):
        return cost.reduce_add(size, others + 2, partials, total)

    if not scaled:

        @codelet
        class ReduceOnto(SupervisorVertex):
            """Adds ``first`` and the rows of ``x``, each as long as it, to ``out``."""

            least_code_bytes = records.REDUCE_ADD_CODE_BYTES

            first: Input[Vector[partials]]
            x: Input[Vector[partials]]
            out: InOut[Vector[total]]
            if padded:
                channels: i32
                pitch: i32

            def compute(self):
                size = len(self.first)
                rows = len(self.x) // size
                for i in range(len(self.out)):
                    at = _place(i, self.channels, self.pitch) if padded else i
                    added = _row_sum(self.first, self.x, rows, size, at)
                    self.out[i] = total(f32(self.out[i]) + f32(product(added)))

            @staticmethod
            def cycles(v, ipu):
                return cycles_of(v.first, v.x // v.first)

            @staticmethod
            def state_bytes(v, ipu):
                return records.reduce_add_rows(v.first)

        return ReduceOnto

    @codelet
    class ReduceScaledOnto(SupervisorVertex):
        """Adds ``first`` and the rows of ``x``, each as long as it, times ``factor`` to ``out``."""

        least_code_bytes = records.REDUCE_ADD_CODE_BYTES

        first: Input[Vector[partials]]
        x: Input[Vector[partials]]
        factor: f32
        out: InOut[Vector[total]]
        if padded:
            channels: i32
            pitch: i32

        def compute(self):
            size = len(self.first)
            rows = len(self.x) // size
            for i in range(len(self.out)):
                at = _place(i, self.channels, self.pitch) if padded else i
                added = _row_sum(self.first, self.x, rows, size, at)
                # Rounded before it is added, as a scaled addition does it.
                step = self.factor * f32(product(added))
                self.out[i] = total(f32(self.out[i]) + step)

        @staticmethod
        def cycles(v, ipu):
            return cycles_of(v.first, v.x // v.first)

        @staticmethod
        def state_bytes(v, ipu):
            return records.reduce_add_rows(v.first) + 4

    return ReduceScaledOnto


@cache
def cast(source: ElementType, target: ElementType, *, interleaved: bool, padded: bool = False) -> Any:
    """The vertex that converts partials to the type of the output; ``interleaved`` says in which memory they lie."""
    cycles_of = cost.cast_interleaved if interleaved else cost.cast

    @codelet
    class CastPartials(SupervisorVertex):
        """Converts every element."""

        least_code_bytes = records.CAST_CODE_BYTES

        x: Input[Vector[source]]
        out: Output[Vector[target]]
        if padded:
            channels: i32
            pitch: i32

        def compute(self):
            for i in range(len(self.out)):
                self.out[i] = target(self.x[_place(i, self.channels, self.pitch) if padded else i])

        @staticmethod
        def cycles(v, ipu):
            return cycles_of(v.x, source, target)

    return CastPartials
