"""Sums of gradients over micro-batches: where they lie, and when gradients are added to them.

A gradient is added as soon as it is there, so that it dies before the backward pass goes on: to add all of them behind
it would keep as much as the weights besides. What cannot be added at once is left for the end of the micro-batch: to
sums in streaming memory, which come part by part, and to those of parameters of which nothing has decided yet how they
lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from abele.graph import Graph
from abele.network.ir import Network, NetworkOp, Value
from abele.network.locations import TensorLocation
from abele.numerics import f32
from abele.poplibs.poputil.layout import clone

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering

_AT_ONCE = ("accumulate", "add_to_momentum")
"""Kinds of op that add a gradient as soon as it is there."""


class GradientSums:
    """Sums to which the micro-batches of an update add.

    Args:
        net: The network.
        graph: Graph of the sums' variables.
        ops: The ops that add to sums, in order.
        location: Place of the sums.

    Attributes:
        ops: All of them.
        left: Those that are still to be lowered.
    """

    def __init__(self, net: Network, graph: Graph, ops: Sequence[NetworkOp], location: TensorLocation) -> None:
        self.ops = tuple(ops)
        self.left = list(ops)
        self._graph = graph
        self._entering = {*net.accumulators}
        self._parameters = {gradient: parameter for parameter, gradient in net.gradients.items()}
        for op in reversed(ops):
            # Several stages may add to one sum, each to what the one before it has left.
            if op.inputs[0] not in self._entering:
                self._parameters[op.inputs[0]] = self._parameters[op.output]
        self._waiting: dict[Value, list[NetworkOp]] = {}
        for op in ops:
            if op.kind in _AT_ONCE and not location.is_off_chip(op.inputs[0].size):
                self._waiting.setdefault(op.inputs[1], []).append(op)

    def add(self, to: Lowering, made: NetworkOp) -> None:
        """Add what an op has made to its sums, here and now, where that can be done."""
        for op in [op for value in made.outputs for op in self._waiting.pop(value, ())]:
            total = op.inputs[0]
            known = self._parameters[op.output] in to if total in self._entering else total in to
            if known and op.place == made.place:
                self._bind(to, op)
                to.lower([op], settle=False)
                self.left.remove(op)

    def bind(self, to: Lowering) -> None:
        """Make the variables that are not there yet, each laid out like its parameter."""
        for op in self.ops:
            self._bind(to, op)

    def _bind(self, to: Lowering, op: NetworkOp) -> None:
        total = op.inputs[0]
        if total not in self._entering or total in to:
            return
        if op.kind == "add_counts":
            graph = to.graph_of(total.place)
            to.bind(total, graph.map(graph.variable(f32, total.shape, name=total.name), 0))
        else:
            made = clone(self._graph, to[self._parameters[op.output]], total.name, total.dtype)
            if op.kind == "add_to_momentum":
                self._graph.initialise(made, 0.0)  # A momentum, which lasts.
            to.bind(total, made)
