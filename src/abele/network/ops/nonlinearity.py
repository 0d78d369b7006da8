"""Non-linearities that the libraries have with their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from abele.arrays import Array
from abele.expr import NONLINEARITIES, TABLE, apply, derivative
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ops.elementwise import map_
from abele.network.registry import Gradients, RowWise, Types, only, require, rule
from abele.poplibs import popnn

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering

TAKES_INPUT = tuple(n.name for n in NONLINEARITIES.values() if n.gradient_takes == "input")
"""Kinds whose gradient is computed from the input; the others' from the output."""


def nonlinearity(net: BlockBuilder, function: str, value: Value) -> Value:
    """``relu``, ``tanh``, ``sigmoid``, ``gelu`` (by tanh) or ``gelu_erf`` of every element."""
    return net.emit_like("nonlinearity", [value], value, function=function)


def _check_function(op: NetworkOp) -> None:
    function = op.attrs["function"]
    require(function in NONLINEARITIES, f"there is no non-linearity {function!r}; {', '.join(NONLINEARITIES)} exist")


@rule("nonlinearity")
class NonlinearityRule(RowWise):
    """A library non-linearity of every element."""

    attributes: ClassVar = {"function": str}

    def types(self, op: NetworkOp) -> Types:
        """The type of the input."""
        _check_function(op)
        return [op.inputs[0].type]

    def evaluate(self, op: NetworkOp, x: Array) -> Array:
        """The function in NumPy."""
        return np.asarray(TABLE[NONLINEARITIES[op.attrs["function"]].op].meaning(x))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One popnn non-linearity."""
        return popnn.non_linearity(to.graph, op.attrs["function"], to[op.inputs[0]], to.prog)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """One gradient op, on the output or the input as the function wants."""
        grad = only(grads)
        saved = op.inputs[0] if op.attrs["function"] in TAKES_INPUT else op.output
        return [net.emit_like("nonlinearity_grad", [saved, grad], saved, function=op.attrs["function"])]


@rule("nonlinearity_grad")
class NonlinearityGrad(RowWise):
    """The gradient through a non-linearity, from its output (or input) and the gradient of its output."""

    operands = 2
    attributes: ClassVar = {"function": str}

    def types(self, op: NetworkOp) -> Types:
        """Type of the saved value."""
        _check_function(op)
        saved, grad = op.inputs
        require(saved.shape == grad.shape, f"{saved} and {grad} differ in shape")
        return [saved.type]

    def evaluate(self, op: NetworkOp, saved: Array, grad: Array) -> Array:
        """The slope in NumPy times the gradient."""
        return np.asarray(TABLE[NONLINEARITIES[op.attrs["function"]].gradient].meaning(saved, grad))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One popnn gradient."""
        saved, grad = op.inputs
        return popnn.non_linearity_input_gradient(to.graph, op.attrs["function"], to[saved], to[grad], to.prog)

    def beside(self, op: NetworkOp, operand: int) -> Sequence[Value]:
        """The saved value, for its gradient."""
        return op.inputs[:1] if operand == 1 else ()

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """Gradients of the product of slope and gradient, for derivatives of derivatives."""
        (saved, grad), after = op.inputs, only(grads)
        gradient = apply(NONLINEARITIES[op.attrs["function"]].gradient, derivative.arg(0), derivative.arg(1))
        bent = derivative.partial(gradient, 0) * derivative.arg(2)
        by_saved = map_(net, bent, [saved, grad, after], saved.dtype) if wanted[0] else None
        by_grad = net.emit_like("nonlinearity_grad", [saved, after], saved, function=op.attrs["function"])
        return [by_saved, by_grad if wanted[1] else None]
