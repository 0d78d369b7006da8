"""The reducing vertices: of partials that lie anywhere, of rows, and of neighbouring elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.machine import Ipu
from abele.numerics import ElementType, bool_, f16, f32, i32, i64, u16, u32, u64
from abele.poplibs.popops.expressions.generated import type_name
from abele.poplibs.popops.reductions import cost as reduce_cost
from abele.poplibs.popops.reductions.ops import ReduceOp, accumulator, combining, find_reduce_op, identity
from abele.poplibs.public_vertices.family import Family, Instance, refuse
from abele.poplibs.public_vertices.parameters import TemplateParameter, choice, flag, struct, type_of
from abele.poplibs.public_vertices.text import indented, loop, one, rows, state, vector, wide

Int64 = npt.NDArray[np.int64]

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
    """What is reduced to what, and what is done to a result.

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
        """What is accumulated in."""
        return accumulator(self.op, self.dtype)

    @property
    def way(self) -> str:
        """Direction of the output."""
        return "InOut" if self.updates else "Output"

    @property
    def scale(self) -> list[str]:
        """The field of the scale."""
        return [one("k", f32)] if self.scaled else []

    @property
    def start(self) -> str:
        """The statement that begins a reduction."""
        return f"total = {type_name(self.kind)}({identity(self.op, self.kind)})"

    def combine(self, element: str) -> list[str]:
        """Statements that combine an element of the partials."""
        square = ["e = e * e"] if self.op.squares else []
        return [f"e = {wide(element, self.dtype, self.kind)}", *square, *combining(self.op, "total", "e")]

    def store(self, place: str) -> list[str]:
        """Statements that end a reduction."""
        lines = ["total = total * self.k"] if self.scaled else []
        if self.updates:
            lines += [f"e = {wide(place, self.out, self.kind)}", *combining(self.op, "total", "e")]
        value = "total != 0" if self.out == bool_ else wide("total", self.kind, self.out)
        return [*lines, f"{place} = {value}"]


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


def _reduce(scaled: bool) -> Callable[..., Instance]:
    def make(op: str, dtype: ElementType, out: ElementType, updates: bool, kind: str) -> Instance:
        return _KINDS[kind](_reduction(op, dtype, out, updates, scaled))

    return make


def _of_kind(kind: str, scaled: bool) -> Callable[..., Instance]:
    def make(op: str, dtype: ElementType, out: ElementType, updates: bool) -> Instance:
        return _KINDS[kind](_reduction(op, dtype, out, updates, scaled))

    return make


def _regions(r: _Reduction) -> Instance:
    """Any number of reductions, each of a number of rows of ``partials``."""
    fields = [rows("out", r.out, r.way, align=4), "numPartials: Vector[u16]", rows("partials", r.dtype), *r.scale]
    inner = loop("len(self.partials[p]) // width", r.combine("self.partials[p][n * width + i]"), "n")
    body = [
        "first = i64(0)",
        *loop(
            "len(self.out)",
            [
                "last = first + i64(self.numPartials[j])",
                *loop(
                    "len(self.out[j])",
                    [
                        r.start,
                        "for p in range(first, last):",
                        "    width = len(self.out[j])",
                        *indented(inner),
                        *r.store("self.out[j][i]"),
                    ],
                ),
                "first = last",
            ],
            "j",
        ),
    ]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        return _general(v.out, v.partials, r, ipu)

    return Instance("Vertex", tuple(fields), tuple(body), cycles)


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


def _single(r: _Reduction) -> Instance:
    """One output from one stretch of partials."""
    partials = vector("partials", r.dtype, "Input", "ONE_PTR")
    fields = [vector("out", r.out, r.way, "ONE_PTR", 4), state("numPartials", u16), partials]
    body = [r.start, *loop("i64(self.numPartials)", r.combine("self.partials[i]")), *r.store("self.out[0]")]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        number = np.asarray(v.numPartials, np.int64)
        return reduce_cost.continuous(
            np.ones_like(number), number, ipu, op=r.op, dtype=r.dtype, out=r.out, updates=r.updates
        )

    return Instance("Vertex", (*fields, *r.scale), tuple(body), cycles)


