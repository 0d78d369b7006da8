"""Vertices that test elements: for NaN, and for counts between levels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.codelet.write import type_name
from abele.machine import Ipu
from abele.numerics import ElementType, f16, f32, u16, u32
from abele.poplibs.popops.reductions.vertices import SLOTS_OF_FOUR, SUPERVISOR_CYCLES, WORKER_SLOTS
from abele.poplibs.public_vertices.elementwise import sum_rows
from abele.poplibs.public_vertices.family import Family, Instance
from abele.poplibs.public_vertices.parameters import flag, type_of
from abele.poplibs.public_vertices.text import loop, one, row_loop, rows, state, vector, wide

_BAD = "outSetIfFound = 1 if an element is NaN, or infinite where hasNaNOrInf; left alone otherwise"


def families() -> list[Family]:
    """Every vertex of this module."""
    floats = type_of(f32, f16)
    return [
        Family("HasNaNOrInf1D", (floats, flag("hasNaNOrInf")), _bad(False), "likely", _BAD),
        Family("HasNaNOrInf2D", (floats, flag("hasNaNOrInf")), _bad(True), "likely", _BAD),
        *Family(
            "Histogram1D",
            (floats, flag("isAbsolute"), flag("useFloatArithmetic", False)),
            _histogram(False),
            "likely",
            "elements below limits[0], between each two, and from the last limit on",
        ).called("HistogramSupervisor"),
        Family(
            "Histogram2D",
            (floats, flag("isAbsolute"), flag("useFloatArithmetic", False)),
            _histogram(True),
            "likely",
            "the same of rows",
        ),
    ]


def _bad(by_rows: bool) -> Callable[..., Instance]:
    """Source of its cost: machine reference §4.8 (Has-NaN), by fours of elements."""

    def make(dtype: ElementType, infinite: bool) -> Instance:
        element = "v - v != 0.0" if infinite else "v != v"
        at = "[r][i]" if by_rows else "[i]"
        test = [f"v = {wide(f'self.in_{at}', dtype, f32)}", f"bad = bad | (1 if {element} else 0)"]
        walk = row_loop("in_", test) if by_rows else loop("len(self.in_)", test)
        body = ("bad = 0", *walk, "if bad != 0:", "    self.outSetIfFound = 1.0")
        declare = rows if by_rows else vector
        fields = (declare("in_", dtype), one("outSetIfFound", f32, "InOut"))

        def cycles(v: Any, ipu: Ipu) -> Int64:
            found = getattr(v, "in")
            if by_rows:
                taken = -(-found.lengths // 4) * SLOTS_OF_FOUR[dtype.bits]
                return np.asarray(WORKER_SLOTS[dtype.bits] + sum_rows(taken, found.row_begin), np.int64)
            share = -(-np.asarray(found, np.int64) // (4 * ipu.num_workers))
            slots = WORKER_SLOTS[dtype.bits] + SLOTS_OF_FOUR[dtype.bits] * share
            return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * slots, np.int64)

        return Instance("Vertex" if by_rows else "SupervisorVertex", fields, body, cycles)

    return make


def _histogram(by_rows: bool) -> Callable[..., Instance]:
    def make(dtype: ElementType, absolute: bool, in_floats: bool) -> Instance:
        counts = f32 if in_floats else u32
        value = wide("self.data[r][i]" if by_rows else "self.data[i]", dtype, f32)
        value = f"abs({value})" if absolute else value
        place = [
            f"v = {value}",
            "k = i64(0)",
            *loop("last", [f"k = k + (i64(1) if v >= {wide('self.limits[n]', dtype, f32)} else i64(0))"], "n"),
            f"self.histogram[k] = self.histogram[k] + {type_name(counts)}(1)",
        ]
        zero = loop("last + 1", [f"self.histogram[n] = {type_name(counts)}(0)"], "n")
        walk = row_loop("data", place) if by_rows else loop("len(self.data)", place)
        body = ("last = i64(self.histogramCount) - 1", *zero, *walk)
        data = rows("data", dtype) if by_rows else vector("data", dtype)
        fields = (
            data,
            vector("histogram", counts, "Output", "ONE_PTR", 4),
            vector("limits", dtype, "Input", "ONE_PTR", 4),
        )
        return Instance("Vertex", (*fields, state("histogramCount", u16)), body)

    return make
