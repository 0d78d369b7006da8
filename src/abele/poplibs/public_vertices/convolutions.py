"""Parts of convolutions and norms: partial products on the matrix units, sums of partials, outer products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.machine import Ipu
from abele.numerics import ElementType, f16, f32, u16, u32
from abele.poplibs.poplin.vertices import cost
from abele.poplibs.poplin.vertices.work import Work
from abele.poplibs.public_vertices.elementwise import sum_rows
from abele.poplibs.public_vertices.family import Family, Instance, refuse
from abele.poplibs.public_vertices.parameters import TemplateParameter, flag, number, type_of
from abele.poplibs.public_vertices.text import loop, row_loop, rows, state, vector, wide

DEVIATION_ENTRY, DEVIATION_ROW, DEVIATION_PAIR = 6, 4, 5
"""Worker slots of InverseStdDeviation: 6 + Σ(4 + 5·⌈n/2⌉). Source: machine reference §4.10."""
OUTER_FLAT, OUTER_SLOW = 25, 10
"""Worker slots of OuterProduct before the first group, and of an element that is no whole number of vectors.
Source: machine reference §4.6."""


def families() -> list[Family]:
    """Every vertex of this module."""
    floats = type_of(f32, f16)
    inputs, partials = type_of(f32, f16, name="input"), type_of(f32, f16, name="partials")
    amp: tuple[TemplateParameter, ...] = (
        inputs,
        partials,
        flag("useLimitedVer"),
        flag("use128BitConvUnitLoad"),
        number("numConvUnits", example=16),
        number("convInputLoadElems", default=0, example=4),
        flag("disableSRForAMPVertices", False),
    )
    older = (*amp[:5], flag("disableSRForAMPVertices", False))
    moments = tuple(type_of(f32, f16, name=n) for n in ("mean", "power", "output"))
    return [
        Family(
            name="ConvPartial1x1Out",
            parameters=amp,
            make=_conv_1x1,
            certainty="likely",
            meaning="out of each group from in and weights [out channels, in channels], "
            "at the positions of the work lists",
            others=(older,),
            example=("half", "float", "true", "false", "16", "4", "false"),
        ),
        Family("OuterProduct", (floats,), _outer, "sure", "out[g][i, c] = in[i] · weights[g · chansPerGroup + c]"),
        Family(
            "ReduceAdd",
            (type_of(f32, f16, name="output"), partials, flag("singleInput"), flag("constrainPartials", False)),
            _reduce_add,
            "likely",
            "out = the sum of numPartials partials; of a single input beside initialPartial",
        ),
        Family(
            "InverseStdDeviation",
            (*moments, flag("stableAlgo", False)),
            _deviation,
            "sure",
            "iStdDev = 1 / √(scaleVar · (power − mean²) + eps); of the stable form power is the variance",
        ),
    ]


def _conv_1x1(
    dtype: ElementType, partials: ElementType, limited: bool, wide_loads: bool, units: int, *_: Any
) -> Instance:
    """Groups times groups of channels times positions.

    The six work lists have three numbers each: the first output in units of 8 bytes of 2 f32 or 4 f16, the number of
    positions less 3, and the first input in units of 8 bytes.
    """
    if units not in (4, 8, 16):
        raise refuse(f"{units} conv units do not work together", "16, 8 or 4")
    count, mask = (u16, 0xFFFF) if limited else (u32, 0xFFFFFFFF)
    stored, loaded = 8 // partials.bytes, 8 // dtype.bytes
    fields = [
        rows("in_", dtype, inner="COMPACT_PTR"),
        rows("weights", dtype, inner="COMPACT_PTR"),
        rows("out", partials, "Output", "COMPACT_PTR"),
        vector("worklists", count, "Input", "ONE_PTR", 4),
    ]
    numbers = ["numConvGroupsM1", "numOutGroupsM1", "numInGroups", "transformedInStride"]
    numbers += ["outChansPerGroup", "inChansPerGroup"]
    fields += [state(n, count) for n in numbers]
    fields.append("transformedOutStride: i32")
    channel = [
        "total = f32(0.0)",
        *loop(
            "in_groups",
            loop(
                "in_channels",
                [
                    f"x = {wide('self.in_[cg * in_groups + ig][place * in_channels + ci]', dtype, f32)}",
                    "total = total + x * "
                    + wide(
                        "self.weights[(cg * in_groups + ig) * out_groups + out_groups - 1 - og][co * in_channels + ci]",
                        dtype,
                        f32,
                    ),
                ],
                "ci",
            ),
            "ig",
        ),
        f"self.out[cg * out_groups + og][(first + i) * out_channels + co] = {wide('total', f32, partials)}",
    ]
    run = [
        f"first = i64(self.worklists[3 * w]) * {stored} // out_channels",
        f"count = i64(self.worklists[3 * w + 1]) + 3 & {mask}",
        f"source = i64(self.worklists[3 * w + 2]) * {loaded} // in_channels",
        *loop("count", ["place = source + i * stride", *loop("out_channels", channel, "co")]),
    ]
    body = [
        "in_groups = i64(self.numInGroups)",
        "out_groups = i64(self.numOutGroupsM1) + 1",
        "in_channels = i64(self.inChansPerGroup)",
        "out_channels = i64(self.outChansPerGroup)",
        f"stride = (i64(self.transformedInStride) - 1) * {loaded} // in_channels + 1",
        *loop("i64(self.numConvGroupsM1) + 1", loop("out_groups", loop("6", run, "w"), "og"), "cg"),
    ]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        # The template parameter tells how the real vertex loads its weights; it changes the cost, not the result.
        load = ipu.amp.wide_weight_load_bytes_per_cycle if wide_loads else ipu.amp.weight_load_bytes_per_cycle
        return cost.amp_1x1(_work(v, dtype, partials), units, load)

    return Instance("SupervisorVertex", tuple(fields), tuple(body), cycles, defaults={"transformedOutStride": 0})


def _work(v: Any, dtype: ElementType, partials: ElementType) -> Work:
    """Sizes of the vertices; positions are those that the outputs have room for."""
    groups, out_groups = np.asarray(v.numConvGroupsM1, np.int64) + 1, np.asarray(v.numOutGroupsM1, np.int64) + 1
    out_channels = out_groups * np.asarray(v.outChansPerGroup, np.int64)
    in_channels = np.asarray(v.numInGroups, np.int64) * np.asarray(v.inChansPerGroup, np.int64)
    positions = v.out.total // np.maximum(groups * out_channels, 1)
    one = np.ones_like(groups)
    return Work(
        dtype=dtype,
        partials=partials,
        groups=groups,
        in_channels=in_channels,
        out_channels=out_channels,
        positions=positions,
        outputs=positions,
        run=positions,
        kernel_outer=one,
        kernel_inner=one,
    )


def _outer(dtype: ElementType) -> Instance:
    """Source of its cost: machine reference §4.6 (OuterProduct)."""
    fields = (
        vector("in_", dtype, align=0),
        vector("weights", dtype, "Input", "ONE_PTR"),
        rows("out", dtype, "Output", "ONE_PTR"),
        state("chansPerGroup", u32),
    )
    value = f"{wide('self.in_[i]', dtype, f32)} * {wide('self.weights[g * width + c]', dtype, f32)}"
    inner = loop("len(self.in_)", loop("width", [f"self.out[g][i * width + c] = {wide(value, f32, dtype)}"], "c"))
    body = ["width = i64(self.chansPerGroup)", *loop("len(self.out)", inner, "g")]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        channels, length = np.asarray(v.chansPerGroup, np.int64), np.asarray(getattr(v, "in"), np.int64)
        whole = 6 if dtype == f32 else 12
        each, pair = (11, 2) if dtype == f32 else (10, 4)
        fast = OUTER_FLAT + v.out.rows * (each + length * (6 + np.maximum(channels - whole, 0) // pair))
        slow = OUTER_FLAT + v.out.rows * length * (OUTER_SLOW + np.ceil((2.0 if dtype == f32 else 2.5) * channels))
        fits = (channels >= whole) & (channels % pair == 0)
        return np.asarray(np.where(fits, fast, slow), np.int64)

    return Instance("Vertex", fields, tuple(body), cycles)


def _reduce_add(out: ElementType, partials: ElementType, single: bool, constrained: bool) -> Instance:
    output = vector("out", out, "Output", "ONE_PTR")
    numbers = [state("numPartials", u16), state("numElems", u16)]
    if single:
        fields: Sequence[str] = (
            vector("initialPartial", partials, "Input", "ONE_PTR"),
            vector("partials", partials, "Input", "ONE_PTR"),
            output,
            *numbers,
        )
        start = wide("self.initialPartial[i]", partials, f32)
        terms = loop("i64(self.numPartials)", [_add("self.partials[d * size + i]", partials)], "d")
    else:
        fields = (rows("partials", partials, inner="ONE_PTR"), output, *numbers)
        start = "f32(0.0)"
        terms = loop("i64(self.numPartials)", [_add("self.partials[d][i]", partials)], "d")
    body = [f"total = {start}", *terms, f"self.out[i] = {wide('total', f32, out)}"]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        depth, size = np.asarray(v.numPartials, np.int64), np.asarray(v.numElems, np.int64)
        if single:
            # The initial partial is one more to add.
            return cost.reduce_add(size, depth + 1, partials, out)
        return cost.reduce_add_list(size, depth, partials, out)

    lines = ("size = i64(self.numElems)", *loop("size", body))
    return Instance("SupervisorVertex", tuple(fields), lines, cycles)


def _add(element: str, dtype: ElementType) -> str:
    return f"total = total + {wide(element, dtype, f32)}"


def _deviation(mean: ElementType, power: ElementType, out: ElementType, stable: bool) -> Instance:
    fields = (
        rows("mean", mean),
        rows("power", power, inner="ONE_PTR"),
        rows("iStdDev", out, "Output", "ONE_PTR"),
        state("scaleVar", f32),
        state("eps", f32),
    )
    m = wide("self.mean[r][i]", mean, f32)
    p = wide("self.power[r][i]", power, f32)
    variance = "p" if stable else "p - m * m"
    body = row_loop(
        "mean",
        [
            f"m = {m}",
            f"p = {p}",
            f"variance = self.scaleVar * ({variance}) + self.eps",
            f"self.iStdDev[r][i] = {wide('rsqrt(variance)', f32, out)}",
        ],
    )

    def cycles(v: Any, ipu: Ipu) -> Int64:
        taken = DEVIATION_ROW + DEVIATION_PAIR * -(-v.mean.lengths // 2)
        return np.asarray(DEVIATION_ENTRY + sum_rows(taken, v.mean.row_begin), np.int64)

    return Instance("Vertex", fields, tuple(body), cycles)
