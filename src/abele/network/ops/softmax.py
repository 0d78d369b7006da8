"""Softmax and its logarithm over the last dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from abele.arrays import Array
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ops.views import transpose
from abele.network.registry import Gradients, RowWise, Types, only, require, rule
from abele.poplibs import popnn

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def softmax(net: BlockBuilder, value: Value, dim: int, *, log: bool = False) -> Value:
    """The softmax of ``value`` over ``dim``, or its logarithm."""
    return _along(net, "log_softmax" if log else "softmax", value, dim)


def safe_softmax(net: BlockBuilder, value: Value, dim: int) -> Value:
    """The softmax of ``value`` over ``dim``; zeros, not NaN, where all of it is minus infinity."""
    return _along(net, "safe_softmax", value, dim)


def _along(net: BlockBuilder, kind: str, value: Value, dim: int) -> Value:
    turned = transpose(net, value, dim, -1)
    return transpose(net, net.emit_like(kind, [turned], turned), dim, -1)


@rule("softmax")
class Softmax(RowWise):
    """Exponentials over their sum along the last dimension."""

    row_dims = 1

    def types(self, op: NetworkOp) -> Types:
        """The type of the input."""
        require(op.inputs[0].ndim, "it takes a dimension to sum over")
        return [op.inputs[0].type]

    def evaluate(self, op: NetworkOp, x: Array) -> Array:
        """The stable form in NumPy."""
        powers = np.exp(x - x.max(-1, keepdims=True))
        return np.asarray(powers / powers.sum(-1, keepdims=True))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One popnn softmax."""
        return popnn.softmax(to.graph, to[op.inputs[0]], to.prog)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """One gradient op on the output."""
        grad = only(grads)
        return [net.emit_like("softmax_grad", [op.output, grad], op.output)]


@rule("safe_softmax")
class SafeSoftmax(Softmax):
    """Softmax that is zero where a row is minus infinity throughout; its gradient there is zero as well."""

    def evaluate(self, op: NetworkOp, x: Array) -> Array:
        """The stable form in NumPy."""
        hidden = np.all(x == -np.inf, axis=-1, keepdims=True)
        return np.asarray(np.where(hidden, 0, super().evaluate(op, np.where(hidden, 0, x))), x.dtype)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One popnn softmax."""
        return popnn.softmax(to.graph, to[op.inputs[0]], to.prog, safe=True)


class _OutputGradient(RowWise):
    """A gradient that is made of the output and its gradient, row by row."""

    row_dims = 1
    operands = 2

    def types(self, op: NetworkOp) -> Types:
        """The type of the output."""
        y, grad = op.inputs
        require(y.shape == grad.shape and y.ndim, f"{y} and {grad} differ in shape")
        return [y.type]


@rule("softmax_grad")
class SoftmaxGrad(_OutputGradient):
    """y · (grad − Σ grad · y) along the last dimension."""

    def evaluate(self, op: NetworkOp, y: Array, grad: Array) -> Array:
        """The gradient in NumPy."""
        return np.asarray(y * (grad - (grad * y).sum(-1, keepdims=True)))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One popnn gradient."""
        return popnn.softmax_input_gradient(to.graph, to[op.inputs[0]], to[op.inputs[1]], to.prog)


@rule("log_softmax")
class LogSoftmax(RowWise):
    """The logarithm of softmax along the last dimension."""

    row_dims = 1

    def types(self, op: NetworkOp) -> Types:
        """The type of the input."""
        require(op.inputs[0].ndim, "it takes a dimension to sum over")
        return [op.inputs[0].type]

    def evaluate(self, op: NetworkOp, x: Array) -> Array:
        """The stable form in NumPy."""
        shifted = x - x.max(-1, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One popnn log-softmax."""
        return popnn.log_softmax(to.graph, to[op.inputs[0]], to.prog)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """One gradient op on the output."""
        grad = only(grads)
        return [net.emit_like("log_softmax_grad", [op.output, grad], op.output)]


@rule("log_softmax_grad")
class LogSoftmaxGrad(_OutputGradient):
    """grad − exp(y) · Σ grad along the last dimension."""

    def evaluate(self, op: NetworkOp, y: Array, grad: Array) -> Array:
        """The gradient in NumPy."""
        return np.asarray(grad - np.exp(y) * grad.sum(-1, keepdims=True))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One popnn gradient."""
        return popnn.log_softmax_input_gradient(to.graph, to[op.inputs[0]], to[op.inputs[1]], to.prog)
