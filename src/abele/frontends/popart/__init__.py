"""PopART's names: a builder of models, sessions, what of a step comes back, optimisers, options, devices."""

from abele.frontends.popart.annotations import (
    ExchangeStrategy,
    InputSettings,
    RecomputeType,
    ReplicatedStreamMode,
    ReplicatedTensorSharding,
    TensorLocation,
    TensorLocationSettings,
    TensorStorage,
    TileSet,
)
from abele.frontends.popart.builder import Builder
from abele.frontends.popart.dataflow import (
    AnchorReturnType,
    DataFlow,
    InputShapeInfo,
    PyStepIO,
    PyStepIOCallback,
    PyWeightsIO,
)
from abele.frontends.popart.devices import (
    CommGroup,
    CommGroupType,
    DeviceConnectionType,
    DeviceInfo,
    DeviceManager,
    DeviceSelectionCriterion,
    DeviceType,
    SyncPattern,
    VariableRetrievalMode,
    VariableSettings,
)
from abele.frontends.popart.errors import (
    OutOfMemoryException,
    popart_exception,
    popart_internal_exception,
    popart_runtime_error,
    poplar_application_runtime_error,
    poplar_exception,
    poplar_recoverable_runtime_error,
    poplar_runtime_error,
    poplar_system_runtime_error,
    poplar_unknown_runtime_error,
    poplar_unrecoverable_runtime_error,
    poplibs_exception,
)
from abele.frontends.popart.graph_transformer import GraphTransformer
from abele.frontends.popart.graphcore import ScatterReduction
from abele.frontends.popart.operations import (
    OperatorIdentifier,
    getLogger,
    getSupportedOperations,
    getUnsupportedOperations,
)
from abele.frontends.popart.optimisers import (
    SGD,
    Adam,
    AdamMode,
    Adaptive,
    AdaptiveMode,
    ClipNormSettings,
    ConstSGD,
    Optimizer,
    OptimizerValue,
    OptimizerValueMap,
    SGDAccumulatorAndMomentum,
    WeightDecayMode,
)
from abele.frontends.popart.options import (
    AutodiffSettings,
    AutomaticLossScalingSettings,
    BatchSerializationSettings,
    DotCheck,
    ExecutionPhaseSettings,
    IrSerializationFormat,
    Patterns,
    PatternsLevel,
    ReplicatedCollectivesSettings,
    SessionOptions,
)
from abele.frontends.popart.session import ACCUMULATOR_PREFIX, GRADIENT_PREFIX, InferenceSession, TrainingSession
from abele.frontends.popart.tensor_info import TensorInfo
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

defaultAiOnnxOpset, defaultAiGraphcoreOpset = 10, 1  # noqa: N816


def reservedGradientPrefix() -> str:
    """Prefix of the name of a tensor's gradient."""
    return GRADIENT_PREFIX


def reservedAccumPrefix() -> str:
    """Prefix of the name of a weight's sum of gradients."""
    return ACCUMULATOR_PREFIX


def reservedAcclPrefix() -> str:
    """Prefix of the name of a momentum."""
    return "Accl___"


def reservedAccl1Prefix() -> str:
    """Prefix of the name of a mean of gradients."""
    return "Accl1___"


def reservedAccl2Prefix() -> str:
    """Prefix of the name of a mean of squares."""
    return "Accl2___"


def reservedAccl3Prefix() -> str:
    """Prefix of the name of a third tensor of an optimiser."""
    return "Accl3___"


def reservedStepPrefix() -> str:
    """Prefix of the name of a number of updates."""
    return "Step___"


def reservedUpdatedVarPrefix() -> str:
    """Prefix of the name of a weight after its update."""
    return "UpdatedVar___"


def reservedLossScalingPrefix() -> str:
    """Prefix of the name of the loss's factor."""
    return "lossScaling_"


def versionString() -> str:
    """PopART's version whose names these are."""
    return "3.4.0"


__all__ = [
    "SGD",
    "AccumulateOuterFragmentSchedule",
    "Adam",
    "AdamMode",
    "Adaptive",
    "AdaptiveMode",
    "AnchorReturnType",
    "AutodiffSettings",
    "AutomaticLossScalingSettings",
    "BatchSerializationBatchSchedule",
    "BatchSerializationMethod",
    "BatchSerializationSettings",
    "BatchSerializationTransformContext",
    "Builder",
    "ClipNormSettings",
    "CommGroup",
    "CommGroupType",
    "ConstSGD",
    "DataFlow",
    "DeviceConnectionType",
    "DeviceInfo",
    "DeviceManager",
    "DeviceSelectionCriterion",
    "DeviceType",
    "DotCheck",
    "ExchangeStrategy",
    "ExecutionPhaseIOSchedule",
    "ExecutionPhaseSchedule",
    "ExecutionPhaseSettings",
    "GradientTensorTrackingMethod",
    "GraphTransformer",
    "InferenceSession",
    "InputSettings",
    "InputShapeInfo",
    "Instrumentation",
    "IrSerializationFormat",
    "MeanReductionStrategy",
    "MergeVarUpdateType",
    "OperatorIdentifier",
    "Optimizer",
    "OptimizerValue",
    "OptimizerValueMap",
    "OutOfMemoryException",
    "Patterns",
    "PatternsLevel",
    "PyStepIO",
    "PyStepIOCallback",
    "PyWeightsIO",
    "RecomputationType",
    "RecomputeType",
    "ReductionType",
    "ReplicatedCollectivesSettings",
    "ReplicatedStreamMode",
    "ReplicatedTensorSharding",
    "SGDAccumulatorAndMomentum",
    "ScatterReduction",
    "SessionOptions",
    "SubgraphCopyingStrategy",
    "SyncPattern",
    "SyntheticDataMode",
    "TensorInfo",
    "TensorLocation",
    "TensorLocationSettings",
    "TensorStorage",
    "TileSet",
    "TrainingSession",
    "VariableRetrievalMode",
    "VariableSettings",
    "VirtualGraphMode",
    "WeightDecayMode",
    "defaultAiGraphcoreOpset",
    "defaultAiOnnxOpset",
    "getLogger",
    "getSupportedOperations",
    "getUnsupportedOperations",
    "popart_exception",
    "popart_internal_exception",
    "popart_runtime_error",
    "poplar_application_runtime_error",
    "poplar_exception",
    "poplar_recoverable_runtime_error",
    "poplar_runtime_error",
    "poplar_system_runtime_error",
    "poplar_unknown_runtime_error",
    "poplar_unrecoverable_runtime_error",
    "poplibs_exception",
    "reservedAccl1Prefix",
    "reservedAccl2Prefix",
    "reservedAccl3Prefix",
    "reservedAcclPrefix",
    "reservedAccumPrefix",
    "reservedGradientPrefix",
    "reservedLossScalingPrefix",
    "reservedStepPrefix",
    "reservedUpdatedVarPrefix",
    "versionString",
]
