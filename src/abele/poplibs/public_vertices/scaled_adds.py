"""Scaled additions in place, the update step of most training algorithms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.machine import Ipu
from abele.numerics import ElementType, f16, f32, i32, u16, u32
from abele.poplibs.popops.elementwise.scaled_add import CHECK_CYCLES, LOOP_SLOTS, scaled_add_cycles
from abele.poplibs.public_vertices.elementwise import sum_rows
from abele.poplibs.public_vertices.family import Family, Instance, refuse
from abele.poplibs.public_vertices.parameters import TemplateParameter, flag, type_of
from abele.poplibs.public_vertices.text import loop, one, row_loop, rows, state, vector, wide

ROWS_ENTRY, ROW_SLOTS = 15, 6
"""Worker slots of the vertices on rows before the first row, and before the loop of each: the terms of the vertices on
one vector (machine reference §4.8, ScaledAdd), whose worker walks one row."""
TOLERANCE = 1e-6


@dataclass(frozen=True)
class _ScaledAddNames:
    """One scaled addition: A ← first·A + B·second.

    Attributes:
        name: Its name without what tells vectors from rows.
        minus: True if B is subtracted.
        scales_a: True if A is scaled.
        takes_away: True if it is A − scaleA·A.
        constant: True if scales may be numbers.
    """

    name: str
    minus: bool = False
    scales_a: bool = False
    takes_away: bool = False
    constant: bool = True

    @property
    def meaning(self) -> str:
        """In words."""
        first = "A − scaleA·A" if self.takes_away else "scaleA·A" if self.scales_a else "A"
        return f"A ← {first} {'−' if self.minus else '+'} scaleB·B"

    def value(self, a: str, b: str, scale_a: str, scale_b: str) -> str:
        """The new element, of f32 or integers."""
        first = f"{a} - {scale_a} * {a}" if self.takes_away else f"{scale_a} * {a}" if self.scales_a else a
        return f"{first} {'-' if self.minus else '+'} {scale_b} * {b}"


_FORMS = (
    _ScaledAddNames("ScaledAdd"),
    _ScaledAddNames("ScaledSubtract", minus=True),
    _ScaledAddNames("aXPlusbY", scales_a=True),
    _ScaledAddNames("aXMinusbY", minus=True, scales_a=True),
    _ScaledAddNames("XMinusaXPlusbY", scales_a=True, takes_away=True),
)


def families() -> list[Family]:
    """Every vertex of this module."""
    found: list[Family] = []
    for form in _FORMS:
        lists = _parameters(form)
        example = ("float", "float", "float", "false", "false") if form.name == "ScaledAdd" else ()
        for by_rows in (False, True):
            name = form.name + ("2D" if by_rows else "Supervisor")
            found.append(
                Family(
                    name=name,
                    parameters=lists[0],
                    make=_maker(form, by_rows),
                    certainty="likely",
                    meaning=form.meaning,
                    others=tuple(lists[1:]),
                    example=example,
                )
            )
    floats = type_of(f32, f16)
    found.append(Family("HadamardProd", (floats,), _product, "likely", "A ← A · B, element by element"))
    return found


def _product(dtype: ElementType) -> Instance:
    a, b = wide("self.A[r][i]", dtype, f32), wide("self.B[r][i]", dtype, f32)
    fields = (rows("A", dtype, "InOut"), rows("B", dtype, inner="ONE_PTR"))

    def cycles(v: Any, ipu: Ipu) -> Int64:
        """Source: machine reference §4.8 (HadamardProd)."""
        taken = 6 + 2 * -(-v.A.lengths // ipu.vector_width(dtype))
        return np.asarray(5 + sum_rows(taken, v.A.row_begin), np.int64)

    return Instance(
        "Vertex", fields, tuple(row_loop("A", [f"self.A[r][i] = {wide(f'{a} * {b}', f32, dtype)}"])), cycles
    )


def _parameters(form: _ScaledAddNames) -> list[tuple[TemplateParameter, ...]]:
    """Types of A, of B and of the scale, whether scales are numbers, and whether memory is constrained; older versions
    have one type for some of these."""
    number = type_of(f32, f16, i32, u32, name="type of A")
    second = type_of(f32, f16, i32, u32, name="type of B")
    scale = type_of(f32, f16, i32, u32, name="type of the scale")
    constant, memory = flag("isConstant"), flag("memConstraints")
    return [
        (number, second, scale, constant, memory),
        (number, second, constant, memory),
        (number, constant, memory),
        (number, second, scale, memory),
        (number, scale, memory),
        (number, memory),
    ]


def _maker(form: _ScaledAddNames, by_rows: bool) -> Callable[..., Instance]:
    def make(*arguments: Any) -> Instance:
        types = [a for a in arguments if isinstance(a, ElementType)]
        flags = [a for a in arguments if isinstance(a, bool)]
        a = types[0]
        if (form.scales_a and len(types) == 2) or (len(types) == 2 and len(flags) == 1):
            b, scale = a, types[1]
        else:
            b, scale = types[1] if len(types) > 1 else a, types[-1]
        if len({a.is_float, b.is_float, scale.is_float}) > 1:
            raise refuse(f"{form.name} of {a} and {b} with a scale of {scale} mixes floats and integers")
        is_constant = len(flags) == 2 and flags[0]
        return _vertex(form, by_rows, a, b=b, scale=scale, constant=is_constant, memory=flags[-1])

    return make


def _vertex(
    form: _ScaledAddNames,
    by_rows: bool,
    a: ElementType,
    b: ElementType,
    scale: ElementType,
    constant: bool,
    memory: bool,
) -> Instance:
    kind = f32 if a.is_float else a
    declare, at = (rows, "[r][i]") if by_rows else (vector, "[i]")
    fields = [declare("A", a, "InOut", "SPAN" if by_rows else "ONE_PTR"), declare("B", b, "Input", "ONE_PTR")]
    fields += [] if by_rows else [state("size", u16)]
    scales = ["scaleA", "scaleB"] if form.scales_a else ["scaleB"]
    fields += [state(n, scale) if constant else one(n, scale) for n in scales]
    checks = scale == f32 and a == b == f16 and not constant
    fields += [state("tolerance", f32)] if checks else []
    head = [f"{n} = {wide(f'self.{n}', scale, kind)}" for n in scales]
    value = form.value(f"{wide(f'self.A{at}', a, kind)}", wide(f"self.B{at}", b, kind), "scaleA", "scaleB")
    line = f"self.A{at} = {value}" if a == kind else f"self.A{at} = {a.name}({value})"
    body = row_loop("A", [line]) if by_rows else loop("i64(self.size)", [line])
    extra = CHECK_CYCLES * len(scales) if checks else 0
    defaults = {"tolerance": TOLERANCE} if checks else {}
    formula = _rows_slots(a, b, extra) if by_rows else _vector_cycles(form, a, b, memory, extra)
    return Instance(
        "Vertex" if by_rows else "SupervisorVertex",
        tuple(fields),
        (*head, *body),
        formula,
        defaults=defaults,
    )


def _vector_cycles(
    form: _ScaledAddNames, a: ElementType, b: ElementType, memory: bool, extra: int
) -> Callable[..., Int64]:
    def cycles(v: Any, ipu: Ipu) -> Int64:
        size = np.asarray(v.size, np.int64)
        return extra + scaled_add_cycles(
            size, a, b, ipu, subtract=form.minus, scales_both=form.scales_a, constrained=memory
        )

    return cycles


def _rows_slots(a: ElementType, b: ElementType, extra: int) -> Callable[..., Int64]:
    """Slots of rows. Source: machine reference §4.8 (ScaledAdd: 4 slots behind a loop, and the remainder)."""

    def cycles(v: Any, ipu: Ipu) -> Int64:
        width = ipu.vector_width(a)
        loops, rest = v.A.lengths // width, v.A.lengths % width > 0
        taken = ROW_SLOTS + LOOP_SLOTS[a.bits, b.bits] * np.maximum(loops - 1, 0) + 4 + 2 * rest
        return np.asarray(ROWS_ENTRY + extra + sum_rows(taken, v.A.row_begin), np.int64)

    return cycles
