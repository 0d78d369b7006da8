"""``stages``: what runs at which time of a pipeline.

The model says which of the ``n`` stages of the forward pass each op is in. The backward pass of stage ``s`` is stage
``2·(n − 1) − s``: so the last one runs forward and backward at once, and the gradient of a value is made one stage
after the gradients of what was computed from it, on the IPU where the value was made. A stage takes a micro-batch one
tick of the pipeline after the stage before it. Where stages take turns, the last one runs backward one tick after it
ran forward: the backward stage of ``s`` is ``2·n − 1 − s``, and is busy when ``s`` is not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from abele.errors import StageOrderError
from abele.network.invariant_values import fixed_values
from abele.network.ir import Network, NetworkOp, Place, Stage, Value
from abele.network.passes.base import Pass
from abele.network.passes.place import substituted


@dataclass(frozen=True)
class AssignStages(Pass):
    """Number the stages of the backward pass on from those of the forward pass.

    Attributes:
        turns: True if forward and backward stages take turns.
    """

    name: ClassVar[str] = "stages"
    turns: bool = False

    def run(self, net: Network) -> Network:
        """The network with the stage of every op; one without a pipeline stays as it is.

        Raises:
            StageOrderError: An op reads what a later stage makes, or what another IPU makes in the same stage.
        """
        if net.num_stages == 1:
            return net
        last, fixed = net.num_stages - 1, fixed_values(net)
        number = {v: v.place.pipeline_stage for v in net.inputs}
        moved: dict[Value, Value] = {}
        for op in net.ops:
            if op.place is None or op.stage == Stage.UPDATE or fixed.issuperset(op.outputs):
                continue
            stage = self._stage(op, op.place, number, last)
            number |= dict.fromkeys(op.outputs, stage)
            if stage != op.place.pipeline_stage:
                moved |= {v: replace(v, place=replace(v.place, pipeline_stage=stage)) for v in op.outputs}
        return substituted(net, moved)

    def _stage(self, op: NetworkOp, place: Place, number: dict[Value, int], last: int) -> int:
        own = place.pipeline_stage if op.stage == Stage.FORWARD else 2 * last + self.turns - place.pipeline_stage
        # A value from another IPU is there one stage later.
        ready = {v: number[v] + (v.place.ipu != place.ipu) for v in op.inputs if v in number}
        latest = max(ready, key=ready.__getitem__, default=None)
        if latest is None or ready[latest] <= own:
            return own
        if op.stage == Stage.FORWARD:
            raise StageOrderError(
                f"{op.kind} in stage {own} of the pipeline reads what stage {number[latest]} makes"
                + (f" on IPU {latest.place.ipu}" if number[latest] == own else ""),
                kind=op.kind,
                stage=own,
                made_in=number[latest],
                at=op.debug.location or None,
                because=f"{latest} is there in stage {ready[latest]} at the earliest",
                remedy="number stages in the order in which the model runs them, one IPU to a stage",
            )
        return ready[latest]
