"""``recognise``: norms and softmaxes that are written as strings of plain ops become the library's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from abele.network.ir import BlockBuilder, Network, NetworkOp, Value
from abele.network.passes.base import BlockPass, reading
from abele.network.passes.dead_code import DeadCode
from abele.network.recognition import (
    Appender,
    Emit,
    Replacements,
    Uses,
    find_functions,
    find_norms,
    find_relu_gradients,
    find_single_updates,
    find_softmaxes,
    find_turned_products,
)

_FOUND: tuple[Callable[[Uses], Iterator[Replacements]], ...] = (
    find_softmaxes,
    find_norms,
    find_functions,
    find_relu_gradients,
    find_turned_products,
    find_single_updates,
)


@dataclass(frozen=True)
class Recognise(BlockPass):
    """Replace strings of maps and reductions by one op, forward and backward.

    Traces write ``softmax``, norms and their gradients as maximum, subtraction, exponential, sum, division …; the
    libraries take statistics in one pass, and kernels are made for these ops. What is found is equal to what was
    written up to rounding; see :mod:`abele.network.recognition`.

    Attributes:
        differentiated: True where gradients are taken afterwards.
        loss: The loss of the network that is rewritten just now.
    """

    name: ClassVar[str] = "recognise"
    differentiated: bool = False
    loss: Value | None = None

    def run(self, net: Network) -> Network:
        """The network with library ops; ``net`` itself if it has no strings of them."""
        if not any(op.kind == "map" for op in net.walk()):
            return net
        made = super(Recognise, replace(self, loss=net.loss)).run(net)
        return net if made == net else DeadCode().run(made)

    def rewrite(
        self, ops: Sequence[NetworkOp], results: Iterable[Value], into: BlockBuilder, values: dict[Value, Value]
    ) -> None:
        """Append the ops, with others in the place of what was recognised."""
        leaving = set(results)
        # In a body anything that leaves may lead to the loss.
        ends = [self.loss] if self.loss is not None and self.loss in leaving else leaving
        uses = Uses(ops, leaving, ends if self.differentiated else ())
        instead: dict[Value, Emit] = {}
        for found in _FOUND:
            for plan in found(uses):
                if instead.keys().isdisjoint(plan.instead):
                    instead |= plan.instead
        emitter = Appender(into, values)
        for op in ops:
            with into.at(op.debug, stage=op.stage, place=op.place, hint=op.hint):
                if op.outputs and instead.keys() >= {*op.outputs}:
                    values |= {v: instead[v](emitter) for v in op.outputs}
                    continue
                read = reading(op, values)
                values |= zip(op.outputs, into.simplified(read), strict=True)
