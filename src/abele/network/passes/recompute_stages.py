"""``recompute-stages``: a stage of a pipeline keeps what enters it, and its backward stage computes the rest again.

Between a stage and its backward stage there are up to ``2·(n − 1)`` micro-batches on their way, and each of them has
whatever the backward stage reads. So of each only the values are kept that come from other stages, or that the model's
author marked as checkpoints; the backward stage makes all others again, once, before it first reads one. The last stage
runs backward at once, or in the next tick, and computes nothing twice.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import ClassVar

from abele.network.invariant_values import fixed_values
from abele.network.ir import Network, NetworkOp, Place, Stage, Value
from abele.network.ir.network import op_key
from abele.network.passes.base import Pass
from abele.network.registry import rule_of


@dataclass(frozen=True)
class RecomputeStages(Pass):
    """Compute what a stage made again in its backward stage."""

    name: ClassVar[str] = "recompute-stages"

    def run(self, net: Network) -> Network:
        """The network with copies of forward ops in backward stages; one without a pipeline stays as it is."""
        return net if net.num_stages == 1 else replace(net, ops=tuple(_Again(net).ops()))


class _Again:
    """Copies of forward ops, each made once, before the first op that reads it in the backward stage."""

    def __init__(self, net: Network) -> None:
        self._net = net
        fixed = fixed_values(net)
        self._maker = {
            v: op
            for op in net.ops
            if op.stage == Stage.FORWARD and _may_run_twice(op) and not fixed.issuperset(op.outputs)
            for v in op.outputs
        }
        self._copies: dict[tuple[Value, Place], Value] = {}
        self._made: list[NetworkOp] = []

    def ops(self) -> list[NetworkOp]:
        for op in self._net.ops:
            place = op.place
            if op.stage == Stage.BACKWARD and place is not None:
                op = replace(op, inputs=tuple(self._again(v, place) for v in op.inputs))
            self._made.append(op)
        return self._made

    def _again(self, value: Value, place: Place) -> Value:
        """``value`` made again at a place, if the forward stage of that place made it."""
        op = self._maker.get(value)
        if op is None or not self._is_backward_of(value.place, place):
            return value
        if (value, place) not in self._copies:
            inputs = tuple(self._again(v, place) for v in op.inputs)
            outputs = tuple(replace(v, stage=Stage.BACKWARD, place=place) for v in op.outputs)
            debug = op.debug.renamed(f"{op.debug.name}/again") if op.debug.name else op.debug
            self._made.append(replace(op, inputs=inputs, outputs=outputs, debug=debug))
            self._copies |= {(v, place): o for v, o in zip(op.outputs, outputs, strict=True)}
        return self._copies[value, place]

    def _is_backward_of(self, made: Place, read: Place) -> bool:
        """True if a value of the one place is read by that stage's backward stage, which is a later one."""
        last = self._net.num_stages - 1  # Of both passes.
        apart = read.pipeline_stage - made.pipeline_stage
        return made.ipu == read.ipu and apart > 1 and made.pipeline_stage + read.pipeline_stage == last


def _may_run_twice(op: NetworkOp) -> bool:
    """False for what the host would see twice, such as prints, and for marked checkpoints."""
    return op.kind != "keep" and (rule_of(op).repeats or bool(op.blocks))


# Value numbering: two ops of one kind with equal attributes and equal operands have equal results. Operands are equal
# if they are one value, or if the one is known to be the other made again. Ops that equal others only by name, such as
# those with a state, have ``repeats`` off.
#
# Example: ``a = linear(x, w)``, ``b = gelu(a)`` in the forward pass, ``c = linear(x, w)``, ``d = gelu(c)`` in the
# backward pass: c is a made again, and so d is b.


def made_again(net: Network) -> dict[Value, Value]:
    """For each value that a backward stage of a pipeline makes again, the same value of the stage it belongs to."""
    first: dict[Hashable, NetworkOp] = {}
    found: dict[Value, Value] = {}
    for op in net.ops:
        if op.place is None or op.kind in ("constant", "transfer") or not _may_run_twice(op):
            continue
        what = op_key(op, lambda values: tuple(found.get(v, v) for v in values), (op.place.ipu,))
        if op.stage == Stage.FORWARD:
            first.setdefault(what, op)
        elif op.stage == Stage.BACKWARD and what in first:
            before = first[what]
            assert before.place is not None
            if before.place.pipeline_stage + op.place.pipeline_stage == net.num_stages - 1:
                found.update(zip(op.outputs, before.outputs, strict=True))
    return found
