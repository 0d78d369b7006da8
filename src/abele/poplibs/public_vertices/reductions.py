"""The reducing vertices: of partials that lie anywhere, of rows, and of neighbouring elements."""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from abele.arrays import Int64
from abele.codelet import ONE_PTR, SPAN, InOut, Input, Output, Vector, Vertex, codelet, macro
from abele.machine import Ipu
from abele.numerics import ElementType, bool_, f16, f32, i32, i64, u16, u32, u64
from abele.poplibs.popops.reductions import cost as reduce_cost
from abele.poplibs.popops.reductions.codelets import accumulated, combined
from abele.poplibs.popops.reductions.ops import ReduceOp, accumulator, find_reduce_op, start_of
from abele.poplibs.public_vertices.family import Family, refuse
from abele.poplibs.public_vertices.parameters import TemplateParameter, choice, flag, struct, type_of

OPERATIONS = {
    "ReduceAdd": "ADD",
    "ReduceSquareAdd": "SQUARE_ADD",
    "ReduceLogAdd": "LOG_ADD",
    "ReduceMul": "MUL",
    "ReduceMax": "MAX",
    "ReduceMin": "MIN",
    "ReduceAnd": "LOGICAL_AND",
    "ReduceOr": "LOGICAL_OR",
}
KINDS = (
    "DEFAULT",
    "SCALAR_OUTPUT_REGIONS",
    "SCALAR_OUTPUT_SINGLE_INPUT",
    "STRIDED_REDUCE",
    "ALL_REGIONS_CONTINUOUS",
)
"""PopLibs' specialisations of Reduce, in the order of the enumeration."""


@dataclass(frozen=True)
class _Reduction:
    """Operation and types of a reduction, and the update and scaling of its result.

    Attributes:
        op: The operation.
        dtype: Element type of the partials.
        out: Element type of the outputs.
        updates: True if results are combined with what the output held.
        scaled: True if they are multiplied by ``k`` first.
    """

    op: ReduceOp
    dtype: ElementType
    out: ElementType
    updates: bool
    scaled: bool

    @property
    def kind(self) -> ElementType:
        """Element type of the accumulator."""
        return accumulator(self.op, self.dtype)


def families() -> list[Family]:
    """Every vertex of this module."""
    types = (f32, f16, i32, u32, bool_, i64, u64)
    parameters = (
        struct("popops", OPERATIONS),
        type_of(*types, name="partials"),
        type_of(*types, name="output"),
        flag("isUpdate"),
    )
    kind = _specialisation()
    scaled = "; times k"
    found = []
    for prefix, more, has_scale in (("", "", False), ("Scaled", scaled, True)):
        found += [
            Family(
                f"{prefix}Reduce",
                (*parameters, kind),
                _reduce(has_scale),
                "likely",
                f"row r of out from the next numPartials[r] rows of partials, a multiple as long{more}",
            ),
            Family(
                f"{prefix}ContinuousReduce",
                parameters,
                _of_kind("ALL_REGIONS_CONTINUOUS", has_scale),
                "likely",
                f"out[i] from partials[i · numPartials …]{more}",
            ),
            Family(
                f"{prefix}StridedReduce",
                parameters,
                _of_kind("STRIDED_REDUCE", has_scale),
                "likely",
                f"out[i] from partials[i + p · partialsWidth + o · outerStride]{more}",
            ),
        ]
    found.append(
        Family(
            "ReducePartialsEqualSize",
            parameters,
            _equal_size,
            "likely",
            "out[0 … outCount · 8 bytes] from rows of (partialsSizeM1 + 1) · outCount vectors",
        )
    )
    return found


def _specialisation() -> TemplateParameter:
    known = dict(zip(KINDS, KINDS, strict=True))
    by_number = {str(n): kind for n, kind in enumerate(KINDS)}
    by_name = choice("popops::ReductionSpecialisation", known, "DEFAULT")

    def read(text: str) -> Any:
        return by_number[text.rstrip("uU")] if text.rstrip("uU") in by_number else by_name.read(text)

    return TemplateParameter("ReductionSpecialisation", read, by_name.takes, "DEFAULT", by_name.example)


