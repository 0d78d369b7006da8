"""``follow``: views and constants are made where they are read, so that only what they show is kept or sent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from abele.network.ir import HERE, Network, NetworkOp, Place, Stage, Value, is_spread
from abele.network.passes.base import Pass

WHOLE_VIEWS = frozenset({"reshape", "permute", "expand", "detach"})
"""Kinds of view that show all of their operand: sending or keeping the operand is no more than the view."""


@dataclass(frozen=True)
class Follow(Pass):
    """Make views and constants again on each IPU, and in each stage, that reads them."""

    name: ClassVar[str] = "follow"

    def run(self, net: Network) -> Network:
        """The network with a view for each place; one that is all in one place stays as it is."""
        if net.num_ipus == 1 and net.num_stages == 1 and net.num_phases == 1:
            return net
        return replace(net, ops=tuple(_Following(net).ops()))


class _Following:
    """One run of the pass."""

    def __init__(self, net: Network) -> None:
        self._net = net
        self._maker = {v: op for op in net.ops if op.kind in WHOLE_VIEWS or op.kind == "constant" for v in op.outputs}
        self._made: dict[tuple[Value, Place, Stage], Value] = {}
        self._ops: list[NetworkOp] = []

    def ops(self) -> list[NetworkOp]:
        for op in self._net.ops:
            if op.stage != Stage.UPDATE and op.place is not None and not is_spread(op):
                place, stage = op.place, op.stage
                op = replace(op, inputs=tuple(self._at(v, place, stage) for v in op.inputs))
            self._ops.append(op)
        return self._ops

    def _at(self, value: Value, place: Place, stage: Stage) -> Value:
        """``value`` as it is read at a place: itself, or a view made there."""
        op = self._maker.get(value)
        if op is None or self._is_there(op, value, place, stage):
            return value
        key = (value, place, stage)
        if key not in self._made:
            inputs = tuple(self._at(v, place, stage) for v in op.inputs)
            made = self._made[key] = replace(value, place=place, stage=stage)
            self._ops.append(replace(op, inputs=inputs, outputs=(made,)))
        return self._made[key]

    def _is_there(self, op: NetworkOp, value: Value, place: Place, stage: Stage) -> bool:
        if self._net.num_phases > 1 and op.kind != "constant" and value.stage != stage:
            return False  # A phase has one place for both passes, which are at different times.
        here = value.place or HERE
        # A constant is the same for all micro-batches: one for all stages of an IPU.
        return here.ipu == place.ipu if op.kind == "constant" else here == place
