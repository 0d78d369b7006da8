"""``spread``: what an op reads is on its IPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from abele.network.invariant_values import fixed_values
from abele.network.ir import FrozenDict, Network, NetworkOp, Stage, Value
from abele.network.passes.base import Pass


@dataclass(frozen=True)
class InsertTransfers(Pass):
    """Let transfers bring values to the other IPUs that read them, once to each.

    In a pipeline a transfer belongs to the stage after the one that makes the value. The seed is not sent there: each
    stage has its own, which counts the micro-batches that the stage has seen.
    """

    name: ClassVar[str] = "spread"

    def run(self, net: Network) -> Network:
        """The network with transfers; one on a single IPU stays as it is."""
        if net.num_ipus == 1:
            return net
        pipelined, fixed = net.num_stages > 1, fixed_values(net)
        sent: dict[tuple[Value, int, bool], Value] = {}
        ops: list[NetworkOp] = []

        def here(value: Value, op: NetworkOp) -> Value:
            assert op.place is not None
            ipu = op.place.ipu
            if value.place.ipu == ipu or (pipelined and value is net.seed):
                return value
            at_the_end = op.stage == Stage.UPDATE
            key = (value, ipu, at_the_end)
            if key not in sent:
                later = value.place.pipeline_stage + (pipelined and not at_the_end and value not in fixed)
                place = replace(value.place, ipu=ipu, pipeline_stage=later)
                made = sent[key] = replace(
                    value, name="", place=place, stage=Stage.UPDATE if at_the_end else value.stage
                )
                ops.append(NetworkOp("transfer", (value,), (made,), FrozenDict(), op.debug))
            return sent[key]

        for op in net.ops:
            if op.place is not None:
                op = replace(op, inputs=tuple(here(v, op) for v in op.inputs))
            ops.append(op)
        return replace(net, ops=tuple(ops))
