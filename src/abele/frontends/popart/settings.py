"""Options of a PopART session as the machine's own: schedule, places of tensors, settings."""

from __future__ import annotations

from typing import Any

from abele.errors import InvalidOptionError
from abele.frontends.popart.annotations import TensorLocationSettings
from abele.frontends.popart.devices import DeviceInfo, SyncPattern
from abele.frontends.popart.errors import as_poplar, popart_exception
from abele.frontends.popart.options import AutomaticLossScalingSettings, SessionOptions
from abele.frontends.popart_enums import (
    GradientTensorTrackingMethod,
    MeanReductionStrategy,
    RecomputationType,
    ReductionType,
    ReplicatedTensorSharding,
    SyntheticDataMode,
    TensorStorage,
)
from abele.machine import System, systems
from abele.network import Locations, MeanStrategy, PipelineSchedule, Schedule, TensorLocation
from abele.network.automatic_scale import GradientTracking
from abele.runtime.engine.options import read_options
from abele.session import Settings

_PODS = ("bow-2000", "bow-pod16", "bow-pod64", "bow-pod256", "bow-pod1024")
_PRESETS = {"ipu1": ("c2",), "ipu21": ("c600",)}
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
        popart_exception: A value that there is none of.
        poplar_exception: An option of the engine that there is none of.
    """
    partials = str(options.partialsTypeMatMuls).lower()
    if partials and partials not in _PARTIALS:
        raise popart_exception(f"partialsTypeMatMuls takes half and float, got {options.partialsTypeMatMuls!r}")
    scaling = options.automaticLossScalingSettings
    more: dict[str, Any] = {}
    if scaling.enabled:
        more |= {
            "automatic_loss_scale": True,
            "loss_scale_edge": scaling.binEdgeLocation,
            "loss_scale_threshold": scaling.thresholdUpperCountProportion,
            "loss_scale_period": scaling.updatePeriod,
            "loss_scale_tracking": _tracking(scaling).value,
            "loss_scale_tensors": tuple(
                name.removeprefix("Gradient___") for name in scaling.toTrackTensors or () if _is_user(scaling)
            ),
        }
    proportion = _proportion(options)
    if proportion is not None:
        more["memory_proportion"] = proportion
    recompute = options.autoRecomputation
    return Settings(
        system=_system(device, options),
        name=name,
        partials=_PARTIALS.get(partials, "f32"),
        convolution_dithering=str(options.convolutionOptions.get("enableConvDithering", "")).lower() in ("1", "true"),
        sync_pattern="full" if device.pattern == SyncPattern.Full else "single_pipeline",
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


def _is_user(scaling: AutomaticLossScalingSettings) -> bool:
    return _tracking(scaling) == GradientTracking.NAMED


def _tracking(scaling: AutomaticLossScalingSettings) -> GradientTracking:
    """Gradients that the automatic scale follows; names of some mean those alone."""
    method = scaling.gradientTensorTrackingMethod
    if scaling.toTrackTensors or method == GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors:
        return GradientTracking.NAMED
    if method == GradientTensorTrackingMethod.ConvAndMatmulGradients:
        return GradientTracking.PRODUCTS
    return GradientTracking.ALL


def _proportion(options: SessionOptions) -> float | None:
    """Share of a tile's memory of products and convolutions, where their options say one.

    Raises:
        popart_exception: They say two, or it is none.
    """
    name = "availableMemoryProportion"
    given = {float(held[name]) for held in (options.convolutionOptions, options.matmulOptions) if name in held}
    if len(given) > 1 or not all(0 < share <= 1 for share in given):
        raise popart_exception(
            f"{name} of matmulOptions and convolutionOptions is one number in (0, 1], got {sorted(given)}",
            remedy="builder.setAvailableMemoryProportion(name, share) for single operators",
        )
    return next(iter(given), None)


def _engine_options(options: SessionOptions) -> dict[str, Any]:
    """Options of the engine, checked: an unknown one is an error."""
    try:
        read_options(options.engineOptions)
    except InvalidOptionError as error:
        raise as_poplar(error) from None
    return dict(options.engineOptions)


def _system(device: DeviceInfo, options: SessionOptions) -> System | str | None:
    """The smallest preset with as many IPUs, of the device's version and tiles; None for the usual one."""
    needed = max(device.numIpus, options.replicas)
    presets = (*_PRESETS.get(device.version, ()), *_PODS)
    name = next((name for name in presets if systems.get(name).num_ipus >= needed), _PODS[-1])
    whole = systems.get(name)
    if device.tilesPerIPU and device.tilesPerIPU < whole.ipu.num_tiles:
        return whole.evolve(ipu=whole.ipu.evolve(num_tiles=device.tilesPerIPU))
    return None if name == _PODS[0] else name
