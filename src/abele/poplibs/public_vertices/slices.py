"""Slices and updates by offsets that are data: a window of a tensor, and rows of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from abele.arrays import Int64
from abele.machine import Ipu
from abele.numerics import ElementType, f16, f32, i32, u16, u32
from abele.poplibs.popops.slicing.multi_cost import add_cycles, slice_cycles
from abele.poplibs.popops.slicing.step_cost import START_2D_SLOTS, region_slots, stretch_cycles
from abele.poplibs.public_vertices.family import Family, Instance
from abele.poplibs.public_vertices.parameters import COPIED, choice, flag, type_of
from abele.poplibs.public_vertices.text import indented, loop, one, rows, state, vector, wide

Join = Literal["none", "add", "max", "mul"]


def families() -> list[Family]:
    """Every vertex of this module."""
    kind = (type_of(*COPIED),)
    number = type_of(f32, f16, i32, u32)
    subword = flag("subWordWritesRequired", False)
    window = "indices offset … of baseT, which wrap around"
    return [
        *Family("DynamicSlice1D", kind, _window(False), "likely", f"subT = {window}").called("DynamicSlice1d"),
        *Family("DynamicSlice2D", kind, _windows(False), "likely", f"each region of subT = {window}").called(
            "DynamicSlice2d"
        ),
        *Family("DynamicUpdateSlice1D", kind, _window(True), "likely", f"{window} = subT").called(
            "DynamicUpdateSlice1d"
        ),
        *Family("DynamicUpdateSlice2D", kind, _windows(True), "likely", f"{window} = each region of subT").called(
            "DynamicUpdateSlice2d"
        ),
        Family("MultiSlice", (type_of(*COPIED),), _multi_slice, "sure", "row i of subT = row offsets[i] of baseT"),
        Family(
            "MultiUpdate",
            (type_of(*COPIED), subword),
            _multi_update,
            "sure",
            "row offsets[i] of baseT = row i of subT",
        ),
        Family(
            name="MultiUpdateAdd",
            parameters=(number, type_of(f32, f16, i32, u32, name="type of the scale"), subword),
            make=_multi_add,
            certainty="likely",
            meaning="row offsets[i] of baseT += scale · row i of subT, in order",
            others=((number, subword),),
            example=("float", "float", "false"),
        ),
        Family(
            "MultiUpdateOp",
            (number, subword, choice("popops::Operation", {"ADD": "add", "MAX": "max", "MUL": "mul"})),
            _multi_op,
            "likely",
            "row offsets[i] of baseT joined with row i of subT, in order",
        ),
    ]


# --- a window --------------------------------------------------------------------------------------------------------

_BASE = [
    "at = i64(self.offset) + s",
    "at = at - i64(self.numBaseElements) if at >= i64(self.numBaseElements) else at",
    "at = at if at < i64(self.numBaseElements) else i64(0)",
]


def _move(base: str, sub: str, updates: bool) -> str:
    return f"{base} = {sub}" if updates else f"{sub} = {base}"


def _ways(updates: bool) -> tuple[str, str]:
    return ("InOut", "Input") if updates else ("Input", "Output")


def _window(updates: bool) -> Callable[..., Instance]:
    def make(dtype: ElementType) -> Instance:
        base, sub = _ways(updates)
        fields = [one("offset", u32), vector("baseT", dtype, base, "ONE_PTR"), vector("subT", dtype, sub, "ONE_PTR")]
        fields += [state("numBaseElements", u32), state("numSubElements", u32), state("regionSize", u32)]
        move = _move("self.baseT[at * size + e]", "self.subT[s * size + e]", updates)
        body = [
            "size = i64(self.regionSize)",
            *loop(
                "i64(self.numSubElements)",
                [
                    *_BASE,
                    "for e in range(worker_id * size // 6, (worker_id + 1) * size // 6):",
                    *indented([move]),
                ],
                "s",
            ),
        ]

        def cycles(v: Any, ipu: Ipu) -> Int64:
            size, num = np.asarray(v.regionSize, np.int64), np.asarray(v.numSubElements, np.int64)
            return stretch_cycles(size, num, dtype, ipu)

        return Instance("MultiVertex", tuple(fields), tuple(body), cycles)

    return make


def _windows(updates: bool) -> Callable[..., Instance]:
    def make(dtype: ElementType) -> Instance:
        base, sub = _ways(updates)
        fields = [one("offset", u32), rows("baseT", dtype, base, align=4), rows("subT", dtype, sub, align=4)]
        fields += [state("numBaseElements", u32), state("numSubElements", u16), state("numRegions", u16)]
        whole = _move("self.baseT[r][at * size + e]", "self.subT[r][s * size + e]", updates)
        base_row, sub_row = "r * i64(self.numBaseElements) + at", "r * i64(self.numSubElements) + s"
        apart = _move(f"self.baseT[{base_row}][e]", f"self.subT[{sub_row}][e]", updates)
        body = [
            "together = len(self.baseT) == i64(self.numRegions)",
            *loop(
                "i64(self.numRegions)",
                loop(
                    "i64(self.numSubElements)",
                    [
                        *_BASE,
                        "if together:",
                        "    size = len(self.baseT[r]) // i64(self.numBaseElements)",
                        *indented(loop("size", [whole], "e")),
                        "else:",
                        *indented(loop("len(self.subT[r * i64(self.numSubElements) + s])", [apart], "e")),
                    ],
                    "s",
                ),
                "r",
            ),
        ]

        def cycles(v: Any, ipu: Ipu) -> Int64:
            regions = np.maximum(np.asarray(v.numRegions, np.int64), 1)
            num = np.asarray(v.numSubElements, np.int64)
            width = v.subT.total // np.maximum(regions * num, 1)
            return np.asarray(START_2D_SLOTS + regions * region_slots(width, num, dtype, ipu), np.int64)

        return Instance("Vertex", tuple(fields), tuple(body), cycles)

    return make


# --- rows of a table -------------------------------------------------------------------------------------------------

_STATE = [state("baseOffset", u32), state("numBaseElements", u32), state("regionSize", u16)]
_HEAD = ["width = i64(self.regionSize)", "entries = self.numBaseElements", "first = self.baseOffset"]
_ROW = ["row = self.offsets[i] - first", "if row < entries:", "    at = i64(row) * width"]
"""Offsets are compared without sign, so one below the first row is beyond the last."""


def _multi_slice(dtype: ElementType) -> Instance:
    fields = [vector("offsets", u32, align=4), vector("baseT", dtype, "Input", "ONE_PTR", 4)]
    fields += [vector("subT", dtype, "Output", "ONE_PTR", 4), *_STATE]
    body = [
        *_HEAD,
        "num = len(self.offsets)",
        "for i in range(worker_id * num // 6, (worker_id + 1) * num // 6):",
        *indented(_ROW),
        *indented(loop("width", ["self.subT[i * width + e] = self.baseT[at + e]"], "e"), 2),
    ]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        return slice_cycles(v.offsets, np.asarray(v.regionSize, np.int64), dtype).astype(np.int64)

    return Instance("MultiVertex", tuple(fields), tuple(body), cycles)


def _multi_update(dtype: ElementType, subword: bool) -> Instance:
    return _update(dtype, "none", None)


def _multi_add(dtype: ElementType, *more: Any) -> Instance:
    scale = more[0] if isinstance(more[0], ElementType) else dtype
    return _update(dtype, "add", scale)


def _multi_op(dtype: ElementType, subword: bool, join: Join) -> Instance:
    return _update(dtype, join, None)


def _update(dtype: ElementType, join: Join, scale: ElementType | None) -> Instance:
    kind = f32 if dtype.is_float and join != "none" else dtype
    old, new = wide("self.baseT[at + e]", dtype, kind), wide("self.subT[i * width + e]", dtype, kind)
    if scale is not None:
        new = f"{wide('self.scale', scale, kind)} * {new}"
    joined = {"none": new, "add": f"{old} + {new}", "max": f"max({old}, {new})", "mul": f"{old} * {new}"}[join]
    fields = [vector("offsets", u32, align=4), vector("baseT", dtype, "InOut", "ONE_PTR", 4)]
    fields += [vector("subT", dtype, "Input", "ONE_PTR", 4), *([one("scale", scale)] if scale else []), *_STATE]
    inner = loop("width", [f"self.baseT[at + e] = {wide(joined, kind, dtype)}"], "e")
    body = [*_HEAD, *loop("len(self.offsets)", [*_ROW, *indented(inner)])]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        num, width = np.asarray(v.offsets, np.int64), np.asarray(v.regionSize, np.int64)
        if join == "none":
            return slice_cycles(num, width, dtype, update=True).astype(np.int64)
        return add_cycles(num, width, dtype, scaled=scale is not None).astype(np.int64)

    return Instance("SupervisorVertex", tuple(fields), tuple(body), cycles)