def _strided(r: _Reduction) -> Instance:
    """Outputs from rows that begin ``partialsWidth`` elements apart, in stretches ``outerStride`` apart."""
    fields = [vector("out", r.out, r.way, "ONE_PTR", 4), vector("partials", r.dtype, "Input", "ONE_PTR")]
    numbers = ("numOutputsM1", "numPartialsM1", "partialsWidth", "numOuterStridesM1", "outerStride")
    fields += [state(n, u16) for n in numbers]
    at = "o * i64(self.outerStride) + p * i64(self.partialsWidth) + i"
    inner = loop("i64(self.numPartialsM1) + 1", r.combine(f"self.partials[{at}]"), "p")
    inner = loop("i64(self.numOuterStridesM1) + 1", inner, "o")
    body = loop("i64(self.numOutputsM1) + 1", [r.start, *inner, *r.store("self.out[i]")])

    def cycles(v: Any, ipu: Ipu) -> Int64:
        outputs, partials, width, outer, _ = (np.asarray(getattr(v, n), np.int64) for n in numbers)
        return reduce_cost.strided(
            (partials + 1) * (outer + 1), outputs + 1, width, ipu=ipu, op=r.op, dtype=r.dtype, out=r.out
        )

    defaults = {"numOuterStridesM1": 0, "outerStride": 0}
    return Instance("Vertex", (*fields, *r.scale), tuple(body), cycles, defaults=defaults)


def _continuous(r: _Reduction) -> Instance:
    """Each output from ``numPartials`` neighbouring elements."""
    fields = [vector("partials", r.dtype, "Input", "ONE_PTR"), vector("out", r.out, r.way, "ONE_PTR", 4)]
    fields += [state("numOutputsM1", u16), state("numPartials", u16)]
    number = "i64(self.numPartials)"
    inner = loop(number, r.combine(f"self.partials[i * {number} + p]"), "p")
    body = loop("i64(self.numOutputsM1) + 1", [r.start, *inner, *r.store("self.out[i]")])

    def cycles(v: Any, ipu: Ipu) -> Int64:
        outputs, partials = np.asarray(v.numOutputsM1, np.int64) + 1, np.asarray(v.numPartials, np.int64)
        return reduce_cost.continuous(outputs, partials, ipu, op=r.op, dtype=r.dtype, out=r.out, updates=r.updates)

    return Instance("Vertex", (*fields, *r.scale), tuple(body), cycles)


def _equal_size(op: str, dtype: ElementType, out: ElementType, updates: bool) -> Instance:
    """Outputs from rows of equal length, each of which has the same number of partials for every output."""
    r = _reduction(op, dtype, out, updates, False)
    lanes = max(8 // dtype.bytes, 1)
    fields = [vector("out", out, r.way, "ONE_PTR"), state("outCount", u16), rows("partials", dtype, inner="ONE_PTR")]
    fields.append(state("partialsSizeM1", u16))
    body = [
        f"outputs = i64(self.outCount) * {lanes}",
        *loop(
            "outputs",
            [
                r.start,
                *loop(
                    "len(self.partials)",
                    loop("i64(self.partialsSizeM1) + 1", r.combine("self.partials[q][p * outputs + i]"), "p"),
                    "q",
                ),
                *r.store("self.out[i]"),
            ],
        ),
    ]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        outputs = np.asarray(v.outCount, np.int64) * lanes
        loops = -(-outputs // reduce_cost.accumulators(r.op, ipu, r.dtype))
        vectors = loops * v.partials.rows * (np.asarray(v.partialsSizeM1, np.int64) + 1)
        return reduce_cost.general(1, loops, v.partials.rows, vectors=vectors, ipu=ipu, op=r.op, dtype=r.dtype)

    return Instance("Vertex", tuple(fields), tuple(body), cycles)


_KINDS: dict[str, Callable[[_Reduction], Instance]] = {
    "DEFAULT": _regions,
    "SCALAR_OUTPUT_REGIONS": _regions,
    "SCALAR_OUTPUT_SINGLE_INPUT": _single,
    "STRIDED_REDUCE": _strided,
    "ALL_REGIONS_CONTINUOUS": _continuous,
}
