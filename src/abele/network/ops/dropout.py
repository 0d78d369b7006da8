"""Dropout: elements zeroed at random, the rest scaled up; the backward pass draws the same numbers again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from abele.arrays import Array
from abele.expr import derivative
from abele.graph import Tensor
from abele.llvm.random import hash_u32
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ir.part import ValuePart, take
from abele.network.ops.elementwise import map_
from abele.network.registry import Gradients, OpRule, Types, only, require, rule
from abele.numerics import u32
from abele.poplibs import poprand

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def dropout(net: BlockBuilder, value: Value, probability: float) -> Value:
    """``value`` with each element zeroed with ``probability``, the others divided by 1 − ``probability``."""
    state = net.random_state()
    return net.emit_like("dropout", [value, state], value, keep=1.0 - probability, modifier=net.next_random())


@rule("dropout")
class Dropout(OpRule):
    """Elements kept with probability ``keep`` and scaled by its inverse, decided by (seed, modifier, element)."""

    operands = 2
    attributes: ClassVar = {"keep": (float, int), "modifier": int}
    folds = False

    def types(self, op: NetworkOp) -> Types:
        """The type of the input."""
        require(op.inputs[1].type == ((2,), u32), f"the seed is {op.inputs[1]}, it has to be u32[2]")
        require(0 <= op.attrs["keep"] <= 1, f"keep={op.attrs['keep']} is no probability")
        return [op.inputs[0].type]

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The same part of the operand, and the seed."""
        return part, [part, ValuePart.whole(op.inputs[1].shape)]

    def emit_part(self, net: BlockBuilder, op: NetworkOp, part: ValuePart, inputs: Sequence[Value]) -> Value:
        """The part times the same part of the mask, whose numbers belong to the elements of the whole."""
        x, seed = inputs
        mask = net.emit("dropout_mask", [seed], op.output.shape, op.output.dtype, **op.attrs)
        return map_(net, derivative.arg(0) * derivative.arg(1), [x, take(net, mask, part)])

    def evaluate(self, op: NetworkOp, x: Array, seed: Array) -> Array:
        """The counter hash in NumPy."""
        return np.where(_kept(op, seed), x / (op.attrs["keep"] or 1), 0)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One poprand dropout."""
        x, seed = to[op.inputs[0]], to[op.inputs[1]]
        return poprand.dropout(to.graph, seed, op.attrs["modifier"], x, op.attrs["keep"], to.prog)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The same dropout of the gradient: the same seed and modifier draw the same elements."""
        grad = only(grads)
        return [net.emit_like("dropout", [grad, op.inputs[1]], grad, **op.attrs), None]


@rule("dropout_mask")
class DropoutMask(OpRule):
    """Factors of dropout for each element: 0, or the inverse of ``keep``."""

    attributes: ClassVar = {"keep": (float, int), "modifier": int}
    folds = False

    def types(self, op: NetworkOp) -> Types:
        """Shape and type that were chosen."""
        require(op.inputs[0].type == ((2,), u32), f"the seed is {op.inputs[0]}, it has to be u32[2]")
        require(0 <= op.attrs["keep"] <= 1, f"keep={op.attrs['keep']} is no probability")
        return [op.output.type]

    def evaluate(self, op: NetworkOp, seed: Array) -> Array:
        """The counter hash in NumPy."""
        return np.where(_kept(op, seed), 1 / (op.attrs["keep"] or 1), 0)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One poprand dropout of ones."""
        out, seed = op.output, to[op.inputs[0]]
        ones = to.graph.constant(out.dtype, (), 1, name="one").broadcast_to(out.shape)
        return poprand.dropout(to.graph, seed, op.attrs["modifier"], ones, op.attrs["keep"], to.prog)


def _kept(op: NetworkOp, seed: Array) -> Array:
    """Mask of the elements of the result that are kept."""
    index = np.arange(op.output.size).reshape(op.output.shape)
    bits = hash_u32(seed[0], seed[1], op.attrs["modifier"], index)
    return np.asarray(bits < op.attrs["keep"] * 2.0**32)
