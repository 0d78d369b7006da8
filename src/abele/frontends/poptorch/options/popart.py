"""``opts._Popart``: session options of the layer below PopTorch, by name, and the check of all options together."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any, Self

from abele.frontends.popart_enums import RecomputationType
from abele.frontends.poptorch.errors import Error, OptionValueError
from abele.frontends.poptorch.options.checked import Freezable

_FLAGS = """
aliasZeroCopy autoRecomputation.enabled
batchSerializationSettings.concatOnVirtualGraphChange batchSerializationSettings.concatOnExecutionPhaseChange
batchSerializationSettings.concatOnPipelineStageChange compileEngine constantWeights
createImplicitPipeliningFwdOnlyProgram decomposeGradSum delayVarUpdates disableGradAccumulationTensorStreams
dotOpNames enableEfficientOverlapIOTopoCons enableEngineCaching enableExplicitIR enableExplicitMainLoops
enableFloatingPointChecks enableFullyConnectedPass enableGradientAccumulation enableInplaceAmbiguityChecking
enableLoadAndOffloadRNGState enableMergeExchange enableNonStableSoftmax enableOutlining enableOutliningCopyCostPruning
enablePipelining enablePrefetchDatastreams enableReplicatedGraphs enableSerializedMatmuls enableStableNorm
enableStochasticRounding enableSupportedDataTypeCasting ensureFp32LossScaleTensor explicitRecomputation
exportPoplarComputationGraph exportPoplarVertexGraph finalDotOp groupHostSync groupNormStridedChannelGrouping
implicitPipelining instrumentWithHardwareCycleCounter rearrangeAnchorsOnHost rearrangeStreamsOnHost
replicatedGraphsLocal scheduleNonWeightUpdateGradientConsumersEarly separateCallOpPdfs shouldDelayVarUpdates
strictOpVersions useHostCopyOps useLoopCandidateCreator automaticLossScalingSettings.enabled
disableOptimizerStateTensorStreams enableConstantFoldingOfMultipleConsumers enableDistributedReplicatedGraphs
enableVariablesCaching enableRngStateManagement explicitPipeliningEnabled opxAliasChecking opxModifyChecking
replicatedCollectivesSettings.mergeAllGatherCollectives replicatedCollectivesSettings.mergeAllReduceCollectives
replicatedCollectivesSettings.mergeReduceScatterCollectives
replicatedCollectivesSettings.prepareScheduleForMergingCollectives stashAllTensorsInferencePipeline
throwIfLog2ScaleTensorNotWithinRange
"""
_NUMBERS = """
accumulationAndReplicationReductionType accumulationFactor autoRecomputation batchSerializationSettings.factor
batchSerializationSettings.method batchSerializationSettings.batchSchedule batchSerializationSettings.transformContext
bufferingDepths.default defaultBufferingDepth defaultPrefetchBufferingDepth executionPhaseSettings.phases
executionPhaseSettings.stages executionPhaseSettings.schedule firstDotOp globalReplicaOffset globalReplicationFactor
hardwareInstrumentation mergeVarUpdate mergeVarUpdateMemThreshold looseThresholdAtPeak
meanAccumulationAndReplicationReductionStrategy numIOTiles replicatedGraphCount subgraphCopyingStrategy
syntheticDataMode virtualGraphMode accumulateOuterFragmentSettings.schedule
executionPhaseSettings.activationIOSchedule executionPhaseSettings.weightIOSchedule
executionPhaseSettings.optimizerStateIOSchedule executionPhaseSettings.accumulatorIOSchedule maxRepeatLogs
autodiffSettings.stitchStrategy swapLimitScheduler
automaticLossScalingSettings.updatePeriod automaticLossScalingSettings.gradientTensorTrackingMethod
"""
_FRACTIONS = """
outlineThreshold outlineSequenceBreakCost automaticLossScalingSettings.binEdgeLocation
automaticLossScalingSettings.thresholdUpperCountProportion timeLimitScheduler
"""
_TEXTS = """
cachePath customCodeletCompileFlags customCodelets kahnTieBreaker logDir partialsTypeMatMuls
serializedPoprithmsAnnealGraphsDir saveInitializersToFile serializedPoprithmsShiftGraphsDir
transitiveClosureOptimizationThreshold
automaticLossScalingSettings.gradientTensorTrackingMethod
"""
_LISTS = """
accumulateOuterFragmentSettings.excludedVirtualGraphs dotChecks hardwareInstrumentations updatableBuffers
virtualGraphSplitRatios customCodelets automaticLossScalingSettings.toTrackTensors
"""
_TABLES = """
bufferingDepthMap convolutionOptions engineOptions gclOptions lstmOptions matmulOptions prefetchBufferingDepthMap
reportOptions
"""

KNOWN: dict[str, tuple[str, ...]] = {
    "bool": tuple(_FLAGS.split()),
    "uint64": tuple(_NUMBERS.split()),
    "double": tuple(_FRACTIONS.split()),
    "string": tuple(_TEXTS.split()),
    "container": tuple(_LISTS.split()),
    "map": tuple(_TABLES.split()),
}
"""The session options that are known, by the kind of their values."""

CHEAP_AGAIN = frozenset({RecomputationType.Standard, RecomputationType.NormOnly, RecomputationType.RecomputeAll})
"""Kinds of recomputation with which cheap activations are computed again."""

STAGES_AGAIN = frozenset({RecomputationType.Pipeline, RecomputationType.RecomputeAll})
"""Kinds with which stages of a pipeline keep what enters them alone."""

_PARTIALS = {"half": "f16", "float": "f32"}

LOGGER = logging.getLogger("poptorch::python")


class PopartOptions(Freezable):
    """``opts._Popart``.

    Attributes:
        options: Session options by name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.options: dict[str, Any] = {}
        self.options["instrumentWithHardwareCycleCounter"] = False
        self.options["rearrangeAnchorsOnHost"] = False
        self.options["patterns_level"] = 2
        self.options["patterns"] = {}

    def set(self, key: str, value: object) -> Self:
        """Set a session option."""
        self._check_writable()
        self.options[key] = value
        return self

    @property
    def recomputation(self) -> int:
        """Values to compute again in the backward pass: those of pipeline stages, if nothing else was chosen.

        Raises:
            OptionValueError: A number that is no kind of recomputation.
        """
        chosen = self.options.get("autoRecomputation", RecomputationType.Pipeline)
        if self.options.get("autoRecomputation.enabled") is False:
            chosen = RecomputationType.NoRecompute
        if chosen not in list(RecomputationType):
            raise OptionValueError(f"autoRecomputation is a popart.RecomputationType from 0 to 4, got {chosen!r}")
        return int(chosen)

    @property
    def partials(self) -> str | None:
        """Type of partial sums that options of matrix products or convolutions choose; None where none does."""
        chosen = [self.options.get("partialsTypeMatMuls") or None, *self._of_products("partialsType")]
        names = {str(name) for name in chosen if name is not None}
        if names - set(_PARTIALS):
            raise OptionValueError(f"partial sums are 'half' or 'float', got {sorted(names - set(_PARTIALS))[0]!r}")
        return _PARTIALS["half" if "half" in names else "float"] if names else None

    @property
    def memory_proportion(self) -> float | None:
        """Smallest share of a tile's memory that options of matrix products or convolutions plan with; None for none.

        Raises:
            OptionValueError: A share that is no number.
        """
        shares = [share for share in self._of_products("availableMemoryProportion") if share is not None]
        try:
            return min(map(float, shares), default=None)
        except (TypeError, ValueError):
            raise OptionValueError(f"availableMemoryProportion is a number from 0 to 1, got {shares[0]!r}") from None

    @property
    def cache_folder(self) -> str | None:
        """Folder of compiled models that ``enableEngineCaching`` and ``cachePath`` choose; None without caching."""
        path = self.options.get("cachePath", "session_cache")
        return str(path) if self.options.get("enableEngineCaching") else None

    def _of_products(self, name: str) -> list[Any]:
        tables = (self.options.get(table, {}) for table in ("matmulOptions", "convolutionOptions"))
        return [table.get(name) for table in tables if isinstance(table, Mapping)]

    def setEngineOptions(self, engine_options: Mapping[str, Any]) -> Self:
        """Options of the engine, under Poplar's names."""
        return self.set("engineOptions", dict(engine_options))

    def setPatterns(self, patterns: Mapping[str, bool], level: int = 2) -> Self:
        """Keep the choice of the compiler's patterns, and of the level that is on by default; the passes here are
        others.
        """
        self._check_writable()
        if not isinstance(level, int) or not 0 <= level <= 3:
            raise OptionValueError(f"the level of patterns is a whole number from 0 to 3, got {level!r}")
        self.options["patterns_level"] = level
        self.options["patterns"] = dict(patterns)
        return self

    def toDict(self) -> dict[str, Any]:
        """All session options by name."""
        return dict(self.options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PopartOptions) and self.options == other.options

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.options.items())})"


