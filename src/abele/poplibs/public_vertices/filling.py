"""Vertices that write values of their own: fills, indices, one-hot rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.machine import Ipu
from abele.numerics import ElementType, f16, f32, i32, i64, u32, u64
from abele.poplibs.popops.elementwise.fill import FILL_ELEMENTS, FILL_START, IOTA_SLOTS
from abele.poplibs.popops.slicing.one_hot import INDEX_CYCLES, START_CYCLES
from abele.poplibs.public_vertices.elementwise import sum_rows
from abele.poplibs.public_vertices.family import Family, Instance
from abele.poplibs.public_vertices.parameters import COPIED, type_of
from abele.poplibs.public_vertices.text import indented, loop, one, row_loop, rows, state, vector

INDEX_SLOTS_OTHER = 100
"""Tile cycles of an index of EncodeOneHot where elements have no 4 bytes. Source: machine reference §4.8."""
IOTA_ENTRY, IOTA_ROW = 10, 4
"""Worker slots of Iota before the first row and of each. Source: machine reference §4.8."""


def families() -> list[Family]:
    """Every vertex of this module."""
    index, values = type_of(u32, i32, name="index"), type_of(f32, f16, i32, u32, name="output")
    return [
        Family("Fill", (type_of(*COPIED),), _fill, "sure", "every element of out = the number in"),
        Family("Fill2d", (type_of(*COPIED),), _fill_rows, "sure", "every element of out = the number in"),
        Family(
            "Iota",
            (type_of(u32, i32, f32, f16, u64, i64),),
            _iota,
            "likely",
            "element i of row r of out = offsets[r] + i",
        ),
        Family(
            "EncodeOneHot",
            (index, values),
            _one_hot(False),
            "sure",
            "rows of sliceLen[r] columns from offsets[r] on: 1 at the index, 0 elsewhere",
        ),
        Family("EncodeOneHotCustomValues", (index, values), _one_hot(True), "sure", "the same with On and Off"),
    ]


def fill_slots(size: Any, dtype: ElementType) -> Any:
    """Worker slots of setting ``size`` elements. Source: machine reference §4.8 (Fill1D)."""
    return FILL_START[dtype.bytes] + -(-size // FILL_ELEMENTS[dtype.bytes])


def _fill(dtype: ElementType) -> Instance:
    fields = (state("in_", dtype), vector("out", dtype, "Output", align=0))
    body = ["value = self.in_", *loop("len(self.out)", ["self.out[i] = value"])]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        return np.asarray(fill_slots(np.asarray(v.out, np.int64), dtype), np.int64)

    return Instance("Vertex", fields, tuple(body), cycles)


def _fill_rows(dtype: ElementType) -> Instance:
    fields = (state("in_", dtype), rows("out", dtype, "Output", align=0))
    body = ["value = self.in_", *row_loop("out", ["self.out[r][i] = value"])]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        return sum_rows(fill_slots(v.out.lengths, dtype), v.out.row_begin)

    return Instance("Vertex", fields, tuple(body), cycles)


def _iota(dtype: ElementType) -> Instance:
    name = dtype.name
    fields = (rows("out", dtype, "Output", align=0), f"offsets: Vector[{name}]")
    element = "f32(self.offsets[r]) + f32(i)" if dtype.is_float else f"self.offsets[r] + {name}(i)"
    body = row_loop("out", [f"self.out[r][i] = {name}({element})" if dtype == f16 else f"self.out[r][i] = {element}"])

    def cycles(v: Any, ipu: Ipu) -> Int64:
        taken = IOTA_ROW + IOTA_SLOTS * -(-v.out.lengths // ipu.vector_width(dtype))
        return np.asarray(IOTA_ENTRY + sum_rows(taken, v.out.row_begin), np.int64)

    return Instance("Vertex", fields, tuple(body), cycles)


def _one_hot(custom: bool) -> Any:
    def make(index: ElementType, dtype: ElementType) -> Instance:
        fields = [vector("indices", index, align=0), vector("out", dtype, "Output", "ONE_PTR")]
        fields += ["offsets: Vector[u32]", "sliceLen: Vector[u32]", state("outLength", u32)]
        fields += [one("On", dtype), one("Off", dtype)] if custom else []
        on, off = ("self.On", "self.Off") if custom else (_literal(1, dtype), _literal(0, dtype))
        body = [
            f"off = {off}",
            *loop("i64(self.outLength)", ["self.out[i] = off"]),
            "begin = i64(0)",
            *loop(
                "len(self.indices)",
                [
                    "column = u32(self.indices[r]) - self.offsets[r]",
                    "if u32(self.indices[r]) >= self.offsets[r] and column < self.sliceLen[r]:",
                    *indented([f"self.out[begin + i64(column)] = {on}"]),
                    "begin = begin + i64(self.sliceLen[r])",
                ],
                "r",
            ),
        ]

        def cycles(v: Any, ipu: Ipu) -> Int64:
            elements = np.asarray(v.outLength, np.int64)
            each = INDEX_CYCLES if dtype.bytes == 4 else INDEX_SLOTS_OTHER
            filled = ipu.num_workers * fill_slots(-(-elements // ipu.num_workers), dtype)
            return np.asarray(filled + START_CYCLES + each * np.asarray(v.indices, np.int64), np.int64)

        return Instance("SupervisorVertex", tuple(fields), tuple(body), cycles)

    return make


def _literal(value: int, dtype: ElementType) -> str:
    return f"{dtype.name}({float(value) if dtype.is_float else value})"
