"""The operations that host kernels compute with: arity, types and meaning of each, as one table."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

FLOAT = frozenset({"float"})
NUMBER = frozenset({"float", "int", "uint"})
BITS = frozenset({"int", "uint", "bool"})
ANY = frozenset({"float", "int", "uint", "bool"})


@dataclass(frozen=True)
class Op:
    """One operation of :class:`abele.kernels.nest.ir.Apply`.

    Attributes:
        name: Name as written in ``Apply``.
        arity: Number of arguments.
        kinds: Element kinds that its arguments may have; all arguments have one type (``select``: the last two).
        meaning: What it computes, on NumPy arrays.
        compares: Whether the result is a bool whatever the arguments are.
        symbol: Infix sign of listings, or None for call form.
    """

    name: str
    arity: int
    kinds: frozenset[str]
    meaning: Callable[..., Array]
    compares: bool = False
    symbol: str | None = None


def _erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x), x.dtype)


def _divide(x: Array, y: Array) -> Array:
    """x / y; for integers truncated, and 0 where y is 0."""
    if x.dtype.kind == "f":
        return np.divide(x, y)
    special = (y == 0) | ((y == -1) & (x.dtype.kind == "i"))
    safe = np.where(special, y.dtype.type(1), y)
    down = x // safe
    quotient = down + ((x - down * safe != 0) & ((x < 0) != (safe < 0)))
    return np.asarray(np.where(y == 0, 0, np.where(special, -x, quotient)), x.dtype)


def _shifted(shift: Callable[..., Array]) -> Callable[..., Array]:
    """A shift whose count is taken modulo the width."""
    return lambda x, y: shift(x, y & y.dtype.type(y.dtype.itemsize * 8 - 1))


def _logistic(x: Array) -> Array:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)), x.dtype)


_TABLE = (
    Op("add", 2, NUMBER, np.add, symbol="+"),
    Op("sub", 2, NUMBER, np.subtract, symbol="-"),
    Op("mul", 2, NUMBER, np.multiply, symbol="*"),
    Op("div", 2, NUMBER, _divide, symbol="/"),
    Op("pow", 2, FLOAT, np.power),
    Op("max", 2, NUMBER, np.maximum),
    Op("min", 2, NUMBER, np.minimum),
    Op("neg", 1, NUMBER, np.negative),
    Op("abs", 1, NUMBER, np.abs),
    Op("exp", 1, FLOAT, np.exp),
    Op("log", 1, FLOAT, np.log),
    Op("tanh", 1, FLOAT, np.tanh),
    Op("sigmoid", 1, FLOAT, _logistic),
    Op("erf", 1, FLOAT, _erf),
    Op("sin", 1, FLOAT, np.sin),
    Op("cos", 1, FLOAT, np.cos),
    Op("sqrt", 1, FLOAT, np.sqrt),
    Op("rsqrt", 1, FLOAT, lambda x: 1 / np.sqrt(x)),
    Op("inv", 1, FLOAT, lambda x: 1 / x),
    Op("square", 1, NUMBER, np.square),
    Op("relu", 1, NUMBER, lambda x: np.maximum(x, x.dtype.type(0))),
    Op("floor", 1, FLOAT, np.floor),
    Op("ceil", 1, FLOAT, np.ceil),
    Op("round", 1, FLOAT, np.rint),
    Op("eq", 2, ANY, np.equal, compares=True, symbol="=="),
    Op("ne", 2, ANY, np.not_equal, compares=True, symbol="!="),
    Op("lt", 2, NUMBER, np.less, compares=True, symbol="<"),
    Op("le", 2, NUMBER, np.less_equal, compares=True, symbol="<="),
    Op("gt", 2, NUMBER, np.greater, compares=True, symbol=">"),
    Op("ge", 2, NUMBER, np.greater_equal, compares=True, symbol=">="),
    Op("and", 2, BITS, np.bitwise_and, symbol="&"),
    Op("or", 2, BITS, np.bitwise_or, symbol="|"),
    Op("xor", 2, BITS, np.bitwise_xor, symbol="^"),
    Op("not", 1, BITS, np.invert),
    Op("shl", 2, BITS - {"bool"}, _shifted(np.left_shift), symbol="<<"),
    Op("shr", 2, BITS - {"bool"}, _shifted(np.right_shift), symbol=">>"),
    Op("select", 3, ANY, np.where),
)

OPS: dict[str, Op] = {op.name: op for op in _TABLE}

COMBINES: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def identity(combine: str, dtype: np.dtype[Any]) -> Any:
    """The value that ``combine`` starts from, as a scalar of ``dtype``: 0, 1, or the lowest or highest value."""
    if combine in ("add", "mul"):
        return dtype.type(combine == "mul")
    if dtype.kind == "f":
        return dtype.type(-np.inf if combine == "max" else np.inf)
    limits = np.iinfo(dtype)
    return dtype.type(limits.min if combine == "max" else limits.max)
