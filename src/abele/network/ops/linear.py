"""Matrix products: fully connected layers and (batched) matmul."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from abele.arrays import Array
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ir.part import ValuePart, whole_digits
from abele.network.ops.reduction import reduce, sum_to
from abele.network.ops.views import expand, reshape, transpose
from abele.network.registry import Gradients, OpRule, Types, only, require, rule
from abele.poplibs import poplin

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def linear(net: BlockBuilder, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """``x · weightᵀ + bias``: x [..., in], weight [out, in], bias [out]; gives [..., out]."""
    rows = reshape(net, x, (-1, x.shape[-1]))
    inputs = [rows, weight] + ([] if bias is None else [bias])
    product = net.emit("linear", inputs, (rows.shape[0], weight.shape[0]), x.dtype)
    return reshape(net, product, (*x.shape[:-1], weight.shape[0]))


def matmul(net: BlockBuilder, a: Value, b: Value) -> Value:
    """NumPy's matmul: vectors, matrices, and stacks of matrices that broadcast."""
    if a.ndim == 1:
        product = matmul(net, reshape(net, a, (1, a.size)), b)
        return reshape(net, product, (*product.shape[:-2], product.shape[-1]))
    if b.ndim == 1:
        product = matmul(net, a, reshape(net, b, (b.size, 1)))
        return reshape(net, product, product.shape[:-1])
    if a.ndim == b.ndim == 2:
        return net.emit("matmul", [a, b], (a.shape[0], b.shape[1]), a.dtype)
    if b.ndim == 2:
        rows = matmul(net, reshape(net, a, (-1, a.shape[-1])), b)
        return reshape(net, rows, (*a.shape[:-1], b.shape[1]))
    return _grouped(net, a, b)


def _grouped(net: BlockBuilder, a: Value, b: Value) -> Value:
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    groups = int(np.prod(batch))
    left = reshape(net, expand(net, a, (*batch, *a.shape[-2:])), (groups, *a.shape[-2:]))
    right = reshape(net, expand(net, b, (*batch, *b.shape[-2:])), (groups, *b.shape[-2:]))
    product = net.emit("matmul", [left, right], (groups, a.shape[-2], b.shape[-1]), a.dtype)
    return reshape(net, product, (*batch, a.shape[-2], b.shape[-1]))


@rule("linear")
class Linear(OpRule):
    """A fully connected layer: x [rows, in] · weight [out, in]ᵀ + bias [out]."""

    operands = (2, 3)
    wants_one_piece = True
    planned = True

    def types(self, op: NetworkOp) -> Types:
        """[rows, out]."""
        x, weight, *bias = op.inputs
        require(x.ndim == weight.ndim == 2 and x.shape[1] == weight.shape[1], f"{x} and {weight} do not fit each other")
        require(all(b.shape == weight.shape[:1] for b in bias), f"the bias does not fit {weight}")
        return [((x.shape[0], weight.shape[0]), x.dtype)]

    def evaluate(self, op: NetworkOp, x: Array, weight: Array, *bias: Array) -> Array:
        """The product in NumPy."""
        return x @ weight.T + (bias[0] if bias else 0)

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The same rows of x. Weights are used whole, so that they can lie as the matmul wants them."""
        made = part.with_whole(1)
        x, *rest = op.inputs
        return made, [ValuePart((made.dims[0], whole_digits(x.shape[1]))), *(ValuePart.whole(v.shape) for v in rest)]

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One matmul, then the bias added in place."""
        x, weight = to[op.inputs[0]], to[op.inputs[1]]
        options = to.planned(op, x.dtype) | {"in_halves": to.in_halves}
        product = poplin.matmul(to.graph, x, weight.T, to.prog, like=to.like(op.output), **options)
        if len(op.inputs) == 3:
            poplin.add_bias(to.graph, product, to[op.inputs[2]], to.prog)
        return product

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """The weight as the right-hand side of the matmul."""
        x, weight = op.inputs[:2]
        if operand != 1:
            return None
        shapes = x.shape, weight.shape[::-1]
        options = to.planned(op, weight.dtype)
        return poplin.create_matmul_input_rhs(to.graph, weight.dtype, *shapes, name=weight.name, **options).T

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """Two matmuls, and the sum of the gradient over rows for the bias."""
        grad = only(grads)
        x, weight = op.inputs[:2]
        # By weights before by the input, which is then not alive beside what the other has in motion. The bias comes
        # first: the view of the gradient turned round is of what its sum reads.
        by_bias = [reduce(net, grad, [0]) if wanted[2] else None] if len(op.inputs) == 3 else []
        by_weight = matmul(net, transpose(net, grad), x) if wanted[1] else None
        by_x = matmul(net, grad, weight) if wanted[0] else None
        return [by_x, by_weight, *by_bias]


@rule("matmul")
class MatMul(OpRule):
    """A product of two matrices [m, k] · [k, n], or of g pairs of them."""

    operands = 2
    wants_one_piece = True
    planned = True
    adds_to_sums = True

    def types(self, op: NetworkOp) -> Types:
        """[m, n], or [g, m, n]."""
        a, b = op.inputs
        require(a.ndim == b.ndim and a.ndim in (2, 3), f"{a} and {b} are not both matrices or stacks of them")
        require(a.shape[:-2] == b.shape[:-2] and a.shape[-1] == b.shape[-2], f"{a} and {b} do not fit each other")
        return [((*a.shape[:-1], b.shape[-1]), a.dtype)]

    def evaluate(self, op: NetworkOp, a: Array, b: Array) -> Array:
        """NumPy's matmul."""
        return a @ b

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The same groups of both, the same rows of one and columns of the other."""
        *groups, rows, columns = part.dims
        inner = whole_digits(op.inputs[0].shape[-1])
        return part, [ValuePart((*groups, rows, inner)), ValuePart((*groups, inner, columns))]

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One matmul, grouped for three dimensions."""
        a, b = (to[v] for v in op.inputs)
        product = poplin.matmul if op.output.ndim == 2 else poplin.matmul_grouped
        options = to.planned(op, a.dtype) | {"in_halves": to.in_halves}
        return product(to.graph, a, b, to.prog, like=to.like(op.output), **options)

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """The right-hand side of a product of matrices, such as a weight."""
        a, b = op.inputs
        if operand != 1 or b.ndim != 2:
            return None
        return poplin.create_matmul_input_rhs(
            to.graph, b.dtype, a.shape, b.shape, name=b.name, **to.planned(op, b.dtype)
        )

    def lower_onto(self, to: Lowering, op: NetworkOp, total: Tensor, scale: float) -> None:
        """The sums of partial products go on to the total."""
        a, b = (to[v] for v in op.inputs)
        options = to.planned(op, a.dtype) | {"in_place": True, "in_halves": to.in_halves}
        poplin.matmul_acc(to.graph, total, scale, a, b, to.prog, product_type=op.output.dtype, name="matmul", **options)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """Each side: the gradient times the other side transposed."""
        grad = only(grads)
        a, b = op.inputs
        by_a = sum_to(net, matmul(net, grad, transpose(net, b)), a.shape) if wanted[0] else None
        by_b = sum_to(net, matmul(net, transpose(net, a), grad), b.shape) if wanted[1] else None
        return [by_a, by_b]
