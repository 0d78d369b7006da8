"""``recompute``: rather than keep a cheap value from the forward pass, the backward pass computes it again.

An activation that the backward pass reads lives from where it is made to its last reader, over the peak of memory
between the two passes. Where an op is cheap beside what its operands cost to keep (a map, a non-linearity, a softmax),
a second copy of it right before the first backward reader lets the first copy's result die early. What is never
computed again is what took real work (products, convolutions) or has to be the same twice by more than its operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from abele.network.ir import Network, NetworkOp, Stage, Value
from abele.network.passes.base import Pass

CHEAP = frozenset(
    {"map", "cast", "nonlinearity", "softmax", "safe_softmax", "log_softmax", "dropout", "dropout_mask", "pool"}
)
"""Kinds that cost little beside the memory of their results."""

VIEWS = frozenset({"reshape", "permute", "expand", "slice", "concat", "detach", "bitcast"})
"""Kinds that cost nothing; they are as cheap as their operands."""


@dataclass(frozen=True)
class Recompute(Pass):
    """Compute cheap activations again in the backward pass.

    Attributes:
        kinds: Kinds of op that may be computed twice; none leaves the network as it is.
    """

    name: ClassVar[str] = "recompute"
    kinds: tuple[str, ...] = ()

    def run(self, net: Network) -> Network:
        """The network with copies of ops in its backward pass."""
        if not self.kinds:
            return net
        return replace(net, ops=tuple(_Copies(net, frozenset(self.kinds)).ops(net.ops)))


class _Copies:
    """Copies of forward ops, each made once, before the first backward op that reads it."""

    def __init__(self, net: Network, kinds: frozenset[str]) -> None:
        self._kinds = kinds
        self._maker = {v: op for v, op in net.made_by().items() if op.stage == Stage.FORWARD}
        self._copies: dict[Value, Value] = {}
        self._made: list[NetworkOp] = []

    def ops(self, ops: Sequence[NetworkOp]) -> list[NetworkOp]:
        for op in ops:
            if op.stage == Stage.BACKWARD:
                # Values from another IPU, or from an earlier stage of a pipeline, are read as they are: copies are made
                # where the value was, and in a pipeline at that time.
                op = replace(op, inputs=tuple(self._again(v) if v.place == op.place else v for v in op.inputs))
            self._made.append(op)
        return self._made

    def _again(self, value: Value) -> Value:
        """``value`` computed again, or as it is if that is not worth it."""
        if value not in self._copies:
            self._copies[value] = self._copy(value) if self._is_worth(value) else value
        return self._copies[value]

    def _is_worth(self, value: Value) -> bool:
        """True if ``value`` is cheap; a view is if its operand is."""
        op = self._maker.get(value)
        while op is not None and op.kind in VIEWS:
            op = self._maker.get(op.inputs[0])
        return op is not None and op.kind in self._kinds

    def _copy(self, value: Value) -> Value:
        op = self._maker[value]
        inputs = tuple(self._again(v) if v.place == value.place else v for v in op.inputs)
        outputs = tuple(replace(v, stage=Stage.BACKWARD) for v in op.outputs)
        debug = op.debug.renamed(f"{op.debug.name}/again") if op.debug.name else op.debug
        self._made.append(replace(op, inputs=inputs, outputs=outputs, debug=debug))
        self._copies.update(zip(op.outputs, outputs, strict=True))
        return self._copies[value]
