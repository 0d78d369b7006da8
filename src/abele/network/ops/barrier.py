"""Barriers: values that stand for themselves alone, so that what is computed of them is computed again.

A recomputation repeats ops of the forward pass on the same operands. Without a barrier before it
``common-subexpressions`` would take the two for one, and keep the values that the recomputation is there to forget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from abele.arrays import Array
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.registry import Gradients, RowWise, Types, only, rule

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def barrier(net: BlockBuilder, value: Value) -> Value:
    """``value``, of which no op is taken for an op on the value itself, or on another barrier of it."""
    return net.emit_like("barrier", [value], value)


@rule("barrier")
class Barrier(RowWise):
    """The operand; two of one operand are two values."""

    folds = False
    repeats = False
    depends_on_operands_alone = False

    def types(self, op: NetworkOp) -> Types:
        """The operand's."""
        return [op.inputs[0].type]

    def evaluate(self, op: NetworkOp, value: Array) -> Array:
        """The operand."""
        return value

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """The operand itself: nothing moves."""
        return to[op.inputs[0]]

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradient as it is."""
        return [only(grads)]
