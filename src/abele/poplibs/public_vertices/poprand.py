"""The vertices of poprand: random numbers from the generators of the workers.

The generators of the machine are stood for by a stream of each vertex's own: numbers depend on which vertex of its kind
it is in the graph and on how often it has run, not on tiles or threads, and start again when a program is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.machine import Ipu
from abele.numerics import ElementType, f16, f32, i32, u32
from abele.poplibs.poprand.distributions import INTEGER_CYCLES, VECTOR_CYCLES
from abele.poplibs.poprand.draw import UNIT, DrawCycles
from abele.poplibs.public_vertices.family import DRAWS, STREAM, Family, Instance
from abele.poplibs.public_vertices.parameters import type_of
from abele.poplibs.public_vertices.text import indented, loop, state, vector, wide

Formula = Callable[[Int64, Ipu], Int64]

WITHHELD = dict.fromkeys(
    ("SetSeed", "SetSeedSupervisor"),
    "a vertex does not reach the generators of its tile here; poprand.setSeed(graph, seed, modifier, prog) seeds them",
)


def families() -> Iterable[Family]:
    """Every vertex of poprand."""
    floats, numbers = (type_of(f32, f16),), (type_of(f32, f16, i32),)
    found: list[Family] = []
    found += Family(
        "Uniform", numbers, _uniform, "likely", "offset + scale · u, u uniform in [−½, ½); of int see UniformInt"
    ).called("UniformSupervisor")
    found += Family(
        "UniformInt", (type_of(i32),), _uniform_int, "likely", "offset + a whole number below scale; of 0 any"
    ).called("UniformIntSupervisor")
    found += Family("Normal", floats, _normal, "sure", "normally distributed: mean, stdDev").called("NormalSupervisor")
    found += Family(
        "TruncatedNormal",
        floats,
        _truncated,
        "sure",
        "within alpha deviations: drawn again so many iterations, then triangular",
    ).called("TruncatedNormalSupervisor")
    found += Family("Bernoulli", numbers, _bernoulli, "likely", "1 with a probability of prob / 65536, else 0").called(
        "BernoulliSupervisor"
    )
    found += Family(
        "Dropout", floats, _dropout, "likely", "in · scale with a probability of prob / 65536, else 0"
    ).called("DropoutSupervisor")
    return found


def _bits(number: int, count: int = 1) -> str:
    """Random bits of element i, the one of ``count`` of this number."""
    index = f"i * {count} + {number}" if count > 1 else "i"
    return f"random_u32(self.{STREAM}, self.{DRAWS}, 0, {index})"


def _unit(bits: str) -> str:
    return f"f32({bits} >> 8) * {UNIT!r}"


def _drawn(dtype: ElementType, fields: Sequence[str], body: Sequence[str], formula: Formula, **more: Any) -> Instance:
    lines = [*loop("len(self.out)", body), f"self.{DRAWS} = self.{DRAWS} + u32(1)"]
    out = vector("out", dtype, "Output")
    return Instance(
        "SupervisorVertex",
        (out, *fields),
        tuple(lines),
        lambda v, ipu: formula(np.asarray(v.out, np.int64), ipu),
        draws=True,
        **more,
    )


def _uniform(dtype: ElementType) -> Instance:
    if not dtype.is_float:
        return _uniform_int(dtype)
    fields = [state("scale", f32), state("offset", f32), state("shift", u32)]
    value = f"({_unit(_bits(0))} - 0.5) * self.scale + self.offset"
    body = [f"self.out[i] = {wide(value, f32, dtype)}"]
    prologue = 22 if dtype == f32 else 24
    return _drawn(dtype, fields, body, DrawCycles(4, prologue, VECTOR_CYCLES, dtype), defaults={"shift": 0})


def _uniform_int(dtype: ElementType) -> Instance:
    fields = [state("scale", u32), state("offset", i32), state("shift", u32)]
    body = [
        f"bits = {_bits(0)}",
        "if self.scale != 0:",
        "    bits = u32(u64(bits) * u64(self.scale) >> 32)",
        "self.out[i] = self.offset + i32(bits)",
    ]
    return _drawn(dtype, fields, body, DrawCycles(4, 22, INTEGER_CYCLES, dtype), defaults={"shift": 0})


def _gauss(first: str, second: str) -> list[str]:
    """Statements that set ``x`` to a normally distributed number, by Box and Muller's transform."""
    return [
        f"radius = {_unit(first)} + {UNIT!r}",
        f"angle = {_unit(second)} * 6.283185307179586",
        "x = sqrt(log(radius) * -2.0) * cos(angle)",
    ]


def _normal(dtype: ElementType) -> Instance:
    body = [*_gauss(_bits(0, 2), _bits(1, 2)), f"self.out[i] = {wide('x * self.stdDev + self.mean', f32, dtype)}"]
    fields = [state("mean", f32), state("stdDev", f32)]
    return _drawn(dtype, fields, body, DrawCycles(4, 22 if dtype == f32 else 24, VECTOR_CYCLES, dtype))


def _truncated(dtype: ElementType) -> Instance:
    fields = [state("mean", f32), state("stdDev", f32), state("alpha", f32), state("iterations", u32)]
    rounds = "i64(self.iterations)"
    bits = f"random_u32(self.{STREAM}, self.{DRAWS}, 0, (i * ({rounds} + 1) + {{}}) * 2 + {{}})"
    body = [
        "x = self.alpha + 1.0",
        "k = i64(0)",
        f"while k < {rounds} and abs(x) > self.alpha:",
        *indented([*_gauss(bits.format("k", 0), bits.format("k", 1)), "k = k + 1"]),
        "if abs(x) > self.alpha:",
        f"    x = ({_unit(bits.format(rounds, 0))} + {_unit(bits.format(rounds, 1))} - 1.0) * self.alpha",
        f"self.out[i] = {wide('x * self.stdDev + self.mean', f32, dtype)}",
    ]
    made = _drawn(dtype, fields, body, DrawCycles(0, 0, 0, dtype))

    def cycles(v: Any, ipu: Ipu) -> Int64:
        """Source: machine reference §4.11 (TruncatedNormal)."""
        vectors = -(-np.asarray(v.out, np.int64) // ipu.vector_width(dtype))
        each, entry = (11, 26) if dtype == f32 else (12, 28)
        return 4 + ipu.num_workers * entry + (each * np.asarray(v.iterations, np.int64) + 5) * vectors

    return Instance(made.kind, made.fields, made.body, cycles, draws=True)


def _bernoulli(dtype: ElementType) -> Instance:
    one, zero = ("1.0", "0.0") if dtype.is_float else ("1", "0")
    body = [f"self.out[i] = {dtype.name}({one}) if {_bits(0)} >> 16 < self.prob else {dtype.name}({zero})"]
    prologue = 23 if dtype.bits == 32 else 21
    return _drawn(dtype, [state("prob", u32)], body, DrawCycles(4, prologue, VECTOR_CYCLES, dtype))


def _dropout(dtype: ElementType) -> Instance:
    fields = [
        vector("in_", dtype, "Input", "ONE_PTR"),
        state("numElems", u32),
        state("scale", dtype),
        state("prob", u32),
    ]
    value = f"{wide('self.in_[i]', dtype, f32)} * {wide('self.scale', dtype, f32)}"
    body = [
        "if i < i64(self.numElems):",
        f"    self.out[i] = {wide(value, f32, dtype)} if {_bits(0)} >> 16 < self.prob else {dtype.name}(0.0)",
    ]
    return _drawn(dtype, fields, body, DrawCycles(6, 24, 2.0, dtype))
