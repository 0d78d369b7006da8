"""Stages of a pipeline in networks: which IPU each op is on, and in which stage.

Equations carry the stage of their layer as a name scope. Those without one (casts of inputs, the loss, metrics) are in
the latest stage of what they read; what reads nothing that is in a stage is where it is first read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from abele.errors import InvalidOptionError
from abele.frontends.keras.model.assignment import LayerPipelineStageAssignment
from abele.frontends.keras.model.options import ModelOptions
from abele.frontends.keras.model.scopes import LABEL
from abele.frontends.keras.model.steps import StepNetwork
from abele.network import Network, NetworkOp, PipelineSchedule, Place, Value
from abele.network.ir import FrozenDict, PlanHint
from abele.network.passes.place import substituted
from abele.network.registry import rule_of
from abele.words import counted

_LABEL = re.compile(rf"{LABEL}(\d+)")


@dataclass(frozen=True)
class LayerStages:
    """Stages of a model.

    Attributes:
        count: Number of stages; 1 for a model that is no pipeline.
        layers: The stage of each call of a layer, where the model's code does not say it.
        ipu_of: IPU of each stage.
    """

    count: int = 1
    layers: Sequence[LayerPipelineStageAssignment] = ()
    ipu_of: tuple[int, ...] = field(default=(0,))

    @staticmethod
    def of(count: int, layers: Sequence[LayerPipelineStageAssignment], options: ModelOptions) -> LayerStages:
        """Stages on IPUs of their own, or on those that the options name.

        Raises:
            InvalidOptionError: IPUs of another number of stages, or that leave one out.
        """
        mapping = options.device_mapping or list(range(count))
        if len(mapping) != count:
            raise InvalidOptionError(
                f"device_mapping has {counted(len(mapping), 'IPU')} for {counted(count, 'stage')}",
                remedy="one for each stage",
            )
        if set(mapping) != set(range(max(mapping) + 1)):
            raise InvalidOptionError(f"device_mapping {mapping} leaves out an IPU", remedy="IPUs from 0 without gaps")
        return LayerStages(count, tuple(layers), tuple(mapping))

    @property
    def ipus(self) -> int:
        """IPUs of one replica."""
        return max(self.ipu_of) + 1

    def replicas_on(self, ipus: int) -> int:
        """Replicas on so many IPUs: each has a power of two of them.

        Raises:
            InvalidOptionError: Fewer IPUs than one replica needs.
        """
        each = 1 << (self.ipus - 1).bit_length()
        if each > ipus:
            raise InvalidOptionError(
                f"the model has {counted(self.count, 'stage')} on {counted(self.ipus, 'IPU')}, and there are {ipus}",
                remedy=f"IPUConfig.auto_select_ipus = {each}",
            )
        return ipus // each

    def schedule_name(self, options: ModelOptions) -> PipelineSchedule:
        """The schedule of the pipeline."""
        return PipelineSchedule(options.schedule.name.lower())


def placed(step: StepNetwork, stages: LayerStages, options: ModelOptions) -> StepNetwork:
    """A step whose ops are in the stages of their layers; one of a model without stages as it is."""
    if stages.count == 1:
        return step
    net = step.network
    of = _stages_of(net, stages.count - 1)
    moved: dict[Value, Value] = {}
    for op in net.ops:
        if op in of:
            place = Place(ipu=stages.ipu_of[of[op]], pipeline_stage=of[op])
            moved |= {v: replace(v, place=place) for v in op.outputs}
    ops = tuple(_hinted(op, of.get(op), options.stage_options) for op in net.ops)
    return replace(step, network=substituted(replace(net, ops=ops), moved))


def _stages_of(net: Network, last: int) -> dict[NetworkOp, int]:
    """Stage of each op but of constants."""
    made: dict[Value, int] = {}
    found: dict[NetworkOp, int] = {}
    waiting: list[NetworkOp] = []
    for op in net.ops:
        if op.kind == "constant":
            continue
        label = _LABEL.findall(op.debug.text or "")
        read = [made[v] for v in op.inputs if v in made]
        if not label and not read:
            waiting.append(op)
            continue
        found[op] = int(label[-1]) if label else max(read)
        made |= dict.fromkeys(op.outputs, found[op])
    if waiting:
        first: dict[Value, int] = {}
        for op in reversed(net.ops):
            if op not in found and op.kind != "constant":
                found[op] = min((first[v] for v in op.outputs if v in first), default=last)
            for value in op.inputs if op in found else ():
                first[value] = min(first.get(value, last), found[op])
    return found


def _hinted(op: NetworkOp, stage: int | None, options: Any) -> NetworkOp:
    """An op planned as the options of its stage say."""
    if not options or stage is None or stage >= len(options) or not rule_of(op).planned:
        return op
    own = options[stage]
    name = "convolution_options" if op.kind.startswith("convolution") else "matmul_options"
    given: Mapping[str, Any] = getattr(own, name, None) or {}
    proportion = given.get("availableMemoryProportion")
    partials = {"half": "f16", "float": "f32"}.get(str(given.get("partialsType")))
    if proportion is None and partials is None:
        return op
    hint = PlanHint(proportion=None if proportion is None else float(proportion), partials=partials)
    return replace(op, attrs=FrozenDict({**op.attrs, "hint": hint}))