def _reduction(op: str, dtype: ElementType, out: ElementType, updates: bool, scaled: bool) -> _Reduction:
    found = _Reduction(find_reduce_op(op), dtype, out, updates, scaled)
    if (found.kind.is_float, dtype == bool_) != (out.is_float, out == bool_):
        raise refuse(f"a reduction of {dtype} does not give {out}")
    if scaled and not dtype.is_float:
        raise refuse(f"a reduction of {dtype} is not scaled", "partials are float or half")
    return found


def _reduce(scaled: bool) -> Callable[..., type]:
    def make(op: str, dtype: ElementType, out: ElementType, updates: bool, kind: str) -> type:
        return _KINDS[kind](_reduction(op, dtype, out, updates, scaled))

    return make


def _of_kind(kind: str, scaled: bool) -> Callable[..., type]:
    def make(op: str, dtype: ElementType, out: ElementType, updates: bool) -> type:
        return _KINDS[kind](_reduction(op, dtype, out, updates, scaled))

    return make


@macro
def _finished(self, r, kind, total, held):
    """Accumulator in the form that is stored in place of ``held``."""
    result = total
    if r.scaled:
        result = result * self.k
    if r.updates:
        e = kind(held)
        result = combined(r.op, result, e)
    return r.out(result)


def _regions(r: _Reduction) -> type:
    """Any number of reductions, each of a number of rows of ``partials``."""
    kind, start = r.kind, start_of(r.op, r.kind)
    way = InOut if r.updates else Output

    @codelet
    class Reduce(Vertex):
        out: Vector[way[Vector[r.out, SPAN, 4]]]
        numPartials: Vector[u16]
        partials: Vector[Input[Vector[r.dtype, SPAN, 8]]]
        if r.scaled:
            k: Input[f32]

        def compute(self):
            first = i64(0)
            for j in range(len(self.out)):
                last = first + i64(self.numPartials[j])
                for i in range(len(self.out[j])):
                    total = kind(start)
                    for p in range(first, last):
                        width = len(self.out[j])
                        for n in range(len(self.partials[p]) // width):
                            total = accumulated(r.op, total, kind(self.partials[p][n * width + i]))
                    self.out[j][i] = _finished(self, r, kind, total, self.out[j][i])
                first = last

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            return _general(v.out, v.partials, r, ipu)

    return Reduce


def _general(out: Any, partials: Any, r: _Reduction, ipu: Ipu) -> Int64:
    """Slots of vertices with any number of reductions, as of the library's own; rows and partials are taken to be
    spread evenly over the reductions of a vertex."""
    width = reduce_cost.accumulators(r.op, ipu, r.dtype)
    reductions, outputs = np.maximum(out.rows, 1), np.maximum(out.total, 1)
    loops = -(-outputs // (width * reductions))
    regions = -(-partials.rows // reductions)
    return reduce_cost.general(
        reductions, loops, regions, vectors=loops * (partials.total // outputs), ipu=ipu, op=r.op, dtype=r.dtype
    )


def _single(r: _Reduction) -> type:
    """One output from one stretch of partials."""
    kind, start = r.kind, start_of(r.op, r.kind)
    way = InOut if r.updates else Output

    @codelet
    class Reduce(Vertex):
        out: way[Vector[r.out, ONE_PTR, 4]]
        numPartials: u16
        partials: Input[Vector[r.dtype, ONE_PTR, 8]]
        if r.scaled:
            k: Input[f32]

        def compute(self):
            total = kind(start)
            for i in range(i64(self.numPartials)):
                total = accumulated(r.op, total, kind(self.partials[i]))
            self.out[0] = _finished(self, r, kind, total, self.out[0])

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            number = np.asarray(v.numPartials, np.int64)
            return reduce_cost.continuous(
                np.ones_like(number), number, ipu, op=r.op, dtype=r.dtype, out=r.out, updates=r.updates
            )

    return Reduce


def _strided(r: _Reduction) -> type:
    """Outputs from rows that begin ``partialsWidth`` elements apart, in stretches ``outerStride`` apart."""
    kind, start = r.kind, start_of(r.op, r.kind)
    way = InOut if r.updates else Output
    numbers = ("numOutputsM1", "numPartialsM1", "partialsWidth", "numOuterStridesM1", "outerStride")

    @codelet
    class StridedReduce(Vertex):
        defaults: ClassVar = {"numOuterStridesM1": 0, "outerStride": 0}
        out: way[Vector[r.out, ONE_PTR, 4]]
        partials: Input[Vector[r.dtype, ONE_PTR, 8]]
        numOutputsM1: u16
        numPartialsM1: u16
        partialsWidth: u16
        numOuterStridesM1: u16
        outerStride: u16
        if r.scaled:
            k: Input[f32]

        def compute(self):
            for i in range(i64(self.numOutputsM1) + 1):
                total = kind(start)
                for o in range(i64(self.numOuterStridesM1) + 1):
                    for p in range(i64(self.numPartialsM1) + 1):
                        total = accumulated(
                            r.op,
                            total,
                            kind(self.partials[o * i64(self.outerStride) + p * i64(self.partialsWidth) + i]),
                        )
                self.out[i] = _finished(self, r, kind, total, self.out[i])

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            outputs, partials, width, outer, _ = (np.asarray(getattr(v, n), np.int64) for n in numbers)
            return reduce_cost.strided(
                (partials + 1) * (outer + 1), outputs + 1, width, ipu=ipu, op=r.op, dtype=r.dtype, out=r.out
            )

    return StridedReduce


def _continuous(r: _Reduction) -> type:
    """Each output from ``numPartials`` neighbouring elements."""
    kind, start = r.kind, start_of(r.op, r.kind)
    way = InOut if r.updates else Output

    @codelet
    class ContinuousReduce(Vertex):
        partials: Input[Vector[r.dtype, ONE_PTR, 8]]
        out: way[Vector[r.out, ONE_PTR, 4]]
        numOutputsM1: u16
        numPartials: u16
        if r.scaled:
            k: Input[f32]

        def compute(self):
            for i in range(i64(self.numOutputsM1) + 1):
                total = kind(start)
                for p in range(i64(self.numPartials)):
                    total = accumulated(r.op, total, kind(self.partials[i * i64(self.numPartials) + p]))
                self.out[i] = _finished(self, r, kind, total, self.out[i])

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            outputs, partials = np.asarray(v.numOutputsM1, np.int64) + 1, np.asarray(v.numPartials, np.int64)
            return reduce_cost.continuous(outputs, partials, ipu, op=r.op, dtype=r.dtype, out=r.out, updates=r.updates)

    return ContinuousReduce


def _equal_size(op: str, dtype: ElementType, out: ElementType, updates: bool) -> type:
    """Outputs from rows of equal length, each of which has the same number of partials for every output."""
    r = _reduction(op, dtype, out, updates, False)
    kind, start = r.kind, start_of(r.op, r.kind)
    way = InOut if r.updates else Output
    lanes = max(8 // dtype.bytes, 1)

    @codelet
    class ReducePartialsEqualSize(Vertex):
        out: way[Vector[r.out, ONE_PTR, 8]]
        outCount: u16
        partials: Vector[Input[Vector[dtype, ONE_PTR, 8]]]
        partialsSizeM1: u16

        def compute(self):
            outputs = i64(self.outCount) * lanes
            for i in range(outputs):
                total = kind(start)
                for q in range(len(self.partials)):
                    for p in range(i64(self.partialsSizeM1) + 1):
                        total = accumulated(r.op, total, kind(self.partials[q][p * outputs + i]))
                self.out[i] = _finished(self, r, kind, total, self.out[i])

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            outputs = np.asarray(v.outCount, np.int64) * lanes
            loops = -(-outputs // reduce_cost.accumulators(r.op, ipu, r.dtype))
            vectors = loops * v.partials.rows * (np.asarray(v.partialsSizeM1, np.int64) + 1)
            return reduce_cost.general(1, loops, v.partials.rows, vectors=vectors, ipu=ipu, op=r.op, dtype=r.dtype)

    return ReducePartialsEqualSize


_KINDS: dict[str, Callable[[_Reduction], type]] = {
    "DEFAULT": _regions,
    "SCALAR_OUTPUT_REGIONS": _regions,
    "SCALAR_OUTPUT_SINGLE_INPUT": _single,
    "STRIDED_REDUCE": _strided,
    "ALL_REGIONS_CONTINUOUS": _continuous,
}