def validate_options(options: Mapping[str, Any], known: Collection[str]) -> None:
    """Look through all options together, and log each that is set.

    Args:
        options: Options by name, those of all groups.
        known: Those that PopTorch has itself; the others are session options.

    Raises:
        Error: An option that does not exist, or a value of a type that options never have.
    """
    for name, value in options.items():
        if name not in known:
            _check_session_option(name, value)
        _log(name, value)


def _check_session_option(name: str, value: object) -> None:
    kind = _kind(name, value)
    every = {option for names in KNOWN.values() for option in names}
    takes = {k for k, names in KNOWN.items() if name in names}
    if not takes:
        raise Error(f"Unknown {kind} option {name}")
    fits = kind in takes or (kind == "uint64" and "double" in takes) or (kind == "bool" and "uint64" in takes)
    if name in every and not fits:
        raise Error(f"Unknown value type {type(value)} for option {name}", remedy=f"a {' or '.join(sorted(takes))}")


def _kind(name: str, value: object) -> str:
    """Kind of value that an option is given."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int) and value >= 0:
        return "uint64"
    if isinstance(value, (int, float)):
        return "double"
    if isinstance(value, str):
        return "string"
    if isinstance(value, Mapping):
        return "map"
    if isinstance(value, (list, tuple, set, frozenset)):
        return "container"
    raise Error(f"Unknown value type {type(value)} for option {name}")


def _log(name: str, value: object) -> None:
    if isinstance(value, Mapping):
        for key, part in value.items():
            LOGGER.debug("poptorch.Options set %s[%s] to %s", name, key, _shown(part))
    elif isinstance(value, (list, tuple, set, frozenset)):
        for part in value:
            LOGGER.debug("poptorch.Options added %s to %s", _shown(part), name)
    else:
        LOGGER.debug("poptorch.Options set %s to value %s", name, _shown(value))


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
