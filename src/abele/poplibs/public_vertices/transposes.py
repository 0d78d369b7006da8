"""Matrices turned around."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.machine import Ipu
from abele.numerics import ElementType, f16, f32, i8, i16, i32, u8, u16, u32
from abele.poplibs.poplin.vertices.cost import permute, turned_side
from abele.poplibs.public_vertices.family import Family, Instance
from abele.poplibs.public_vertices.parameters import type_of
from abele.poplibs.public_vertices.text import loop, rows, state, vector

_TURNED = "matrices of dst from those of src, turned around; rows and columns in quarters"
_ENTRY, _MATRIX = 24, 10
"""Worker slots before the first matrix and of each, as :func:`~abele.poplibs.poplin.vertices.cost.permute` has them."""


def families() -> list[Family]:
    """Every vertex of this module."""
    moved = (type_of(f16, f32, u16, i16, i32, u32, u8, i8),)
    return [
        Family("Transpose1DSingleWorker", moved, _transpose("D4Or1", "numTranspositionsM1"), "likely", _TURNED),
        Family("Transpose", moved, _transpose("D4", "numTranspositionsM1"), "likely", _TURNED),
        Family("Transpose1D", moved, _transpose("D4Or1", "numTranspositionsQ"), "likely", _TURNED),
        Family("TransposeSupervisor", moved, _transpose("D4", "numTranspositions"), "likely", _TURNED),
        *Family("Transpose2D", moved, _transpose_rows, "likely", "each matrix of dst from that of src").called(
            "Transpose2d"
        ),
    ]


def _transpose(end: str, count: str) -> Callable[..., Instance]:
    """Matrices one after the other. How many says ``count``; or it is those of the first ``workerCount`` workers, of
    which the others have one less. Sizes are in quarters, so a sixteenth of the elements is given; cost: §2.6, §4."""

    def make(dtype: ElementType) -> Instance:
        alone = count == "numTranspositionsM1"
        height, width = f"numSrcRows{end}", f"numSrcColumns{end}"
        numbers = [height, width, count, *([] if alone else ["workerCount"])]
        fields = [vector("src", dtype, "Input", "ONE_PTR"), vector("dst", dtype, "Output", "ONE_PTR")]
        fields += [state(n, u16) for n in numbers]
        each, many = f"i64(self.{count})", "i64(self.workerCount)"
        total = f"{each} + 1" if alone else f"{each} * {many} + ({each} - 1) * (6 - {many})"
        turn = _turn("self.src[base + r * columns + c]", "self.dst[base + c * rows + r]")
        body = [
            f"rows = i64(self.{height}) * 4",
            f"columns = i64(self.{width}) * 4",
            *loop(total, ["base = m * rows * columns", *turn], "m"),
        ]

        def cycles(v: Any, ipu: Ipu) -> Int64:
            high, wide, each, *many = (np.asarray(getattr(v, n), np.int64) for n in numbers)
            blocks = 16 * high * wide // turned_side(dtype) ** 2
            if alone:
                return np.asarray(_ENTRY + (each + 1) * (_MATRIX + 2 * turned_side(dtype) * blocks), np.int64)
            matrices = each * many[0] + (each - 1) * (ipu.num_workers - many[0])
            return permute(matrices, matrices * blocks, dtype)

        return Instance("Vertex" if alone else "SupervisorVertex", tuple(fields), tuple(body), cycles)

    return make


def _turn(source: str, target: str) -> list[str]:
    return loop("rows", loop("columns", [f"{target} = {source}"], "c"), "r")


def _transpose_rows(dtype: ElementType) -> Instance:
    fields = (rows("src", dtype, inner="ONE_PTR"), rows("dst", dtype, "Output", "ONE_PTR"))
    body = [
        "rows = i64(self.numSrcRows)",
        "columns = i64(self.numSrcColumns)",
        *loop("len(self.dst)", _turn("self.src[m][r * columns + c]", "self.dst[m][c * rows + r]"), "m"),
    ]
    return Instance("Vertex", (*fields, state("numSrcRows", u16), state("numSrcColumns", u16)), tuple(body))
