"""Unary and binary operations on whole vectors, and on vectors with single elements or shorter vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from abele.arrays import Int64
from abele.errors import TypeMismatchError
from abele.machine import Ipu
from abele.numerics import ElementType, bool_, f16, f32, i8, i16, i32, i64, u8, u16, u32, u64
from abele.poplibs.popops.elementwise.cost import (
    SUPERVISOR_CYCLES,
    CostForm,
    element_cycles,
    vector_slots,
    vector_type,
)
from abele.poplibs.popops.expr import Op, PlaceHolder
from abele.poplibs.popops.expressions.element_codelets import element_statements
from abele.poplibs.popops.expressions.fused import Fused, fuse
from abele.poplibs.popops.expressions.names import BinaryOpType, UnaryOpType
from abele.poplibs.public_vertices.family import Family, Instance, refuse
from abele.poplibs.public_vertices.parameters import choice, flag, type_of
from abele.poplibs.public_vertices.text import (
    indented,
    loop,
    one,
    place,
    row_loop,
    rows,
    shared_loop,
    state,
    vector,
)

Formula = Callable[[Any, Ipu], Int64]

UNARY = {member.name: member.value for member in UnaryOpType}
BINARY = {member.name: member.value for member in BinaryOpType}
"""Our names of operations by those of PopLibs' enumerations."""

UNARY_TYPE = choice("popops::expr::UnaryOpType", UNARY)
BINARY_TYPE = choice("popops::expr::BinaryOpType", BINARY)
ELEMENT = type_of(f32, f16, i32, u32, bool_, i16, u16, i8, u8, i64, u64)
_MEANT = (f32, f16)

BINARY_2D_START = (5, 20)
UNARY_2D_START = 20
"""Worker slots before the first row of the vertices on rows; of a binary one that overwrites, 20.
Source: machine reference §4.8 (BinaryOp2D, UnaryOp2D)."""
SCALAR_2D_START, SCALAR_2D_ROW = 20, 28
"""Of BroadcastScalar2D, and cycles of each row. Source: machine reference §4.8 (BroadcastScalar1D)."""
OUTER_START, OUTER_ROW, OUTER_ROW_MISALIGNED = 15, 7, 25
"""Of BroadcastVectorOuter, each row that is aligned, and each other one. Source: machine reference §4.8."""
INNER_START, INNER_SUPERVISOR = {"f16": 24, "f32": 17}, 13
INNER_LOOP, INNER_BLOCK = 7, 2
INNER_PIPELINED, INNER_TAIL = 6 + 3, 3 + 1
"""Of BroadcastVectorInner: worker slots before the loop, supervisor cycles, a vector of the inner operand and each
block that it meets; where blocks are whole vectors of f16, and the end of that loop.
Source: machine reference §4.8."""


def families() -> list[Family]:
    """Every vertex of this module."""
    return [*_plain(), *_scalars(), *_vectors()]


# --- on whole vectors ------------------------------------------------------------------------------------------------


def _plain() -> list[Family]:
    found: list[Family] = []
    for in_place in (False, True):
        end = "InPlace" if in_place else ""
        said = ", in place" if in_place else ""
        found += Family(
            f"UnaryOp1D{end}", (UNARY_TYPE, ELEMENT), _unary(in_place), "sure", f"op of every element{said}"
        ).called(f"UnaryOp1D{end}Supervisor")
        found.append(
            Family(
                f"UnaryOp2D{end}", (UNARY_TYPE, ELEMENT), _unary(in_place, True), "sure", f"op of every element{said}"
            )
        )
        found += Family(
            f"BinaryOp1D{end}", (BINARY_TYPE, ELEMENT), _binary(in_place), "sure", f"in1 op in2{said}"
        ).called(f"BinaryOp1D{end}Supervisor")
        found.append(
            Family(f"BinaryOp2D{end}", (BINARY_TYPE, ELEMENT), _binary(in_place, True), "sure", f"in1 op in2{said}")
        )
    return found


def result(op: str, dtype: ElementType, num: int, in_place: bool) -> Fused:
    """Operation ``op`` of ``num`` elements of ``dtype``, typed.

    Raises:
        TypeMismatchError: The operation does not take the type, or its result does not fit the operand it overwrites.
    """
    try:
        fused = fuse([Op(op, *(PlaceHolder(n + 1) for n in range(num)))], (dtype,) * num, [None])
    except TypeMismatchError as error:
        raise refuse(f"{op} does not take {dtype.poplar_name}") from error
    if in_place and fused.out_types[0] != dtype:
        given = fused.out_types[0].poplar_name
        raise refuse(f"{op} of {dtype.poplar_name} gives {given}, which does not overwrite its operand")
    return fused


