"""Rounding of results to narrow floats: to nearest or at random, beyond the largest number or held at it.

Random rounding hashes a seed, the vertex and its worker, and how many results that worker has rounded before. So a
vertex draws the same numbers on any number of threads, compiled or in debug mode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.llvm import ir as ll
from abele.llvm.emit import I32, I64, Value, constant, like
from abele.llvm.random import emit_hash_u32, hash_u32
from abele.numerics import ElementType
from abele.numerics.narrow import round_at_random, round_to_nearest

WORKERS = 8
"""Power of two of numbers per vertex for its workers, so that they are quick to tell apart."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """A way of rounding to narrow floats.

    Attributes:
        is_random: True if results are rounded up or down with the odds that keep their mean, instead of to nearest.
        saturates: True if what is too large becomes the largest number, instead of infinity (f16, bf16) or NaN (8-bit
            floats).
    """

    is_random: bool = False
    saturates: bool = False

    def __str__(self) -> str:
        parts = ["rounded at random"] * self.is_random + ["held at the largest number"] * self.saturates
        return " and ".join(parts) or "rounded to nearest"


NEAREST = Rounding()


class Draws:
    """The random words of the vertex at hand, in native code.

    Args:
        builder: At the start of the function.
        seed: The seed, i64.
    """

    def __init__(self, builder: ll.IRBuilder, seed: Value) -> None:
        self._seed = [builder.trunc(s, I32) for s in (seed, builder.lshr(seed, constant(I64, 32)))]
        with builder.goto_entry_block():
            self._count, self._stream = (builder.alloca(I32, name=n) for n in ("draws", "stream"))

    def begin(self, builder: ll.IRBuilder, vertex: Value, worker: Value | None) -> None:
        """Start over for a worker of a vertex."""
        # One stream of numbers per worker of a vertex.
        stream = builder.mul(vertex, constant(I64, WORKERS))
        stream = stream if worker is None else builder.add(stream, worker)
        builder.store(builder.trunc(stream, I32), self._stream)
        builder.store(constant(I32, 0), self._count)

    def next(self, builder: ll.IRBuilder, value: Value) -> Value:
        """Random words, one for each lane of ``value``."""
        is_vector = isinstance(value.type, ll.VectorType)
        lanes = value.type.count if is_vector else 1
        index = first = builder.load(self._count, typ=I32)
        builder.store(builder.add(first, constant(I32, lanes)), self._count)
        if is_vector:
            wide = like(value, I32)
            one = builder.insert_element(ll.Constant(wide, ll.Undefined), first, constant(I32, 0))
            all_ = builder.shuffle_vector(one, one, constant(ll.VectorType(I32, lanes), 0))
            # Lane n has the number that the n-th scalar draw would have had.
            index = builder.add(all_, ll.Constant(wide, [ll.Constant(I32, n) for n in range(lanes)]))
        low, high = self._seed
        return emit_hash_u32(builder, low, high, builder.load(self._stream, typ=I32), index)


class PlainRounding:
    """Rounds one scalar after the other, for debug mode.

    Attributes:
        way: Kind of rounding.
    """

    def __init__(self, way: Rounding) -> None:
        self.way = way
        self._seed = (0, 0)
        self._stream = self._count = 0

    @property
    def is_plain(self) -> bool:
        """True if NumPy's scalars round this way themselves."""
        return self.way == NEAREST

    def begin(self, seed: int, vertex: int, worker: int | None) -> None:
        """Start over for a worker of a vertex."""
        self._seed = (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)
        self._stream, self._count = vertex * WORKERS + (worker or 0), 0

    def to(self, type_: ElementType) -> Callable[[Any], Any]:
        """The function that rounds f32 scalars to ``type_``."""
        return lambda value: self._rounded(value, type_)

    def _rounded(self, value: Any, type_: ElementType) -> Any:
        saturate = self.way.saturates
        if not self.way.is_random:
            return round_to_nearest([value], type_, saturate=saturate)[0]
        word = hash_u32(*self._seed, self._stream, self._count)
        self._count += 1
        return round_at_random([value], type_, np.atleast_1d(word), saturate=saturate)[0]
