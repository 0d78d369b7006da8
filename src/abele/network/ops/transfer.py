"""Transfers: values that one IPU makes and another reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from abele.arrays import Array
from abele.graph import Copy, Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.registry import LazyReader, Types, rule
from abele.poplibs.poputil.layout import clone_between

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def transfer(net: BlockBuilder, value: Value) -> Value:
    """``value`` on the IPU of the place where ops are made now."""
    return net.emit_like("transfer", [value], value)


@rule("transfer")
class Transfer(LazyReader):
    """Copy of its operand on another IPU, on the tiles of the same numbers there."""

    def types(self, op: NetworkOp) -> Types:
        """The operand's."""
        return [op.inputs[0].type]

    def evaluate(self, op: NetworkOp, value: Array) -> Array:
        """The operand."""
        return np.asarray(value)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One copy over the links."""
        source = to[op.inputs[0]]
        made = laid_out_there(to, op, source)
        to.prog.add(Copy(source, made, name="transfer"))
        return made


def laid_out_there(to: Lowering, op: NetworkOp, source: Tensor) -> Tensor:
    """A new tensor for the result of a transfer, on the tiles of its IPU that ``source`` has on its own."""
    name = op.inputs[0].name or "transferred"
    # A constant as a whole lies as its readers want it; zeros that others are filled up with lie anywhere.
    if source.contains_aliases or (source.contains_constant and len(source.variables) > 1):
        return to.variable_like(source, name)
    return clone_between(to.graph_of(op.inputs[0].place), to.graph, source, name)
