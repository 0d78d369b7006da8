"""Products with a sparse matrix whose pattern the device is told at run time.

The matrix is two values: slots of its values, and words that tell the pattern
(:class:`~abele.network.ops.sparse_slots.SlotPlan`). Rows of activations are multiplied by it as a layer does; the
gradient of the slots lies as they do, with zeros in slots without a block, so that an optimiser works slot by slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from abele.arrays import Array
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ops.elementwise import cast
from abele.network.ops.sparse_calls import dynamic_product, dynamic_sampled_product, new_slots
from abele.network.ops.sparse_matmul import with_bias
from abele.network.ops.sparse_slots import SlotPlan
from abele.network.ops.views import concat, pad, reshape, slice_
from abele.network.registry import Gradients, OpRule, Types, only, require, rule
from abele.numerics import as_element_type, u16
from abele.sparsity.products import sampled, sparse_times

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def dynamic_sparse_linear(
    net: BlockBuilder, x: Value, words: Value, slots: Value, plan: SlotPlan, bias: Value | None = None
) -> Value:
    """``x · Sᵀ + bias``, a fully connected layer: x [..., in], S [out, in]; gives [..., out].

    Args:
        net: Network or block to extend.
        x: Activations. Rows beyond those that the plan is for are multiplied in further products, the last of which
            is filled up with zeros.
        words: Pattern of S, u16.
        slots: Values of S.
        plan: Plan of slots and words.
        bias: [out].
    """
    rows = reshape(net, cast(net, x, as_element_type(plan.dtype)), (-1, x.shape[-1]))
    count = rows.shape[0]
    rows = pad(net, rows, [0, 0], [-count % plan.rows, 0], fill=0.0)
    slots = cast(net, slots, as_element_type(plan.dtype))
    parts = [slice_(net, rows, 0, at, at + plan.rows) for at in range(0, rows.shape[0], plan.rows)]
    product = concat(net, [dynamic_sparse_matmul(net, words, slots, part, plan) for part in parts], 0)
    product = slice_(net, product, 0, 0, count)
    product = cast(net, reshape(net, product, (*x.shape[:-1], plan.shape[0])), x.dtype)
    return with_bias(net, product, bias)


def dynamic_sparse_matmul(
    net: BlockBuilder, words: Value, slots: Value, rows: Value, plan: SlotPlan, *, transposed: bool = False
) -> Value:
    """rows [rows, in] · Sᵀ, or rows [rows, out] · S of a transposed matrix."""
    shape = rows.shape[0], plan.shape[1 if transposed else 0]
    return net.emit("dynamic_sparse_matmul", [words, slots, rows], shape, rows.dtype, plan=plan, transposed=transposed)


def dynamic_sampled_matmul(net: BlockBuilder, words: Value, grad: Value, rows: Value, plan: SlotPlan) -> Value:
    """Slots of gradᵀ · rows: grad [rows, out], rows [rows, in]."""
    return net.emit("dynamic_sampled_matmul", [words, grad, rows], plan.values_shape, rows.dtype, plan=plan)


def _check(op: NetworkOp, words: Value, *others: Value) -> None:
    plan: SlotPlan = op.attrs["plan"]
    require(words.type == (plan.meta_shape, u16), f"{words} is not u16{list(plan.meta_shape)}, as its plan has words")
    types = {v.dtype.name for v in others}
    require(types == {plan.dtype}, f"operands are {' and '.join(sorted(types))}, their plan is for {plan.dtype}")


def _check_rows(op: NetworkOp, value: Value, width: int) -> None:
    plan: SlotPlan = op.attrs["plan"]
    require(
        value.shape == (plan.rows, width),
        f"{value} is not [{plan.rows}, {width}]: the layer was planned for {plan.rows} rows of activations",
    )


@rule("dynamic_sparse_matmul")
class DynamicSparseMatMul(OpRule):
    """rows · Sᵀ (or rows · S) of words, slots of S [out, in] and rows [rows, in]."""

    operands = 3
    attributes: ClassVar = {"plan": SlotPlan, "transposed": bool}
    laid_together = (0, 1)

    def types(self, op: NetworkOp) -> Types:
        """[rows, out]."""
        words, slots, rows = op.inputs
        plan: SlotPlan = op.attrs["plan"]
        read, made = plan.shape if op.attrs["transposed"] else plan.shape[::-1]
        _check(op, words, slots, rows)
        _check_rows(op, rows, read)
        require(slots.shape == plan.values_shape, f"{slots} is not {list(plan.values_shape)}, as its plan has slots")
        return [((plan.rows, made), rows.dtype)]

    def evaluate(self, op: NetworkOp, words: Array, slots: Array, rows: Array) -> Array:
        """The product in NumPy."""
        plan: SlotPlan = op.attrs["plan"]
        pattern = plan.pattern(words)
        return sparse_times(pattern, plan.decode(pattern, slots), rows.T, transposed=op.attrs["transposed"]).T

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """Words or slots, each tile with its own."""
        return self.layout_together(to, op)[operand] if operand < 2 else None

    def layout_together(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """Words and slots, each tile with its own."""
        slots = op.inputs[1]
        return new_slots(to.graph, slots.dtype, op.attrs["plan"], slots.name or "slots")

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One product with a sparse operand."""
        words, slots, rows = (to[v] for v in op.inputs)
        transposed = op.attrs["transposed"]
        return dynamic_product(to.graph, words, slots, rows, op.attrs["plan"], to.prog, transposed=transposed)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradient sampled into slots, and the product with the transpose."""
        grad = only(grads)
        words, slots, rows = op.inputs
        plan, transposed = op.attrs["plan"], op.attrs["transposed"]
        pair = (rows, grad) if transposed else (grad, rows)
        by_slots = dynamic_sampled_matmul(net, words, *pair, plan) if wanted[1] else None
        by_rows = dynamic_sparse_matmul(net, words, slots, grad, plan, transposed=not transposed) if wanted[2] else None
        return [None, by_slots, by_rows]


@rule("dynamic_sampled_matmul")
class DynamicSampledMatMul(OpRule):
    """Slots of gradᵀ · rows, of words, grad [rows, out] and rows [rows, in]."""

    operands = 3
    attributes: ClassVar = {"plan": SlotPlan}

    def types(self, op: NetworkOp) -> Types:
        """As the plan has slots."""
        words, grad, rows = op.inputs
        plan: SlotPlan = op.attrs["plan"]
        _check(op, words, grad, rows)
        _check_rows(op, grad, plan.shape[0])
        _check_rows(op, rows, plan.shape[1])
        return [(plan.values_shape, rows.dtype)]

    def evaluate(self, op: NetworkOp, words: Array, grad: Array, rows: Array) -> Array:
        """The product in NumPy at the pattern's places."""
        plan: SlotPlan = op.attrs["plan"]
        pattern = plan.pattern(words)
        return plan.encode(pattern, sampled(pattern, grad.T, rows.T))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One sampled product."""
        words, grad, rows = (to[v] for v in op.inputs)
        return dynamic_sampled_product(to.graph, words, grad, rows, op.attrs["plan"], to.prog)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """Products of the gradient, which is sparse, with the other side."""
        by = only(grads)
        words, grad, rows = op.inputs
        plan = op.attrs["plan"]
        by_grad = dynamic_sparse_matmul(net, words, by, rows, plan) if wanted[1] else None
        by_rows = dynamic_sparse_matmul(net, words, by, grad, plan, transposed=True) if wanted[2] else None
        return [None, by_grad, by_rows]
