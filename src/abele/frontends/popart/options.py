"""``popart.SessionOptions``: every name, its type and its default; and the enumerations of values.

What the machine's programs have is honoured: replicas, accumulation, placement, pipelines, recomputation, locations,
precision, random rounding, synthetic data. The rest chooses schedules and caches of the original compiler, changes no
result, and is kept as it was set.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar

from abele.errors import nearest
from abele.frontends.popart.annotations import TensorLocationSettings
from abele.frontends.popart_enums import (
    AccumulateOuterFragmentSchedule,
    BatchSerializationBatchSchedule,
    BatchSerializationMethod,
    BatchSerializationTransformContext,
    ExecutionPhaseIOSchedule,
    ExecutionPhaseSchedule,
    GradientTensorTrackingMethod,
    Instrumentation,
    MeanReductionStrategy,
    MergeVarUpdateType,
    RecomputationType,
    ReductionType,
    SubgraphCopyingStrategy,
    SyntheticDataMode,
    VirtualGraphMode,
)


class IrSerializationFormat(IntEnum):
    """Formats of a program as text."""

    JSON = 0


class _Checked:
    """An object whose attributes are a table: their types are those of their defaults."""

    _TABLE: ClassVar[dict[str, Any]] = {}

    def __init__(self, *given: Any, **named: Any) -> None:
        for name, default in self._TABLE.items():
            object.__setattr__(self, name, default() if isinstance(default, Callable) else default)  # type: ignore[arg-type]
        for name, value in (*zip(self._TABLE, given, strict=False), *named.items()):
            setattr(self, name, value)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._TABLE:
            close = nearest(name, self._TABLE)
            raise AttributeError(
                f"{type(self).__name__} has no option {name!r}" + (f", did you mean {close!r}?" if close else "")
            )
        object.__setattr__(self, name, _typed(f"{type(self).__name__}.{name}", value, getattr(self, name)))


def _typed(name: str, value: Any, default: Any) -> Any:
    """A value in the type of an option.

    Raises:
        TypeError: It is of another.
    """
    if isinstance(default, IntEnum):
        if isinstance(value, type(default)):
            return value
        raise TypeError(f"{name} takes a {type(default).__name__}, got {value!r}")
    if isinstance(default, bool):
        if not isinstance(value, (bool, int)):
            raise TypeError(f"{name} takes True or False, got {value!r}")
        return bool(value)
    if isinstance(default, int):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} takes a whole number, got {value!r}")
        return int(value)
    if isinstance(default, float):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"{name} takes a number, got {value!r}")
        return float(value)
    if isinstance(default, str):
        if not isinstance(value, str):
            raise TypeError(f"{name} takes a text, got {value!r}")
        return value
    if isinstance(default, dict):
        return dict(value)
    if isinstance(default, list):
        return list(value)
    if isinstance(default, set):
        return set(value)
    return value


class ExecutionPhaseSettings(_Checked):
    """Options of execution in phases."""

    _TABLE: ClassVar[dict[str, Any]] = {
        "phases": 0,
        "stages": 2,
        "weightIOSchedule": ExecutionPhaseIOSchedule.Preload,
        "activationIOSchedule": ExecutionPhaseIOSchedule.Preload,
        "optimizerStateIOSchedule": ExecutionPhaseIOSchedule.OnDemand,
        "accumulatorIOSchedule": ExecutionPhaseIOSchedule.Preload,
        "schedule": ExecutionPhaseSchedule.Interleaving,
    }


class BatchSerializationSettings(_Checked):
    """Options of batches that are cut into parts."""

    _TABLE: ClassVar[dict[str, Any]] = {
        "factor": 0,
        "concatOnVirtualGraphChange": True,
        "concatOnExecutionPhaseChange": True,
        "concatOnPipelineStageChange": True,
        "transformContext": BatchSerializationTransformContext.Fwd,
        "method": BatchSerializationMethod.UnrollDynamic,
        "batchSchedule": BatchSerializationBatchSchedule.Isomorphic,
    }


class AutomaticLossScalingSettings(_Checked):
    """Options of a loss scale that follows gradients."""

    _TABLE: ClassVar[dict[str, Any]] = {
        "enabled": False,
        "toTrackTensors": None,
        "binEdgeLocation": 0.125,
        "thresholdUpperCountProportion": 1e-7,
        "updatePeriod": 1,
        "gradientTensorTrackingMethod": GradientTensorTrackingMethod.AllNonViewChangingGradientTensors,
    }


class ReplicatedCollectivesSettings(_Checked):
    """Options of collectives, which choose schedules."""

    _TABLE: ClassVar[dict[str, Any]] = {
        "prepareScheduleForMergingCollectives": False,
        "mergeAllReduceCollectives": False,
        "mergeReduceScatterCollectives": False,
        "mergeAllGatherCollectives": False,
    }


class AutodiffStitchStrategy(IntEnum):
    """Ways of the original compiler to give a gradient what it reads; results do not depend on them."""

    RecomputeMinimal = 0
    RecomputeAllNonInputs = 1
    AddFwdOutputs = 2
    SafeAddFwdOutputs = 3


class AutodiffSettings(_Checked):
    """Options of derivatives, which change no result."""

    _TABLE: ClassVar[dict[str, Any]] = {"stitchStrategy": AutodiffStitchStrategy.RecomputeAllNonInputs}


class AccumulateOuterFragmentSettings(_Checked):
    """Order of what runs once for all micro-batches of an update, which changes no result."""

    _TABLE: ClassVar[dict[str, Any]] = {
        "schedule": AccumulateOuterFragmentSchedule.Serial,
        "excludedVirtualGraphs": list,
    }


class DotCheck(IntEnum):
    """Times at which a picture of the graph is written."""

    Fwd0 = 0
    Fwd1 = 1
    Bwd0 = 2
    PreAlias = 3
    Final = 4


class SessionOptions(_Checked):
    """Options of a session by PopART's names.

    Raises:
        AttributeError: There is no such option.
        TypeError: A value of another type.
    """

    _TABLE: ClassVar[dict[str, Any]] = {
        # Replicas, accumulation.
        "enableReplicatedGraphs": False,
        "replicatedGraphCount": 1,
        "enableDistributedReplicatedGraphs": False,
        "globalReplicationFactor": 1,
        "globalReplicaOffset": 0,
        "enableGradientAccumulation": False,
        "accumulationFactor": 1,
        "accumulationAndReplicationReductionType": ReductionType.Sum,
        "meanAccumulationAndReplicationReductionStrategy": MeanReductionStrategy.Post,
        # Placement.
        "virtualGraphMode": VirtualGraphMode.Off,
        "virtualGraphSplitRatios": list,
        "enablePipelining": False,
        "explicitPipeliningEnabled": False,
        "numIOTiles": 0,
        "executionPhaseSettings": ExecutionPhaseSettings,
        "batchSerializationSettings": BatchSerializationSettings,
        "accumulateOuterFragmentSettings": AccumulateOuterFragmentSettings,
        # Recomputation, locations.
        "autoRecomputation": RecomputationType.NoRecompute,
        "explicitRecomputation": False,
        "activationTensorLocationSettings": TensorLocationSettings,
        "weightTensorLocationSettings": TensorLocationSettings,
        "optimizerStateTensorLocationSettings": TensorLocationSettings,
        "accumulatorTensorLocationSettings": TensorLocationSettings,
        "tensorLocationSettingsOverride": dict,
        # Numbers.
        "enableStochasticRounding": False,
        "enableFloatingPointChecks": False,
        "partialsTypeMatMuls": "",
        "enableStableNorm": False,
        "enableNonStableSoftmax": False,
        "automaticLossScalingSettings": AutomaticLossScalingSettings,
        "ensureFp32LossScaleTensor": False,
        "throwIfLog2ScaleTensorNotWithinRange": True,
        "enableSupportedDataTypeCasting": True,
        # Data.
        "syntheticDataMode": SyntheticDataMode.Off,
        "enablePrefetchDatastreams": True,
        "defaultBufferingDepth": 1,
        "bufferingDepthMap": dict,
        "defaultPrefetchBufferingDepth": 1,
        "prefetchBufferingDepthMap": dict,
        "useHostCopyOps": False,
        "enableExplicitMainLoops": False,
        "groupHostSync": False,
        "constantWeights": True,
        "rearrangeAnchorsOnHost": True,
        "rearrangeStreamsOnHost": False,
        "disableGradAccumulationTensorStreams": False,
        "disableOptimizerStateTensorStreams": False,
        "updatableBuffers": list,
        # Compiling.
        "enableOutlining": True,
        "enableOutliningCopyCostPruning": True,
        "outlineThreshold": 1.0,
        "outlineSequenceBreakCost": 10000.0,
        "subgraphCopyingStrategy": SubgraphCopyingStrategy.OnEnterAndExit,
        "mergeVarUpdate": MergeVarUpdateType.Off,
        "mergeVarUpdateMemThreshold": 1_000_000,
        "looseThresholdAtPeak": 8_000,
        "aliasZeroCopy": False,
        "strictOpVersions": True,
        "enableInplaceAmbiguityChecking": False,
        "enableFullyConnectedPass": True,
        "enableSerializedMatmuls": True,
        "enableMergeExchange": True,
        "decomposeGradSum": False,
        "delayVarUpdates": True,
        "scheduleNonWeightUpdateGradientConsumersEarly": False,
        "enableConstantFoldingOfMultipleConsumers": True,
        "enableLoadAndOffloadRNGState": False,
        "groupNormStridedChannelGrouping": False,
        "kahnTieBreaker": "greedy",
        "transitiveClosureOptimizationThreshold": 100_000,
        "swapLimitScheduler": 10_000,
        "timeLimitScheduler": 1e9,
        "separateCallOpPdfs": True,
        "createImplicitPipeliningFwdOnlyProgram": False,
        "stashAllTensorsInferencePipeline": False,
        "enableEfficientOverlapIOTopoCons": False,
        "replicatedCollectivesSettings": ReplicatedCollectivesSettings,
        "autodiffSettings": AutodiffSettings,
        "enableVariablesCaching": True,
        "opxAliasChecking": False,
        "opxModifyChecking": False,
        # Caches, looks inside.
        "enableEngineCaching": False,
        "cachePath": "session_cache",
        "compileEngine": True,
        "instrumentWithHardwareCycleCounter": False,
        "hardwareInstrumentations": lambda: {Instrumentation.Outer},
        "logDir": "",
        "dotChecks": set,
        "firstDotOp": 0,
        "finalDotOp": 10_000,
        "dotOpNames": False,
        "exportPoplarComputationGraph": False,
        "exportPoplarVertexGraph": False,
        "customCodelets": list,
        "customCodeletCompileFlags": "",
        "developerSettings": lambda: None,
        "engineOptions": dict,
        "convolutionOptions": dict,
        "lstmOptions": dict,
        "matmulOptions": dict,
        "reportOptions": dict,
        "gclOptions": dict,
    }

    def enableExplicitIR(self, enable: bool) -> None:
        """Explicit main loops, copies and recomputation together."""
        self.enableExplicitMainLoops = self.useHostCopyOps = self.explicitRecomputation = bool(enable)

    def getGlobalReplicationFactor(self) -> int:
        """Replicas of all processes."""
        return self.globalReplicationFactor if self.enableDistributedReplicatedGraphs else self.replicas

    @property
    def replicas(self) -> int:
        """Replicas of the program."""
        return self.replicatedGraphCount if self.enableReplicatedGraphs else 1

    @property
    def micro_batches(self) -> int:
        """Micro-batches of an update."""
        return self.accumulationFactor if self.enableGradientAccumulation else 1


HONOURED = frozenset(
    {
        "enableReplicatedGraphs",
        "replicatedGraphCount",
        "enableGradientAccumulation",
        "accumulationFactor",
        "accumulationAndReplicationReductionType",
        "meanAccumulationAndReplicationReductionStrategy",
        "virtualGraphMode",
        "enablePipelining",
        "numIOTiles",
        "autoRecomputation",
        "activationTensorLocationSettings",
        "weightTensorLocationSettings",
        "optimizerStateTensorLocationSettings",
        "accumulatorTensorLocationSettings",
        "enableStochasticRounding",
        "enableFloatingPointChecks",
        "partialsTypeMatMuls",
        "enableStableNorm",
        "automaticLossScalingSettings",
        "syntheticDataMode",
        "constantWeights",
        "enableEngineCaching",
        "cachePath",
        "instrumentWithHardwareCycleCounter",
        "engineOptions",
        "compileEngine",
        "convolutionOptions",
        "matmulOptions",
    }
)
"""Options that change the program, or what a session does."""
