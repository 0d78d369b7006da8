"""Special functions as LLVM code: numbers are values of 64 bits that a builder appends to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from abele.llvm import ir as ll
from abele.llvm.emit import F64, I32, I64, Value, constant, intrinsic, like, polynomial
from abele.llvm.math import log_parts

_LOG2_E = 1.4426950408889634
_LN2 = (0.6931471803691238, 1.9082149292705877e-10)
"""ln 2 in two parts; products of the first with exponents are exact."""
_EXP = tuple(1.0 / math.factorial(k) for k in range(13))


class _Mask:
    """A condition in every lane."""

    def __init__(self, b: ll.IRBuilder, value: Value) -> None:
        self.b, self.value = b, value

    def __and__(self, other: _Mask) -> _Mask:
        return _Mask(self.b, self.b.and_(self.value, other.value))

    def __or__(self, other: _Mask) -> _Mask:
        return _Mask(self.b, self.b.or_(self.value, other.value))

    def __invert__(self) -> _Mask:
        return _Mask(self.b, self.b.not_(self.value))


class _Wide:
    """A number in 64 bits."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, b: ll.IRBuilder, value: Value) -> None:
        self.b, self.value = b, value

    def of(self, other: _Wide | float) -> Value:
        """Another number beside this one."""
        return other.value if isinstance(other, _Wide) else constant(self.value.type, float(other))

    def __add__(self, other: _Wide | float) -> _Wide:
        return _Wide(self.b, self.b.fadd(self.value, self.of(other)))

    def __sub__(self, other: _Wide | float) -> _Wide:
        return _Wide(self.b, self.b.fsub(self.value, self.of(other)))

    def __mul__(self, other: _Wide | float) -> _Wide:
        return _Wide(self.b, self.b.fmul(self.value, self.of(other)))

    def __truediv__(self, other: _Wide | float) -> _Wide:
        return _Wide(self.b, self.b.fdiv(self.value, self.of(other)))

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: float) -> _Wide:
        return _Wide(self.b, self.b.fsub(self.of(other), self.value))

    def __rtruediv__(self, other: float) -> _Wide:
        return _Wide(self.b, self.b.fdiv(self.of(other), self.value))

    def __neg__(self) -> _Wide:
        return _Wide(self.b, self.b.fneg(self.value))

    def __lt__(self, other: _Wide | float) -> _Mask:
        return _Mask(self.b, self.b.fcmp_ordered("<", self.value, self.of(other)))

    def __gt__(self, other: _Wide | float) -> _Mask:
        return _Mask(self.b, self.b.fcmp_ordered(">", self.value, self.of(other)))

    def __eq__(self, other: object) -> _Mask:  # type: ignore[override]
        assert isinstance(other, (_Wide, float))
        return _Mask(self.b, self.b.fcmp_ordered("==", self.value, self.of(other)))

    def __ne__(self, other: object) -> _Mask:  # type: ignore[override]
        assert isinstance(other, (_Wide, float))
        return _Mask(self.b, self.b.fcmp_unordered("!=", self.value, self.of(other)))


class _InCode:
    """The arithmetic of values of a builder."""

    def __init__(self, b: ll.IRBuilder, type_: ll.Type) -> None:
        self.b, self.type = b, type_

    def _number(self, x: _Wide | float) -> Value:
        return x.value if isinstance(x, _Wide) else constant(self.type, float(x))

    def select(self, condition: _Mask, then: _Wide | float, otherwise: _Wide | float) -> _Wide:
        return _Wide(self.b, self.b.select(condition.value, self._number(then), self._number(otherwise)))

    def sqrt(self, x: _Wide) -> _Wide:
        return _Wide(self.b, intrinsic(self.b, "llvm.sqrt", x.value))

    def floor(self, x: _Wide) -> _Wide:
        return _Wide(self.b, intrinsic(self.b, "llvm.floor", x.value))

    def abs(self, x: _Wide) -> _Wide:
        return _Wide(self.b, intrinsic(self.b, "llvm.fabs", x.value))

    def exp(self, x: _Wide) -> _Wide:
        b, kind = self.b, self.type
        bounded = self.select(x < -700.0, -700.0, self.select(x > 709.0, 709.0, x))
        bounded = self.select(x != x, 0.0, bounded)
        power = intrinsic(b, "llvm.rint", (bounded * _LOG2_E).value)
        rest = bounded - _Wide(b, power) * _LN2[0] - _Wide(b, power) * _LN2[1]
        number = b.sext(b.fptosi(power, like(power, I32)), like(power, I64))
        scale = b.bitcast(b.shl(b.add(number, constant(number.type, 1023)), constant(number.type, 52)), kind)
        value = _Wide(b, b.fmul(polynomial(b, rest.value, _EXP), scale))
        # Far out zero and infinity, as f32 has them; not-a-number stays.
        value = self.select(x < -700.0, 0.0, self.select(x > 709.0, math.inf, value))
        return self.select(x != x, math.nan, value)

    def log(self, x: _Wide) -> _Wide:
        b = self.b
        value = _Wide(b, log_parts(b, x.value))
        value = self.select(x == 0.0, -math.inf, self.select(x < 0.0, math.nan, value))
        return self.select((x == math.inf) | (x != x), x, value)


def emitter(algorithm: Callable[..., Any]) -> Callable[..., Value]:
    """Function that appends the code of an algorithm on f32 values: widened, computed, rounded once."""

    def emit(b: ll.IRBuilder, *args: Value) -> Value:
        wide = [b.fpext(a, like(a, F64)) for a in args]
        result = algorithm(_InCode(b, wide[0].type), *(_Wide(b, w) for w in wide))
        return b.fptrunc(result.value, args[0].type)

    return emit


class _Counter:
    """Number that counts the operations on it and on numbers made of it."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, counts: list[int]) -> None:
        self.counts = counts

    def _step(self, *_: object) -> _Counter:
        self.counts[0] += 1
        return _Counter(self.counts)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _step
    __neg__ = __lt__ = __gt__ = __and__ = __or__ = __invert__ = _step
    __eq__ = __ne__ = _step  # type: ignore[assignment]


class _Counting:
    """Arithmetic that counts: functions as the machine has them, or as many steps as their series have."""

    def __init__(self, counts: list[int]) -> None:
        self.counts = counts

    def _costing(self, slots: int) -> _Counter:
        self.counts[0] += slots
        return _Counter(self.counts)

    def select(self, *_: object) -> _Counter:
        return self._costing(1)

    def exp(self, _: object) -> _Counter:
        return self._costing(3)

    def log(self, _: object) -> _Counter:
        return self._costing(6)

    def sqrt(self, _: object) -> _Counter:
        return self._costing(3)

    def floor(self, _: object) -> _Counter:
        return self._costing(1)

    def abs(self, _: object) -> _Counter:
        return self._costing(1)


def num_operations(algorithm: Callable[..., Any], arity: int) -> int:
    """Operations that an algorithm does, each one issue slot; exp and log the slots that the machine takes for them."""
    counts = [0]
    algorithm(_Counting(counts), *(_Counter(counts) for _ in range(arity)))
    return counts[0]
