"""Non-linearities that the libraries have with their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from abele.graph import Tensor
from abele.kernels.nest.ops import OPS
from abele.parallel.network import Network, Op, Value
from abele.parallel.registry import Array, Gradients, OpRule, rule
from abele.poplibs import popnn

if TYPE_CHECKING:
    from abele.parallel.lowering import Lowering

_GELU_SCALE = math.sqrt(2 / math.pi)
_GELU_CUBIC = 0.044715
TAKES_INPUT = ("gelu", "gelu_erf")
"""Kinds whose gradient is computed from the input; the others' from the output."""


def nonlinearity(net: Network, function: str, value: Value) -> Value:
    """``relu``, ``tanh``, ``sigmoid``, ``gelu`` (by tanh) or ``gelu_erf`` of every element."""
    return net.emit_like("nonlinearity", [value], value, function=function)


def _gelu_inner(x: Array) -> Array:
    return np.tanh(_GELU_SCALE * (x + _GELU_CUBIC * x**3))


def _erf(x: Array) -> Array:
    return np.asarray(OPS["erf"].meaning(x))


_MEANING: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "sigmoid": lambda x: 0.5 * (1 + np.tanh(0.5 * x)),
    "gelu": lambda x: 0.5 * x * (1 + _gelu_inner(x)),
    "gelu_erf": lambda x: 0.5 * x * (1 + _erf(x * math.sqrt(0.5))),
}


def _gelu_slope(x: Array) -> Array:
    inner = _gelu_inner(x)
    return np.asarray(0.5 * (1 + inner) + 0.5 * x * (1 - inner**2) * _GELU_SCALE * (1 + 3 * _GELU_CUBIC * x**2))


def _gelu_erf_slope(x: Array) -> Array:
    return np.asarray(0.5 * (1 + _erf(x * math.sqrt(0.5))) + x * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi))


_SLOPE: dict[str, Callable[[Array], Array]] = {
    "relu": lambda y: np.where(y > 0, 1.0, 0.0),
    "tanh": lambda y: 1 - y * y,
    "sigmoid": lambda y: y * (1 - y),
    "gelu": _gelu_slope,
    "gelu_erf": _gelu_erf_slope,
}


@rule("nonlinearity")
class Nonlinearity(OpRule):
    """A library non-linearity of every element."""

    def evaluate(self, op: Op, x: Array) -> Array:
        """The function in NumPy."""
        return np.asarray(_MEANING[op.attrs["function"]](x))

    def lower(self, to: Lowering, op: Op) -> Tensor:
        """One popnn non-linearity."""
        return popnn.non_linearity(to.graph, op.attrs["function"], to[op.inputs[0]], to.prog)

    def backward(self, net: Network, op: Op, grad: Value, wanted: Sequence[bool]) -> Gradients:
        """One gradient op, on the output or the input as the function wants."""
        saved = op.inputs[0] if op.attrs["function"] in TAKES_INPUT else op.output
        return [net.emit_like("nonlinearity_grad", [saved, grad], saved, function=op.attrs["function"])]


@rule("nonlinearity_grad")
class NonlinearityGrad(OpRule):
    """The gradient through a non-linearity, from its output (or input) and the gradient of its output."""

    def evaluate(self, op: Op, saved: Array, grad: Array) -> Array:
        """The slope in NumPy times the gradient."""
        return np.asarray(_SLOPE[op.attrs["function"]](saved) * grad)

    def lower(self, to: Lowering, op: Op) -> Tensor:
        """One popnn gradient."""
        saved, grad = op.inputs
        return popnn.non_linearity_input_gradient(to.graph, op.attrs["function"], to[saved], to[grad], to.prog)
