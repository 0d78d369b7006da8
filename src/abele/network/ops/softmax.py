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
from abele.numerics import ElementType, f32
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


class _AlongRows(RowWise):
    """A float result of each row; where operands or result are f32, it is computed in f32."""

    row_dims = 1

    def types(self, op: NetworkOp) -> Types:
        """The shape of the operands, and the float type that the op says."""
        first, *others = op.inputs
        require(first.ndim, "it takes a dimension to sum over")
        require(all(v.shape == first.shape for v in others), f"{' and '.join(map(str, op.inputs))} differ in shape")
        require(op.output.dtype.is_float, f"{op.output} is no float")
        return [(first.shape, op.output.dtype)]

    def widens(self, op: NetworkOp, operand: int, dtype: ElementType) -> bool:
        """True where the result is f32."""
        return dtype.is_float and op.output.dtype == f32

    def rounds(self, op: NetworkOp) -> bool:
        """True: the last of its steps does."""
        return True


@rule("softmax")
class Softmax(_AlongRows):
    """Exponentials over their sum along the last dimension."""

    def evaluate(self, op: NetworkOp, x: Array) -> Array:
        """The stable form in NumPy."""
        powers = np.exp(x - x.max(-1, keepdims=True))
        return np.asarray(powers / powers.sum(-1, keepdims=True))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One popnn softmax."""
        return popnn.softmax(to.graph, to[op.inputs[0]], to.prog, out_type=op.output.dtype)

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
        return popnn.softmax(to.graph, to[op.inputs[0]], to.prog, safe=True, out_type=op.output.dtype)


class _OutputGradient(_AlongRows):
    """A gradient that is made of the output and its gradient."""

    operands = 2


@rule("softmax_grad")
class SoftmaxGrad(_OutputGradient):
    """y · (grad − Σ grad · y) along the last dimension."""

    def evaluate(self, op: NetworkOp, y: Array, grad: Array) -> Array:
        """The gradient in NumPy."""
        return np.asarray(y * (grad - (grad * y).sum(-1, keepdims=True)))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One popnn gradient."""
        y, grad = (to[v] for v in op.inputs)
        return popnn.softmax_input_gradient(to.graph, y, grad, to.prog, out_type=op.output.dtype)


@rule("log_softmax")
class LogSoftmax(_AlongRows):
    """The logarithm of softmax along the last dimension."""

    def evaluate(self, op: NetworkOp, x: Array) -> Array:
        """The stable form in NumPy."""
        shifted = x - x.max(-1, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One popnn log-softmax."""
        return popnn.log_softmax(to.graph, to[op.inputs[0]], to.prog, out_type=op.output.dtype)

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
        y, grad = (to[v] for v in op.inputs)
        return popnn.log_softmax_input_gradient(to.graph, y, grad, to.prog, out_type=op.output.dtype)
