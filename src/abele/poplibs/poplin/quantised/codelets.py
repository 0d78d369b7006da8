"""Vertices over quantised weights on tiles."""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache

from abele.codelet import Input, MultiVertex, Output, Vector, codelet, macro
from abele.numerics import ElementType, f32, i32, i64


@macro
def _number(self, kind, at):
    """The number of one code, before scale and offset."""
    if kind == "int4":
        code = i32(self.codes[at // 2])
        return f32(code & 15 if at % 2 == 0 else code >> 4)
    return f32(self.codes[at])


@cache
def product_codelet(kind: str, codes: ElementType, scales: ElementType, given: ElementType, shift: str) -> type:
    """Sums of some outputs over some groups, for all rows of x.

    Args:
        kind: Kind of the codes.
        codes: Their element type.
        scales: Of scales and offsets.
        given: Of x.
        shift: ``offsets`` if groups have them, ``centre`` if codes count from 8, or ``none``.
    """
    held_codes, held_scales, x_kind = codes, scales, given

    @codelet(name="QuantisedProduct")
    class QuantisedProduct(MultiVertex):
        codes: Input[Vector[held_codes]]
        scales: Input[Vector[held_scales]]
        if shift == "offsets":
            offsets: Input[Vector[held_scales]]
        x: Input[Vector[x_kind]]
        out: Output[Vector[f32]]
        rows: i32
        groups: i32
        group: i32

        def compute(self, worker_id):
            rows = i64(self.rows)
            groups = i64(self.groups)
            group = i64(self.group)
            outputs = i64(len(self.out)) // rows
            for o in range(worker_id, outputs, self.num_workers):
                for b in range(rows):
                    total = f32(0.0)
                    for g in range(groups):
                        products = f32(0.0)
                        sums = f32(0.0)
                        at = (o * groups + g) * group
                        for c in range(group):
                            value = f32(self.x[(b * groups + g) * group + c])
                            products += _number(self, kind, at + c) * value
                            sums += value
                        scale = f32(self.scales[o * groups + g])
                        if shift == "offsets":
                            total += f32(self.offsets[o * groups + g]) * sums
                        if shift == "centre":
                            total -= f32(8.0) * scale * sums
                        total += scale * products
                    self.out[b * outputs + o] = total

        @staticmethod
        def cycles(v, ipu):
            raise AssertionError("cycles are given with the vertices")

    return QuantisedProduct


@cache
def dequantise_codelet(kind: str, codes: ElementType, scales: ElementType, made: ElementType, shift: str) -> type:
    """Groups of codes as numbers; arguments as of :func:`product_codelet`, ``made`` the type of the numbers."""
    held_codes, held_scales, out_kind = codes, scales, made

    @codelet(name="Dequantise")
    class Dequantise(MultiVertex):
        codes: Input[Vector[held_codes]]
        scales: Input[Vector[held_scales]]
        if shift == "offsets":
            offsets: Input[Vector[held_scales]]
        out: Output[Vector[out_kind]]
        group: i32

        def compute(self, worker_id):
            group = i64(self.group)
            for g in range(worker_id, i64(len(self.scales)), self.num_workers):
                scale = f32(self.scales[g])
                for c in range(group):
                    number = _number(self, kind, g * group + c)
                    if shift == "centre":
                        number -= f32(8.0)
                    number = number * scale
                    if shift == "offsets":
                        number = number + f32(self.offsets[g])
                    self.out[g * group + c] = out_kind(number)

        @staticmethod
        def cycles(v, ipu):
            raise AssertionError("cycles are given with the vertices")

    return Dequantise
