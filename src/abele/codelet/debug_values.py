"""Values of debug mode: NumPy scalars that behave, bit for bit, as compiled code does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from abele.codelet.functions import VertexFunction
from abele.codelet.reductions import IDENTITY, LANES
from abele.codelet.rounding import PlainRounding
from abele.llvm.random import hash_u32
from abele.numerics import ElementType, as_element_type, bool_, f32, to_device, to_host

Number = Any


def index_range(start: Number, stop: Number, step: int) -> Iterator[Number]:
    """The values of a loop variable."""
    return map(np.int64, range(int(start), int(stop), step))


def floor_divide(x: Number, y: Number) -> Number:
    """``x // y`` of integers; 0 where y is 0."""
    return x // y if y else type(x)(0)


def modulo(x: Number, y: Number) -> Number:
    """``x % y`` of integers; 0 where y is 0."""
    return x % y if y else type(x)(0)


def shift_left(x: Number, y: Number) -> Number:
    """``x << y``, the count modulo the width."""
    return x << (y & type(y)(x.itemsize * 8 - 1))


def shift_right(x: Number, y: Number) -> Number:
    """``x >> y``, the count modulo the width."""
    return x >> (y & type(y)(x.itemsize * 8 - 1))


def smaller(x: Number, y: Number) -> Number:
    """``min(x, y)``: x, unless y is less, or not a number."""
    return y if y < x or y != y else x


def larger(x: Number, y: Number) -> Number:
    """``max(x, y)``: x, unless y is greater, or not a number."""
    return y if y > x or y != y else x


def absolute(x: Number) -> Number:
    """The absolute value."""
    return abs(x)


def random_word(seed0: Number, seed1: Number, modifier: Number, index: Number) -> Number:
    """The random word of an element."""
    return np.uint32(hash_u32(seed0, seed1, modifier, index))


def constant(value: float | int | bool, type_: ElementType) -> Number:
    """A number as a scalar of ``type_``."""
    return to_device([value], type_)[0] if type_.is_quarter else type_.np.type(value)


def conversion(have: ElementType, wanted: ElementType, rounding: PlainRounding) -> Callable[[Number], Number]:
    """The function that converts scalars of ``have`` to ``wanted``; ``rounding`` says how to narrow floats."""
    target = wanted.np.type
    if have.is_quarter:
        return _after(lambda x: to_host(np.atleast_1d(x), have)[0], conversion(f32, wanted, rounding))
    if wanted.is_narrow and (wanted.is_quarter or not rounding.is_plain):
        return _after(np.float32, rounding.to(wanted))
    if wanted == bool_:
        return lambda x: np.bool_(x != 0)
    if have.is_float and not wanted.is_float:
        return lambda x: target(_saturated(float(x), wanted))
    if wanted.is_float and wanted != f32 and not have.is_float:
        return lambda x: target(np.float32(x))
    if wanted.is_float:
        return lambda x: target(x)
    return lambda x: x.astype(wanted.np)


def _after(first: Callable[[Number], Number], then: Callable[[Number], Number]) -> Callable[[Number], Number]:
    return lambda x: then(first(x))


def _saturated(x: float, wanted: ElementType) -> int:
    """``x`` towards zero, limited to the range of ``wanted``; 0 for NaN."""
    limits = np.iinfo(wanted.np)
    if not limits.min <= x <= limits.max:
        return 0 if x != x else int(limits.min if x < 0 else limits.max)
    return min(int(x), int(limits.max))


def math_function(name: str, type_: ElementType, rounding: PlainRounding) -> Callable[..., Number]:
    """Function ``name`` of the language on scalars of ``type_``: computed in f32, rounded once."""
    if name == "random_u32":
        return random_word
    function, target = VertexFunction(name), type_.np.type
    if type_.is_narrow and not rounding.is_plain:
        narrow = rounding.to(type_)
        return lambda *args: narrow(function(*args))
    return lambda *args: target(function(*args))


BINARY: dict[str, Callable[[Number, Number], Number]] = {
    "floordiv": floor_divide,
    "mod": modulo,
    "shl": shift_left,
    "shr": shift_right,
    "min": smaller,
    "max": larger,
}
"""Operations that are more than an operator of NumPy scalars."""

_FLOAT: dict[str, Callable[[Number, Number], Number]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
}


def rounded_operation(op: str, type_: ElementType, rounding: PlainRounding) -> Callable[[Number, Number], Number]:
    """An operation on scalars of a narrow float: computed in f32, rounded once."""
    operation, narrow = _FLOAT[op], rounding.to(type_)
    return lambda x, y: narrow(operation(np.float32(x), np.float32(y)))


_COMBINE: dict[str, Callable[[Number, Number], Number]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "min": smaller,
    "max": larger,
}


class Lanes:
    """Accumulators of one loop, in the order that :mod:`abele.codelet.reductions` defines.

    Args:
        ops: Operation of each accumulator.
        values: Their values before the loop.
        start: Start of the loop.
        stop: Stop of the loop.
        step: Step of the loop.
        rounding: Rounding of results to narrow floats.
    """

    def __init__(
        self,
        ops: tuple[str, ...],
        values: tuple[Number, ...],
        start: Number,
        stop: Number,
        step: int,
        rounding: PlainRounding,
    ) -> None:
        self._combine = [_combination(op, v, rounding) for op, v in zip(ops, values, strict=True)]
        self._whole = len(range(int(start), int(stop), step)) // LANES * LANES
        self._values = values
        self._lanes = [tuple(type(v)(IDENTITY[op]) for v, op in zip(values, ops, strict=True))] * LANES
        self._k = 0

    def load(self) -> tuple[Number, ...]:
        """The accumulators as the next iteration finds them."""
        if self._k < self._whole:
            return self._lanes[self._k % LANES]
        if self._k == self._whole and self._whole:
            self._fold()
        return self._values

    def store(self, values: tuple[Number, ...]) -> None:
        """The accumulators as the iteration leaves them."""
        if self._k < self._whole:
            self._lanes[self._k % LANES] = values
        else:
            self._values = values
        self._k += 1

    def result(self) -> tuple[Number, ...]:
        """The accumulators after the loop."""
        if self._k == self._whole and self._whole:
            self._fold()
        return self._values

    def _fold(self) -> None:
        columns = zip(*self._lanes, strict=True)
        parts = zip(self._combine, self._values, columns, strict=True)
        self._values = tuple(_folded(combine, value, lanes) for combine, value, lanes in parts)
        self._whole = 0


def _combination(op: str, value: Number, rounding: PlainRounding) -> Callable[[Number, Number], Number]:
    type_ = as_element_type(value.dtype)
    plain = rounding.is_plain or not type_.is_narrow or op not in _FLOAT
    return _COMBINE[op] if plain else rounded_operation(op, type_, rounding)


def _folded(combine: Callable[[Number, Number], Number], value: Number, lanes: Sequence[Number]) -> Number:
    """An accumulator with its lanes: halved until one is left, which joins it."""
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [combine(a, b) for a, b in zip(lanes[:half], lanes[half:], strict=True)]
    return combine(value, lanes[0])
