"""Dropout: elements zeroed at random, the rest scaled up; the backward pass draws the same numbers again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from abele.graph import Tensor
from abele.llvm.random import hash_u32
from abele.numerics import u32
from abele.parallel.network import BlockBuilder, NetworkOp, Value
from abele.parallel.registry import Array, Gradients, OpRule, Types, only, require, rule
from abele.poplibs import poprand

if TYPE_CHECKING:
    from abele.parallel.lowering import Lowering


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

    def evaluate(self, op: NetworkOp, x: Array, seed: Array) -> Array:
        """The counter hash in NumPy."""
        if op.attrs["keep"] == 0:
            return np.zeros_like(x)
        index = np.arange(x.size).reshape(x.shape)
        bits = hash_u32(seed[0], seed[1], op.attrs["modifier"], index)
        return np.where(bits < op.attrs["keep"] * 2.0**32, x / op.attrs["keep"], 0)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One poprand dropout."""
        x, seed = to[op.inputs[0]], to[op.inputs[1]]
        return poprand.dropout(to.graph, seed, op.attrs["modifier"], x, op.attrs["keep"], to.prog)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The same dropout of the gradient: the same seed and modifier draw the same elements."""
        grad = only(grads)
        return [net.emit_like("dropout", [grad, op.inputs[1]], grad, **op.attrs), None]
