"""Options of a PopART session as the machine's own: schedule, places of tensors, settings."""

from __future__ import annotations

from typing import Any

import onnx

from abele.errors import InvalidOptionError
from abele.frontends.onnx.notes import NOTES, notes_of
from abele.frontends.popart.annotations import ReplicatedTensorSharding, TensorLocationSettings, TensorStorage
from abele.frontends.popart.devices import DeviceInfo
from abele.frontends.popart.errors import popart_exception
from abele.frontends.popart.options import SessionOptions
from abele.frontends.popart_enums import MeanReductionStrategy, RecomputationType, ReductionType, SyntheticDataMode
from abele.network import Locations, MeanStrategy, PipelineSchedule, Schedule, TensorLocation
from abele.runtime.engine.options import read_options
from abele.session import Settings

_PODS = ("bow-2000", "bow-pod16", "bow-pod64", "bow-pod256", "bow-pod1024")
_PARTIALS = {"half": "f16", "float": "f32"}


def schedule_of(options: SessionOptions, b: int, a: int, r: int, *, training: bool) -> Schedule:
    """Micro-batches of a step: updates, micro-batches of each, replicas."""
    reduction = options.accumulationAndReplicationReductionType
    running = options.meanAccumulationAndReplicationReductionStrategy == MeanReductionStrategy.Running
    return Schedule(
        device_iterations=b,
        accumulation=a if training else 1,
        mean=reduction == ReductionType.Mean,
        strategy=MeanStrategy.RUNNING if running else MeanStrategy.POST,
        replicas=r,
        io_tiles=options.numIOTiles,
        pipeline=PipelineSchedule.GROUPED if options.enablePipelining else PipelineSchedule.SEQUENTIAL,
    )


def check_stages(proto: onnx.ModelProto, batches: int, options: SessionOptions, *, training: bool) -> None:
    """Raise unless a model's nodes have stages of a pipeline, in an order that can run.

    Raises:
        popart_exception: Some nodes have none, one reads what a later stage makes, or a step has too few micro-batches.
    """
    nodes = [node for node in proto.graph.node if node.op_type != "Constant"]
    found = [notes_of(node).get(NOTES["stage"]) for node in nodes]
    given = [int(stage) for stage in found if stage is not None]
    if given and len(given) < len(found):
        missing = nodes[found.index(None)]
        raise popart_exception(
            "Only some ops have had their pipeline stage set.",
            because=f"{missing.op_type} {', '.join(missing.output)} has none",
            remedy="with builder.pipelineStage(number) around every operator",
        )
    stage_of: dict[str, int] = {}
    for node, stage in zip(nodes, given, strict=False):
        for name in node.input:
            if stage_of.get(name, stage) > stage:
                raise popart_exception(
                    f"Tensor {name} is consumed in an earlier pipeline stage than it is produced",
                    because=f"stage {stage_of[name]} makes it, stage {stage} reads it",
                )
        stage_of |= dict.fromkeys(node.output, stage)
    stages = max(given, default=0) + 1
    accumulates = training and options.enableGradientAccumulation
    depth, what = (
        (options.accumulationFactor, "gradient accumulation factor") if accumulates else (batches, "batchesPerStep")
    )
    if depth < stages:
        raise popart_exception(
            f"For pipelining, depth ({what}) must equal at least the number of pipeline stages ({stages})",
            because=f"it is {depth}",
        )


def locations_of(options: SessionOptions) -> Locations:
    """Places of kinds of tensors; activations leave the chip where they wait in a pipeline."""
    waiting = options.activationTensorLocationSettings if options.enablePipelining else TensorLocationSettings()
    return Locations(
        optimiser=_location(options.optimizerStateTensorLocationSettings, sharable=True),
        weights=_location(options.weightTensorLocationSettings),
        activations=_location(waiting),
        accumulators=_location(options.accumulatorTensorLocationSettings),
    )


def _location(settings: TensorLocationSettings, *, sharable: bool = False) -> TensorLocation:
    held = settings.location
    return TensorLocation(
        on_chip=held.storage != TensorStorage.OffChip,
        sharded=sharable and held.replicatedTensorSharding == ReplicatedTensorSharding.On,
        min_elements_off_chip=settings.minElementsForOffChip,
        min_elements_sharded=settings.minElementsForReplicatedTensorSharding,
    )


def settings_of(options: SessionOptions, device: DeviceInfo, name: str) -> Settings:
    """Settings of the session.

    Raises:
        InvalidOptionError: A value that there is none of.
    """
    partials = str(options.partialsTypeMatMuls).lower()
    if partials and partials not in _PARTIALS:
        raise InvalidOptionError(f"partialsTypeMatMuls takes half and float, got {options.partialsTypeMatMuls!r}")
    scaling = options.automaticLossScalingSettings
    more: dict[str, Any] = {}
    if scaling.enabled:
        more |= {
            "automatic_loss_scale": True,
            "loss_scale_edge": scaling.binEdgeLocation,
            "loss_scale_threshold": scaling.thresholdUpperCountProportion,
            "loss_scale_period": scaling.updatePeriod,
        }
    recompute = options.autoRecomputation
    return Settings(
        system=_system(device, options),
        name=name,
        partials=_PARTIALS.get(partials, "f32"),
        stable_norms=options.enableStableNorm,
        exceptions=options.enableFloatingPointChecks,
        stochastic_rounding=options.enableStochasticRounding,
        synthetic_data=options.syntheticDataMode != SyntheticDataMode.Off,
        cache=options.cachePath if options.enableEngineCaching else None,
        recompute=recompute not in (RecomputationType.NoRecompute, RecomputationType.Pipeline),
        recompute_stages=recompute in (RecomputationType.Pipeline, RecomputationType.RecomputeAll),
        engine=_engine_options(options),
        **more,
    )


def _engine_options(options: SessionOptions) -> dict[str, Any]:
    """Options of the engine, checked: an unknown one is an error."""
    read_options(options.engineOptions)
    return dict(options.engineOptions)


def _system(device: DeviceInfo, options: SessionOptions) -> str | None:
    """The smallest preset with as many IPUs; None for the usual one."""
    from abele.machine import systems

    needed = max(device.numIpus, options.replicas)
    if needed <= systems.get(_PODS[0]).num_ipus:
        return None
    return next((name for name in _PODS if systems.get(name).num_ipus >= needed), _PODS[-1])
