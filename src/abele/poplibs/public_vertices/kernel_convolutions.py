"""Partial convolutions with kernels, whose work lists give the inputs at each position of the kernel.

There are six work lists for each kernel position, one per worker. They have three numbers for each run of positions:
the first output, how many, and the first input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.machine import Ipu
from abele.numerics import ElementType, f16, f32, u16, u32
from abele.poplibs.poplin.vertices import cost
from abele.poplibs.poplin.vertices.work import Work
from abele.poplibs.public_vertices.family import Family, Instance, refuse
from abele.poplibs.public_vertices.parameters import TemplateParameter, flag, number, type_of
from abele.poplibs.public_vertices.text import loop, rows, state, wide

WORKERS = 6


def families() -> list[Family]:
    """Every vertex of this module."""
    types: tuple[TemplateParameter, ...] = (type_of(f32, f16, name="input"), type_of(f32, f16, name="partials"))
    limited, wide_loads = flag("useLimitedVer"), flag("use128BitConvUnitLoad")
    loads, rounding = number("convInputLoadElems", default=0, example=4), flag("disableSRForAMPVertices", False)
    units = number("numConvUnits", example=16)
    meaning = "out of each group from in and weights, at the positions of the work lists of each kernel position"
    return [
        Family(
            name="ConvPartialnx1",
            parameters=(*types, limited, wide_loads, units, loads, rounding),
            make=_conv_nx1,
            certainty="guessed",
            meaning=meaning,
            others=((*types, limited, wide_loads, units, rounding),),
            example=("half", "float", "true", "false", "16", "4", "false"),
        ),
        Family("ConvPartialHorizontalMac", (*types, limited), _horizontal, "guessed", meaning),
    ]


@dataclass(frozen=True)
class _VertexNames:
    """Field names and types of one kind of vertex.

    Attributes:
        dtype: Element type of the inputs.
        partials: Element type of the outputs.
        limited: True if sizes have 16 bits.
        sizes: State beside those that both kinds have.
        kernel: Number of kernel positions that have work lists.
        height: Kernel rows that share them.
        units: Elements that the first output and the first input of a run are counted in; 0 for positions.
    """

    dtype: ElementType
    partials: ElementType
    limited: bool
    sizes: tuple[str, ...]
    kernel: str
    height: str
    units: tuple[int, int]

    @property
    def number(self) -> ElementType:
        """Element type of sizes and work lists."""
        return u16 if self.limited else u32

    def fields(self) -> tuple[str, ...]:
        """Declarations of the fields."""
        names = ("numOutGroupsM1", "numInGroups", *self.sizes, "numConvGroupsM1", "outChansPerGroup", "inChansPerGroup")
        return (
            rows("in_", self.dtype, inner="COMPACT_PTR"),
            rows("weights", self.dtype, inner="COMPACT_PTR"),
            rows("out", self.partials, "Output"),
            f"worklists: Input[VectorList[{self.number.name}]]",
            *(state(n, self.number) for n in names),
            state("zerosInfo", u32),
            "transformedInStride: i32",
            "transformedOutStride: i32",
            *(["transformedInRowStride: i32"] if self.units[0] else []),
        )

    def body(self, stride: str, row_stride: str) -> tuple[str, ...]:
        """Loops over groups, kernel positions, work lists and channels."""
        weight = (
            "((k // inner * height + row) * inner + k % inner) * out_channels * in_channels + co * in_channels + ci"
        )
        x = f"self.in_[cg * in_groups + ig][(place + row * {row_stride}) * in_channels + ci]"
        w = f"self.weights[(cg * in_groups + ig) * out_groups + out_groups - 1 - og][{weight}]"
        place = "self.out[cg * out_groups + og][(first + i) * out_channels + co]"
        term = f"total = total + {wide(x, self.dtype, f32)} * {wide(w, self.dtype, f32)}"
        channel = [
            f"total = {wide(place, self.partials, f32)}",
            *loop("height", loop("in_channels", [term], "ci"), "row"),
            f"{place} = {wide('total', f32, self.partials)}",
        ]
        out_unit, in_unit = self.units
        run = [
            f"first = {_first('3 * item', out_unit, 'out_channels')}",
            f"source = {_first('3 * item + 2', in_unit, 'in_channels')}",
            *loop(
                "i64(self.worklists[q][3 * item + 1])",
                [f"place = source + i * {stride}", *loop("out_channels", channel, "co")],
            ),
        ]
        walk = loop(f"{self.kernel} * 6", ["k = q // 6", *loop("len(self.worklists[q]) // 3", run, "item")], "q")
        zero = loop(
            "len(self.out[cg * out_groups + og])",
            [f"self.out[cg * out_groups + og][n] = {self.partials.name}(0.0)"],
            "n",
        )
        groups = loop(
            "i64(self.numConvGroupsM1) + 1", loop("out_groups", [*zero, *loop("in_groups", walk, "ig")], "og"), "cg"
        )
        return (
            "in_groups = i64(self.numInGroups)",
            "out_groups = i64(self.numOutGroupsM1) + 1",
            "in_channels = i64(self.inChansPerGroup)",
            "out_channels = i64(self.outChansPerGroup)",
            f"height = {self.height}",
            f"inner = {self.inner}",
            *groups,
        )

    @property
    def inner(self) -> str:
        """Kernel positions in a row of those with work lists."""
        return "i64(self.kernelInnerElementsM1) + 1" if "kernelInnerElementsM1" in self.sizes else self.kernel

    def work(self, v: Any, outer: Int64, inner: Int64) -> Work:
        """Sizes of the vertices: every kernel position is taken to meet all positions, in runs of even length."""
        groups, out_groups = np.asarray(v.numConvGroupsM1, np.int64) + 1, np.asarray(v.numOutGroupsM1, np.int64) + 1
        out_channels = out_groups * np.asarray(v.outChansPerGroup, np.int64)
        in_channels = np.asarray(v.numInGroups, np.int64) * np.asarray(v.inChansPerGroup, np.int64)
        positions = v.out.total // np.maximum(groups * out_channels, 1)
        runs = np.maximum(v.worklists.total * WORKERS // np.maximum(3 * v.worklists.rows, 1), 1)
        run = -(-positions // runs)
        return Work(
            dtype=self.dtype,
            partials=self.partials,
            groups=groups,
            in_channels=in_channels,
            out_channels=out_channels,
            positions=positions,
            outputs=positions,
            run=run,
            kernel_outer=outer,
            kernel_inner=inner,
        )


def _first(entry: str, unit: int, channels: str) -> str:
    """Position of a number in a work list."""
    number_ = f"i64(self.worklists[q][{entry}])"
    return f"{number_} * {unit} // {channels}" if unit else number_


def _conv_nx1(
    dtype: ElementType, partials: ElementType, limited: bool, wide_loads: bool, units: int, *_: Any
) -> Instance:
    if units not in (4, 8, 16):
        raise refuse(f"{units} conv units do not work together", "16, 8 or 4")
    sizes = ("kernelOuterSizeM1", "kernelInnerElementsM1", "ampKernelHeightM1")
    kernel = "(i64(self.kernelOuterSizeM1) + 1) * (i64(self.kernelInnerElementsM1) + 1)"
    loaded = 8 // dtype.bytes
    form = _VertexNames(
        dtype=dtype,
        partials=partials,
        limited=limited,
        sizes=sizes,
        kernel=kernel,
        height="i64(self.ampKernelHeightM1) + 1",
        units=(8 // partials.bytes, loaded),
    )
    body = form.body(
        f"((i64(self.transformedInStride) - 1) * {loaded} // in_channels + 1)",
        f"(i64(self.transformedInRowStride) * {loaded} // in_channels)",
    )

    def cycles(v: Any, ipu: Ipu) -> Int64:
        outer, inner, height = (np.asarray(getattr(v, n), np.int64) + 1 for n in sizes)
        load = ipu.amp.wide_weight_load_bytes_per_cycle if wide_loads else ipu.amp.weight_load_bytes_per_cycle
        work = form.work(v, outer * height, inner)
        costs = {int(h): cost.amp_nx1(work, units, load, height=int(h)) for h in np.unique(height)}
        return np.asarray(np.select([height == h for h in costs], list(costs.values())), np.int64)

    defaults = {"zerosInfo": 0, "transformedOutStride": 0, "ampKernelHeightM1": 0, "transformedInRowStride": 0}
    return Instance("SupervisorVertex", form.fields(), body, cycles, defaults=defaults)


def _horizontal(dtype: ElementType, partials: ElementType, limited: bool) -> Instance:
    if dtype == f32 and partials == f16:
        raise refuse("float inputs do not make half partials", "half inputs, or float partials")
    sizes: Sequence[str] = ("kernelSizeM1",)
    form = _VertexNames(
        dtype=dtype,
        partials=partials,
        limited=limited,
        sizes=tuple(sizes),
        kernel="(i64(self.kernelSizeM1) + 1)",
        height="1",
        units=(0, 0),
    )

    def cycles(v: Any, ipu: Ipu) -> Int64:
        taps = np.asarray(v.kernelSizeM1, np.int64) + 1
        return cost.hmac(form.work(v, np.ones_like(taps), taps))

    defaults = {"zerosInfo": 0, "transformedOutStride": 0}
    body = form.body("i64(self.transformedInStride)", "0")
    return Instance("SupervisorVertex", form.fields(), body, cycles, defaults=defaults)
