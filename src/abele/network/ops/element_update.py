"""Element-wise updates: one pass that replaces elements of several states, each by an expression over all operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from abele.arrays import Array
from abele.expr import Expr, evaluate
from abele.expr.types import element_type
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.registry import OpRule, Types, broadcast, require, rule
from abele.numerics import ElementType
from abele.poplibs import popops
from abele.poplibs.popops.elementwise.map import map_with_outputs
from abele.poplibs.poputil.layout import clone

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def element_update(net: BlockBuilder, operands: Sequence[Value], exprs: Sequence[Expr]) -> tuple[Value, ...]:
    """The first operands after one pass in which each takes the value of an expression; they change in place.

    Args:
        net: The network to extend.
        operands: A state for each expression, all of one shape, and further operands that broadcast to it.
        exprs: Over ``derivative.arg(i)`` for operand i as it was before the pass.
    """
    types = [(v.shape, v.dtype) for v in operands[: len(exprs)]]
    return net.emit_many("element_update", operands, types, exprs=tuple(exprs))


@rule("element_update")
class ElementUpdate(OpRule):
    """States of one shape after a pass over them; an update of a parameter and of what is beside it, for example."""

    operands = (1, None)
    attributes: ClassVar = {"exprs": tuple}
    folds = False
    repeats = False
    lays_out_by_operands = True

    def types(self, op: NetworkOp) -> Types:
        """Types of the states."""
        states = op.inputs[: len(op.attrs["exprs"])]
        require(len(states) == len(op.attrs["exprs"]), "there is a state for each expression")
        require(broadcast(*(v.shape for v in op.inputs)) == states[0].shape, "operands broadcast to the states")
        require(all(v.shape == states[0].shape for v in states), "states have one shape")
        return [v.type for v in states]

    def widens(self, op: NetworkOp, operand: int, dtype: ElementType) -> bool:
        """True for floats that are no state: arithmetic is f32."""
        return operand >= len(op.attrs["exprs"]) and dtype.is_float

    def evaluate(self, op: NetworkOp, *operands: Array) -> tuple[Array, ...] | Array:
        """The expressions in NumPy."""
        shape = op.output.shape
        made = tuple(np.broadcast_to(evaluate(e, operands), shape) for e in op.attrs["exprs"])
        return made if len(made) > 1 else made[0]

    def beside(self, op: NetworkOp, operand: int) -> Sequence[Value]:
        """The other operands of its shape."""
        value = op.inputs[operand]
        return [v for v in op.inputs if v is not value and v.type == value.type]

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """Like an operand of its shape and another type, such as a moment in f16 beside its parameter."""
        value = op.inputs[operand]
        for other in op.inputs:
            if other.shape == value.shape and other in to and not to[other].contains_aliases:
                return clone(to.graph, to[other], value.name or "value", value.dtype)
        return None

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """One map with several outputs, in place; what shows a state in another order is copied first."""
        exprs, types = op.attrs["exprs"], tuple(v.dtype for v in op.inputs)
        states = [to[v] for v in op.inputs[: len(exprs)]]
        changed = {variable for tensor in states for variable in tensor.variables}
        own = frozenset(op.inputs[: len(exprs)])

        def read(value: Value) -> Tensor:
            apart = value in own or changed.isdisjoint(to[value].variables)
            return to[value] if apart else to.copied(to[value], "apart")

        stored = [
            popops.expr.written_out(e)
            if element_type(e, types) == s.dtype
            else popops.expr.Cast(popops.expr.written_out(e), s.dtype)
            for e, s in zip(exprs, states, strict=True)
        ]
        map_with_outputs(to.graph, stored, [*map(read, op.inputs)], states, to.prog, "update")
        return tuple(states)
