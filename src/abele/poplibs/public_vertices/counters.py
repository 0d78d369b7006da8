"""Vertices that move a counter on: of loops, and of circular buffers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from abele.arrays import Int64
from abele.numerics import ElementType, i32, u32
from abele.poplibs.popops.programs.loops import COUNTER_CYCLES
from abele.poplibs.public_vertices.family import Family, Instance
from abele.poplibs.public_vertices.parameters import type_of
from abele.poplibs.public_vertices.text import one, state


def families() -> list[Family]:
    """Every vertex of this module."""
    words = type_of(i32, u32)
    return [
        Family(
            "ForLoopCounter",
            (words,),
            _counter,
            "likely",
            "comparisonResult = count ≠ limit, after count += increment",
        ),
        Family("CircBufIncrIndex", (), _increase, "sure", "index = (index + 1) mod hSize"),
        Family("CircOffset", (), _offset, "sure", "indexOut = (indexIn + offset) mod hSize"),
    ]


def _each(value: int) -> Callable[..., Int64]:
    """A cost that is the same for all vertices."""
    return lambda v, ipu: np.full(v.num, value, np.int64)


def _counter(dtype: ElementType) -> Instance:
    fields = (
        one("count", dtype, "InOut"),
        one("limit", dtype),
        one("comparisonResult", u32, "Output"),
        state("increment", dtype),
    )
    body = ("self.count = self.count + self.increment", "self.comparisonResult = u32(self.count != self.limit)")
    return Instance("Vertex", fields, body, _each(COUNTER_CYCLES))


def _increase() -> Instance:
    body = ("self.index = (self.index + u32(1)) % self.hSize",)
    return Instance("Vertex", (one("index", u32, "InOut"), state("hSize", u32)), body)


def _offset() -> Instance:
    fields = (one("indexIn", u32), one("indexOut", u32, "Output"), state("hSize", u32), state("offset", u32))
    return Instance("Vertex", fields, ("self.indexOut = (self.indexIn + self.offset) % self.hSize",))