def _unary(in_place: bool, by_rows: bool = False) -> Callable[..., Instance]:
    def make(op: str, dtype: ElementType) -> Instance:
        fused = result(op, dtype, 1, in_place)
        names = ["inOut"] if in_place else ["in"]
        return _vertex(fused, names, "inOut" if in_place else "out", by_rows)

    return make


def _binary(in_place: bool, by_rows: bool = False) -> Callable[..., Instance]:
    def make(op: str, dtype: ElementType) -> Instance:
        fused = result(op, dtype, 2, in_place)
        return _vertex(fused, ["in1Out" if in_place else "in1", "in2"], "in1Out" if in_place else "out", by_rows)

    return make


def _vertex(fused: Fused, operands: Sequence[str], out: str, by_rows: bool) -> Instance:
    """A vertex that reads vectors called ``operands`` and writes the one called ``out``."""
    in_place = out in operands
    declare = rows if by_rows else vector
    at = "[r][i]" if by_rows else "[i]"
    attributes = [f"{n}_" if n == "in" else n for n in operands]
    fields = [
        declare(a, t, "InOut", "SPAN") if a == out else declare(a, t, "Input", "ONE_PTR")
        for a, t in zip(attributes, fused.types, strict=True)
    ]
    if not in_place:
        fields.append(declare(out, fused.out_types[0], "Output", "SPAN"))
    places = [place(f"self.{a}{at}", t) for a, t in zip(attributes, fused.types, strict=True)]
    lines = element_statements(fused, places, [place(f"self.{out}{at}", fused.out_types[0])])
    form = CostForm(streams=len(operands) + 1, scalars=0, in_place=in_place, rows=False)
    if by_rows:
        start = UNARY_2D_START if len(operands) == 1 else BINARY_2D_START[in_place]
        return Instance("Vertex", tuple(fields), tuple(row_loop(out, lines)), rows_cycles(fused, form, out, start))
    return Instance("MultiVertex", tuple(fields), tuple(_shared(fused, out, lines)), flat_cycles(fused, form, out))


def _shared(fused: Fused, out: str, lines: Sequence[str]) -> list[str]:
    """A loop over the vector ``out`` that the workers share in pieces of 8 bytes."""
    return shared_loop(f"len(self.{out})", lines, 4 if vector_type(fused) == f16 else 2)


def flat_cycles(fused: Fused, form: CostForm, out: str) -> Formula:
    """Tile cycles of a vertex on one vector, as of the library's own."""
    return lambda v, ipu: element_cycles(fused, form, getattr(v, out), 0, ipu)


