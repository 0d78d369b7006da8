"""Select and clamp: elements of one operand or another, and elements held between bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.machine import Ipu
from abele.numerics import ElementType, bool_, f16, f32, i32
from abele.poplibs.public_vertices.elementwise import sum_rows
from abele.poplibs.public_vertices.family import Family, Instance
from abele.poplibs.public_vertices.parameters import SIMPLE, type_of
from abele.poplibs.public_vertices.text import one, row_loop, rows

ENTRY, ROW = 5, 6
SELECT_ELEMENT, CLAMP_VECTOR = 5, 2
"""Worker slots of Select and Clamp: entering, a row, and each element or each vector of it.
Source: machine reference §4.8."""


def families() -> list[Family]:
    """Every vertex of this module."""
    any_type, numbers = (type_of(*SIMPLE),), (type_of(f32, f16, i32),)
    chosen = "in1 where in3, else in2"
    return [
        Family("Select", any_type, _vertex("rrr", _select), "sure", chosen),
        Family("BroadcastSelect", any_type, _vertex("ssr", _select), "sure", f"{chosen}; in1 and in2 are single"),
        Family("BroadcastSelectorSelect", any_type, _vertex("rrs", _select), "sure", f"{chosen}; in3 is single"),
        Family("SelectInPlace", any_type, _vertex("Rrr", _select), "sure", f"{chosen}, in place of in1"),
        Family(
            "BroadcastSelectorSelectInPlace", any_type, _vertex("Rrs", _select), "sure", f"{chosen}, in place of in1"
        ),
        Family("Clamp", numbers, _vertex("rrr", _clamp), "sure", "in1 held between in2 and in3"),
        Family("ClampInPlace", numbers, _vertex("Rrr", _clamp), "sure", "in1 held between in2 and in3, in place"),
        Family("BroadcastClamp", numbers, _vertex("rss", _clamp), "sure", "in1 held between two single bounds"),
        Family("BroadcastClampInPlace", numbers, _vertex("Rss", _clamp), "sure", "the same, in place"),
    ]


def _select(a: str, b: str, c: str) -> str:
    return f"{a} if {c} else {b}"


def _clamp(a: str, b: str, c: str) -> str:
    return f"min(max({a}, {b}), {c})"


def _vertex(operands: str, meaning: Callable[[str, str, str], str]) -> Callable[..., Instance]:
    """A vertex of three operands, each ``r``: rows, ``R``: rows that are overwritten, or ``s``: a single element."""
    chooses = meaning is _select
    in_place = operands[0] == "R"

    def make(dtype: ElementType) -> Instance:
        types = (dtype, dtype, bool_ if chooses else dtype)
        fields, texts = [], []
        for n, (how, type_) in enumerate(zip(operands, types, strict=True), 1):
            name = "in1Out" if how == "R" else f"in{n}"
            way = "InOut" if how == "R" else "Input"
            inner = "SPAN" if how == "R" else "ONE_PTR"
            fields.append(one(name, type_) if how == "s" else rows(name, type_, way, inner, 4))
            texts.append(f"self.{name}" if how == "s" else f"self.{name}[r][i]")
        out = "in1Out" if in_place else "out"
        if not in_place:
            fields.append(rows("out", dtype, "Output", align=4))
        body = row_loop(out, [f"self.{out}[r][i] = {meaning(*texts)}"])

        def cycles(v: Any, ipu: Ipu) -> Int64:
            found = getattr(v, out)
            if chooses:
                taken = ROW + SELECT_ELEMENT * found.lengths
            else:
                taken = ROW + CLAMP_VECTOR * -(-found.lengths // ipu.vector_width(dtype))
            return np.asarray(ENTRY + sum_rows(taken, found.row_begin), np.int64)

        return Instance("Vertex", tuple(fields), tuple(body), cycles)

    return make
