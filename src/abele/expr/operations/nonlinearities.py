"""The non-linearities of networks and their input gradients, as operations with costs of their own.

Source of the costs: machine reference §4.10 (NonLinearity1D: slots of one vector and of the vectors around the loop).
Non-linearities that PopLibs composes have the cost of their parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from abele.arrays import Array
from abele.expr import numpy_meaning as meaning
from abele.expr.nodes import Apply, Expr, apply, as_expr, select
from abele.expr.operation import (
    Expansion,
    LibraryCost,
    Meaning,
    Operation,
    Spelling,
    Types,
    find_operation,
    loop_cost,
)

_TANH_SCALE = math.sqrt(2.0 / math.pi)
_CUBE = 0.044715
_INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)

SUPERVISOR_CYCLES = 9
"""Starting the workers of a non-linearity. Source: machine reference §4.10."""


@dataclass(frozen=True)
class Nonlinearity:
    """One element-wise non-linearity of popnn.

    Attributes:
        name: Name in popnn.
        enumerator: In ``popnn::NonLinearityType``.
        op: Its operation.
        gradient: The operation of its input gradient, on an activation and the output gradient.
        gradient_takes: Kind of that activation: ``output`` or ``input``.
    """

    name: str
    enumerator: str
    op: str
    gradient: str
    gradient_takes: str = "output"


def _start(single: int, vector: int) -> tuple[int, int]:
    """Supervisor cycles and worker slots outside the loop: the first and last vector are peeled off it."""
    return SUPERVISOR_CYCLES, 20 + 3 + 2 * single - vector


def _gelu_inner(x: Expr) -> Expr:
    return _TANH_SCALE * (x + _CUBE * (x * x * x))


def _gelu(types: Types, x: Expr) -> Expr:
    """GELU by its tanh approximation."""
    return 0.5 * x * (1.0 + apply("tanh", _gelu_inner(x)))


def _gelu_gradient(types: Types, x: Expr, g: Expr) -> Expr:
    t = apply("tanh", _gelu_inner(x))
    slope = _TANH_SCALE * (1.0 + 3.0 * _CUBE * (x * x))
    return g * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope)


def _gelu_erf_gradient(types: Types, x: Expr, g: Expr) -> Expr:
    cumulative = 0.5 * (1.0 + apply("erf", x * math.sqrt(0.5)))
    return g * (cumulative + x * (_INV_SQRT_2PI * apply("exp", -0.5 * (x * x))))


def _swish(types: Types, x: Expr) -> Expr:
    return x * apply("sigmoid", x)


def _swish_gradient(types: Types, x: Expr, g: Expr) -> Expr:
    s = apply("sigmoid", x)
    return g * (s + x * s * (1.0 - s))


def _hard_sigmoid(types: Types, x: Expr) -> Expr:
    return apply("min", apply("max", 0.2 * x + 0.5, 0.0), 1.0)


def _hard_sigmoid_gradient(types: Types, y: Expr, g: Expr) -> Expr:
    return select(apply("and", y > 0.0, y < 1.0), 0.2 * g, as_expr(0.0))


def _relu_gradient(types: Types, y: Expr, g: Expr) -> Expr:
    # Of not a number the gradient passes, as in PyTorch.
    return select(y <= 0.0, as_expr(0.0), g)


def _named(name: str, arity: int, numpy: Meaning, expansion: Expansion, cost: LibraryCost) -> Operation:
    return Operation(name, arity, None, numpy, expansion=expansion, cost=cost, spelling=Spelling(name))


def _costed(name: str, op: str, cost: LibraryCost) -> Operation:
    """The operation ``op`` at the cost that it has as a non-linearity."""

    def expansion(types: Types, x: Expr) -> Expr:
        known = find_operation(op)
        return Apply(op, (x,)) if known.expansion is None else known.expansion(types, x)

    return _named(name, 1, find_operation(op).meaning, expansion, cost)


def _swish_slope(x: Array) -> Array:
    s = meaning.sigmoid(x)
    return s + x * s * (1.0 - s)


def _hard_sigmoid_meaning(x: Array) -> Array:
    return np.asarray(np.clip(0.2 * x + 0.5, 0.0, 1.0), x.dtype)


def operations() -> tuple[Operation, ...]:
    """Operations of this module; those in their expansions are in the table already."""
    return (
        _costed("nl_relu", "relu", loop_cost((1, 2), (1, 4), start=_start(1, 1))),
        _costed("nl_sigmoid", "sigmoid", loop_cost((10, 2), (4, 4), start=_start(5, 10))),
        _costed("nl_tanh", "tanh", loop_cost((10, 2), (2, 4), start=_start(5, 10))),
        _costed("nl_gelu_erf", "gelu_erf", loop_cost((30, 2), (15, 4))),
        _named("gelu", 1, meaning.gelu_tanh, _gelu, loop_cost((10, 2), (5, 4), start=_start(10, 10))),
        _named("swish", 1, lambda x: x * meaning.sigmoid(x), _swish, loop_cost((11, 2), (5, 4), start=_start(6, 11))),
        _named("hard_sigmoid", 1, _hard_sigmoid_meaning, _hard_sigmoid, loop_cost((4, 2), (4, 4))),
        _named(
            "relu_gradient",
            2,
            lambda y, g: np.where(y <= 0, g.dtype.type(0), g),
            _relu_gradient,
            loop_cost((3, 2), (3, 4)),
        ),
        _named(
            "sigmoid_gradient",
            2,
            lambda y, g: g * y * (1.0 - y),
            lambda types, y, g: g * y * (1.0 - y),
            loop_cost((3, 2), (3, 4)),
        ),
        _named(
            "tanh_gradient",
            2,
            lambda y, g: g * (1.0 - y * y),
            lambda types, y, g: g * (1.0 - y * y),
            loop_cost((3, 2), (3, 4)),
        ),
        _named(
            "gelu_gradient", 2, lambda x, g: g * meaning.gelu_tanh_slope(x), _gelu_gradient, loop_cost((10, 2), (5, 4))
        ),
        _named(
            "gelu_erf_gradient",
            2,
            lambda x, g: g * meaning.gelu_erf_slope(x),
            _gelu_erf_gradient,
            loop_cost((30, 2), (15, 4)),
        ),
        _named("swish_gradient", 2, lambda x, g: g * _swish_slope(x), _swish_gradient, loop_cost((15, 2), (9, 4))),
        _named(
            "hard_sigmoid_gradient",
            2,
            lambda y, g: np.where((y > 0) & (y < 1), 0.2 * g, g.dtype.type(0)),
            _hard_sigmoid_gradient,
            loop_cost((4, 2), (4, 4)),
        ),
    )


NONLINEARITIES = {
    n.name: n
    for n in (
        Nonlinearity("relu", "RELU", "nl_relu", "relu_gradient"),
        Nonlinearity("sigmoid", "SIGMOID", "nl_sigmoid", "sigmoid_gradient"),
        Nonlinearity("tanh", "TANH", "nl_tanh", "tanh_gradient"),
        Nonlinearity("gelu", "GELU", "gelu", "gelu_gradient", "input"),
        Nonlinearity("gelu_erf", "GELU_ERF", "nl_gelu_erf", "gelu_erf_gradient", "input"),
        Nonlinearity("swish", "SWISH", "swish", "swish_gradient", "input"),
        Nonlinearity("hard_sigmoid", "HARD_SIGMOID", "hard_sigmoid", "hard_sigmoid_gradient"),
    )
}
"""The non-linearities by name."""