def rows_cycles(fused: Fused, form: CostForm, field: str, start: int, each: int = 0) -> Formula:
    """Slots of a vertex on rows: ``start``, ``each`` per row, and those of the vectors of each row."""

    def cycles(v: Any, ipu: Ipu) -> Int64:
        found, vector_ = getattr(v, field), ipu.vector_width(vector_type(fused))
        slots = vector_slots(fused, form, vector_)
        return start + sum_rows(each + np.ceil(-(-found.lengths // vector_) * slots), found.row_begin)

    return cycles


def sum_rows(values: Any, row_begin: Int64) -> Int64:
    """Sums of values of rows, vertex by vertex."""
    # Differences of running sums: vertices may have no row, which `np.add.reduceat` would get wrong.
    sums = np.concatenate([[0], np.cumsum(values)])
    return np.asarray(sums[row_begin[1:]] - sums[row_begin[:-1]], np.int64)


# --- with a single element -------------------------------------------------------------------------------------------

Data = Literal["vector", "rows", "rows and scalars"]


def _scalars() -> list[Family]:
    found: list[Family] = []
    for in_place in (False, True):
        end, said = ("InPlace", ", in place") if in_place else ("", "")
        both = (BINARY_TYPE, ELEMENT)
        found += Family(
            f"BroadcastScalar1D{end}", both, _scalar("vector", in_place), "sure", f"data op the scalar B{said}"
        ).called(f"BroadcastScalar1D{end}Supervisor")
        found.append(
            Family(
                f"BroadcastScalar2DData{end}", both, _scalar("rows", in_place), "sure", f"data op the scalar B{said}"
            )
        )
        found.append(
            Family(
                f"BroadcastScalar2D{end}",
                both,
                _scalar("rows and scalars", in_place),
                "sure",
                f"row r of data op B[r]{said}",
            )
        )
    types = (BINARY_TYPE, type_of(*_MEANT), type_of(*_MEANT, name="output"))
    found += Family(
        "BroadcastScalar2Types1D", types, _two_types("vector"), "likely", "data op B, rounded to the output's type"
    ).called("BroadcastScalar2Types1DSupervisor")
    found.append(Family("BroadcastScalar2Types2DData", types, _two_types("rows"), "likely", "data op B, rounded"))
    return found


def _scalar(data: Data, in_place: bool) -> Callable[..., Instance]:
    def make(op: str, dtype: ElementType) -> Instance:
        return _with_scalar(result(op, dtype, 2, in_place), data, in_place)

    return make


def _two_types(data: Data) -> Callable[..., Instance]:
    def make(op: str, dtype: ElementType, out: ElementType) -> Instance:
        fused = fuse([Op(op, PlaceHolder(1), PlaceHolder(2))], (dtype, dtype), [out])
        return _with_scalar(fused, data, False)

    return make


def _with_scalar(fused: Fused, data: Data, in_place: bool) -> Instance:
    dtype, out = fused.types[0], fused.out_types[0]
    by_rows = data != "vector"
    at = "[r][i]" if by_rows else "[i]"
    declare = rows if by_rows else vector
    fields = [declare("data", dtype, "InOut" if in_place else "Input", "SPAN")]
    if not in_place:
        fields.append(declare("out", out, "Output", "ONE_PTR"))
    single = data != "rows and scalars"
    fields.append(one("B", dtype) if single else f"B: Vector[{one('', dtype).removeprefix(': ')}]")
    places = [place(f"self.data{at}", dtype), place("self.B" if single else "self.B[r]", dtype)]
    lines = element_statements(fused, places, [place(f"self.{'data' if in_place else 'out'}{at}", out)])
    form = CostForm(streams=2, scalars=1, in_place=in_place, rows=False)
    if by_rows:
        formula = rows_cycles(fused, form, "data", SCALAR_2D_START, SCALAR_2D_ROW)
        return Instance("Vertex", tuple(fields), tuple(row_loop("data", lines)), formula)
    body = _shared(fused, "data", lines)
    return Instance("MultiVertex", tuple(fields), tuple(body), flat_cycles(fused, form, "data"))


# --- with a vector that is repeated ----------------------------------------------------------------------------------


def _vectors() -> list[Family]:
    found: list[Family] = []
    add_or_scale = choice("popops::expr::BinaryOpType", {n: BINARY[n] for n in ("ADD", "SUBTRACT", "MULTIPLY")})
    for in_place in (False, True):
        end, said = ("InPlace", ", in place") if in_place else ("", "")
        for by_row in (True, False):
            which = "Row" if by_row else "Column"
            parameters = (BINARY_TYPE, type_of(*_MEANT), flag("allowMisaligned", True))
            how = "each worker takes whole rows" if by_row else "the workers share each row"
            made = Family(
                f"BroadcastVectorOuterBy{which}1D{end}",
                parameters,
                _outer(by_row, in_place),
                "sure",
                f"row r of data [rows, columns] op B[r mod its size]{said}; {how}",
            )
            found += made.called(f"BroadcastVectorOuterBy{which}{end}Supervisor")
        found += Family(
            f"BroadcastVectorInner1D{end}",
            (add_or_scale, type_of(*_MEANT)),
            _inner(in_place),
            "likely",
            f"element i of data op B[i mod its size]{said}",
        ).called(f"BroadcastVectorInner{end}Supervisor")
        found.append(
            Family(
                f"BroadcastVectorInner2D{end}",
                (add_or_scale, type_of(*_MEANT)),
                _inner_rows(in_place),
                "likely",
                f"row r of data op B[r], repeated{said}",
            )
        )
    return found


def _outer(by_row: bool, in_place: bool) -> Callable[..., Instance]:
    def make(op: str, dtype: ElementType, misaligned: bool) -> Instance:
        fused = result(op, dtype, 2, in_place)
        fields = [vector("data", dtype, "InOut" if in_place else "Input", "ONE_PTR")]
        if not in_place:
            fields.append(vector("out", fused.out_types[0], "Output", "ONE_PTR"))
        fields += [vector("B", dtype, align=0), state("columns", u16), state("rows", u16)]
        out = place(f"self.{'data' if in_place else 'out'}[r * columns + i]", fused.out_types[0])
        places = [place("self.data[r * columns + i]", dtype), place("self.B[r % len(self.B)]", dtype)]
        lines = element_statements(fused, places, [out])
        if by_row:
            body = [
                "columns = i64(self.columns)",
                "for r in range(worker_id, i64(self.rows), 6):",
                *indented(loop("columns", lines)),
            ]
        else:
            body = ["columns = i64(self.columns)", *loop("i64(self.rows)", shared_loop("columns", lines, 2), "r")]
        return Instance("MultiVertex", tuple(fields), tuple(body), _outer_cycles(fused, in_place, by_row, misaligned))

    return make


def _outer_cycles(fused: Fused, in_place: bool, by_row: bool, misaligned: bool) -> Formula:
    form = CostForm(streams=2, scalars=0, in_place=in_place, rows=True)

    def cycles(v: Any, ipu: Ipu) -> Int64:
        width = ipu.vector_width(vector_type(fused))
        columns, number = np.asarray(v.columns, np.int64), np.asarray(v.rows, np.int64)
        slots = vector_slots(fused, form, width)
        if by_row:
            number, share = -(-number // ipu.num_workers), columns
        else:
            share = -(-columns // ipu.num_workers)
        aligned = OUTER_ROW if not misaligned else np.where(columns % width == 0, OUTER_ROW, OUTER_ROW_MISALIGNED)
        each = aligned + np.ceil(-(-share // width) * slots)
        return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * (OUTER_START + number * each), np.int64)

    return cycles


def _inner(in_place: bool) -> Callable[..., Instance]:
    def make(op: str, dtype: ElementType) -> Instance:
        fused = result(op, dtype, 2, in_place)
        fields = [vector("B", dtype), vector("data", dtype, "InOut" if in_place else "Input", "ONE_PTR")]
        if not in_place:
            fields.append(vector("out", dtype, "Output", "ONE_PTR"))
        fields.append(state("dataBlockCountPacked", u16))
        at = "b * width + i"
        lines = element_statements(
            fused,
            [place(f"self.data[{at}]", dtype), place("self.B[i]", dtype)],
            [place(f"self.{'data' if in_place else 'out'}[{at}]", dtype)],
        )
        body = [
            "width = len(self.B)",
            "blocks = (i64(self.dataBlockCountPacked) >> 3) * 6 + (i64(self.dataBlockCountPacked) & 7)",
            "for b in range(worker_id, blocks, 6):",
            *indented(loop("width", lines)),
        ]

        def cycles(v: Any, ipu: Ipu) -> Int64:
            packed = np.asarray(v.dataBlockCountPacked, np.int64)
            blocks = (packed >> 3) + ((packed & 7) > 0)
            slots = _inner_slots(np.asarray(v.B, np.int64), blocks, dtype, ipu)
            return np.asarray(INNER_SUPERVISOR + ipu.num_workers * (INNER_START[dtype.name] + slots), np.int64)

        return Instance("MultiVertex", tuple(fields), tuple(body), cycles)

    return make


def _inner_slots(width: Int64, blocks: Int64, dtype: ElementType, ipu: Ipu) -> Int64:
    """Slots of a worker over its blocks: for each vector of the inner operand, a loop over the blocks."""
    vector_ = ipu.vector_width(dtype)
    loops = -(-width // vector_)
    plain = loops * (INNER_LOOP + INNER_BLOCK * blocks)
    if dtype != f16:
        return np.asarray(plain, np.int64)
    return np.asarray(np.where(width % vector_ == 0, loops * (INNER_PIPELINED + blocks) + INNER_TAIL, plain), np.int64)


def _inner_rows(in_place: bool) -> Callable[..., Instance]:
    def make(op: str, dtype: ElementType) -> Instance:
        fused = result(op, dtype, 2, in_place)
        fields = [state("n", u32), rows("B", dtype, inner="ONE_PTR"), "BLen: Vector[u16]"]
        fields += [rows("data", dtype, "InOut" if in_place else "Input", "ONE_PTR"), "dataBlockCount: Vector[u16]"]
        if not in_place:
            fields.append(rows("out", dtype, "Output", "ONE_PTR"))
        at = "[r][b * width + i]"
        lines = element_statements(
            fused,
            [place(f"self.data{at}", dtype), place("self.B[r][i]", dtype)],
            [place(f"self.{'data' if in_place else 'out'}{at}", dtype)],
        )
        body = [
            "width = i64(self.BLen[r])",
            *loop("i64(self.dataBlockCount[r])", loop("width", lines), "b"),
        ]

        def cycles(v: Any, ipu: Ipu) -> Int64:
            width = -(-np.asarray(v.data.lengths, np.int64) // ipu.vector_width(dtype))
            return np.asarray(
                INNER_START[dtype.name] + sum_rows(INNER_LOOP + INNER_BLOCK * width, v.data.row_begin), np.int64
            )

        return Instance("Vertex", tuple(fields), tuple(loop("i64(self.n)", body, "r")), cycles)

    return make
