"""Pooling of the windows that work lists name.

Each row of ``workList`` has three numbers for each run of a worker: the first output position, the first input
position, and how many more there are. The rows of all workers are walked; ``startPos`` tells a worker of the machine
which are its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from abele.numerics import ElementType, f16, f32, u16
from abele.poplibs.public_vertices.family import Family, Instance
from abele.poplibs.public_vertices.parameters import type_of
from abele.poplibs.public_vertices.text import indented, loop, row_loop, rows, state, wide

Step = Literal["max", "sum", "grad"]


def families() -> list[Family]:
    """Every vertex of this module."""
    floats = (type_of(f32, f16),)
    return [
        Family("MaxPooling", floats, _pool("max"), "guessed", "the largest of in that the work lists give each output"),
        Family("SumPooling", floats, _pool("sum"), "guessed", "their sum, each times scale"),
        Family(
            "MaxPoolingGrad",
            floats,
            _pool("grad"),
            "guessed",
            "the sum of in where fwdActsIn of the output is fwdActsOut of the input",
        ),
    ]


def _walk(body: list[str]) -> list[str]:
    """Loops over groups of channels ``g``, runs and channels; ``o`` and ``p`` are elements of output and input."""
    return [
        "lanes = i64(self.chansPerGroupD) * width",
        *loop(
            "i64(self.numChanGroupsM1) + 1",
            loop(
                "len(self.workList)",
                loop(
                    "len(self.workList[row]) // 3",
                    [
                        "first = i64(self.workList[row][3 * item])",
                        "source = i64(self.workList[row][3 * item + 1])",
                        *loop(
                            "i64(self.workList[row][3 * item + 2]) + 1",
                            loop(
                                "lanes",
                                [
                                    "o = (first + k * i64(self.outStride)) * lanes + c",
                                    "p = (source + k * i64(self.inStride)) * lanes + c",
                                    *body,
                                ],
                                "c",
                            ),
                            "k",
                        ),
                    ],
                    "item",
                ),
                "row",
            ),
            "g",
        ),
    ]


_NUMBERS = ("initInfo", "numChanGroupsM1", "chansPerGroupD", "inStride", "outStride")
_LISTS = ["startPos: Input[Vector[u16, ONE_PTR]]", "workList: Input[VectorList[u16]]"]
_DEFAULTS = {"initInfo": 0, "inStride": 1, "outStride": 1}


def _pool(step: Step) -> Callable[..., Instance]:
    def make(dtype: ElementType) -> Instance:
        fields = [rows("out", dtype, "Output"), rows("in_", dtype, inner="ONE_PTR")]
        if step == "grad":
            fields += [rows(n, dtype, inner="ONE_PTR") for n in ("fwdActsIn", "fwdActsOut")]
        fields += [*_LISTS, *(state(n, u16) for n in _NUMBERS), *([state("scale", dtype)] if step == "sum" else [])]
        start = f"{dtype.name}({'-INF' if step == 'max' else '0.0'})"
        old, new = wide("self.out[g][o]", dtype, f32), wide("self.in_[g][p]", dtype, f32)
        if step == "max":
            body = [f"self.out[g][o] = {wide(f'max({old}, {new})', f32, dtype)}"]
        elif step == "sum":
            scaled = f"{old} + {new} * {wide('self.scale', dtype, f32)}"
            body = [f"self.out[g][o] = {wide(scaled, f32, dtype)}"]
        else:
            body = [
                "if self.fwdActsIn[g][o] == self.fwdActsOut[g][p]:",
                *indented([f"self.out[g][o] = {wide(f'{old} + {new}', f32, dtype)}"]),
            ]
        head = [f"width = {8 // dtype.bytes}", *row_loop("out", [f"self.out[r][i] = {start}"])]
        return Instance("SupervisorVertex", tuple(fields), (*head, *_walk(body)), defaults=_DEFAULTS)

    return make
