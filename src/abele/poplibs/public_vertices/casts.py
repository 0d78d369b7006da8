"""Conversions between element types, and whether one is accurate."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.machine import Ipu
from abele.numerics import ElementType, bool_, f16, f32, u32
from abele.poplibs.popops.elementwise.cast import PROLOGUE, CastCycles, cast_loop, conversion
from abele.poplibs.popops.elementwise.scaled_add import CHECK_CYCLES
from abele.poplibs.popops.expressions.element_codelets import element_statements
from abele.poplibs.popops.expressions.fused import fuse
from abele.poplibs.public_vertices.elementwise import sum_rows
from abele.poplibs.public_vertices.family import Family, Instance
from abele.poplibs.public_vertices.parameters import COPIED, type_of
from abele.poplibs.public_vertices.text import loop, one, place, row_loop, rows, shared_loop, state, vector

ENTRY_2D = 18
"""Worker slots of Cast2D before its first row; a row starts with the other 19 of the 37 of Cast1D, whose two terms are
18 + 19 in machine reference §4.8. That a row costs the second is a guess."""


def families() -> list[Family]:
    """Every vertex of this module."""
    both = (type_of(*COPIED, name="source"), type_of(*COPIED, name="target"))
    return [
        *Family("Cast1D", both, _shared, "likely", "dst = src, converted").called("CastSupervisor"),
        *Family("Cast", both, _single, "sure", "as Cast1D, on one worker").called("Cast1DSingleWorker"),
        Family("Cast2D", both, _on_rows, "sure", "dst = src, converted"),
        Family(
            "CheckAccuracyWhenCast",
            (type_of(f32, name="input"), type_of(f16, name="output")),
            _check,
            "sure",
            "whether the input is as accurate in the output's type: |input − cast| < |input| · tolerance",
        ),
    ]


def _statement(source: ElementType, target: ElementType, at: str) -> list[str]:
    if source == target:
        return [f"self.dst{at} = self.src{at}"]
    fused = fuse([conversion(source, target)], (source,), [target])
    return element_statements(fused, [place(f"self.src{at}", source)], [place(f"self.dst{at}", target)])


_TOTAL = (
    "total = len(self.dst)",
    "if self.partitionParams != 0:",
    "    most = i64(self.partitionParams) >> 9",
    "    many = (i64(self.partitionParams) >> 6) & 7",
    "    total = many * most + (6 - many) * (most - 4) - (i64(self.partitionParams) & 7)",
    "if self.numElems != 0:",
    "    total = i64(self.numElems)",
)
"""Elements of a cast on all workers; of ``partitionParams``: ``many`` workers convert ``most`` and the others 4 less,
the last a few less."""


def _single(source: ElementType, target: ElementType) -> Instance:
    fields = (
        vector("src", source, layout="ONE_PTR"),
        vector("dst", target, "Output", "ONE_PTR"),
        state("numElems", u32),
    )
    each, slots = cast_loop(source, target)

    def cycles(v: Any, ipu: Ipu) -> Int64:
        return np.asarray(PROLOGUE + -(-np.asarray(v.numElems, np.int64) // each) * slots, np.int64)

    return Instance("Vertex", fields, tuple(loop("i64(self.numElems)", _statement(source, target, "[i]"))), cycles)


def _shared(source: ElementType, target: ElementType) -> Instance:
    """On all workers (six, in fours of elements, §1.2).

    How many elements say ``numElems``, ``partitionParams`` or, where neither is set, ``dst``.
    """
    fields = (
        vector("src", source, layout="ONE_PTR"),
        vector("dst", target, "Output"),
        state("numElems", u32),
        state("partitionParams", u32),
    )
    body = (*_TOTAL, *shared_loop("total", _statement(source, target, "[i]"), 4))

    def cycles(v: Any, ipu: Ipu) -> Int64:
        number, packed, size = (np.asarray(n, np.int64) for n in (v.numElems, v.partitionParams, v.dst))
        most, many = packed >> 9, packed >> 6 & 7
        # As the code above has it: the packed count, else the size of `dst`; `numElems` before both.
        told = np.where(packed > 0, many * most + (6 - many) * (most - 4) - (packed & 7), size)
        return CastCycles(source, target)(np.where(number > 0, number, told), ipu)

    return Instance("MultiVertex", fields, body, cycles, defaults={"numElems": 0, "partitionParams": 0})


def _on_rows(source: ElementType, target: ElementType) -> Instance:
    fields = (rows("src", source, inner="ONE_PTR"), rows("dst", target, "Output"))
    each, slots = cast_loop(source, target)

    def cycles(v: Any, ipu: Ipu) -> Int64:
        taken = PROLOGUE - ENTRY_2D + -(-v.dst.lengths // each) * slots
        return np.asarray(ENTRY_2D + sum_rows(taken, v.dst.row_begin), np.int64)

    return Instance("Vertex", fields, tuple(row_loop("dst", _statement(source, target, "[r][i]"))), cycles)


def _check(source: ElementType, target: ElementType) -> Instance:
    body = (
        "moved = f32(f16(self.input)) - self.input",
        "self.output = abs(moved) < abs(self.input) * self.tolerance or moved == 0.0",
    )
    fields = (state("tolerance", f32), one("input", source), one("output", bool_, "Output"))
    return Instance("Vertex", fields, body, lambda v, ipu: np.full(len(v.tolerance), CHECK_CYCLES, np.int64))
