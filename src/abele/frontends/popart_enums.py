"""Enumerations of PopART whose numbers programs give to ``opts._Popart.set``; ``import popart`` finds them here.

``opts._Popart.set("autoRecomputation", int(popart.RecomputationType.Pipeline))`` sets 3.

Source of the numbers: the order in which PopART's public headers declare the members.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "AccumulateOuterFragmentSchedule",
    "BatchSerializationBatchSchedule",
    "BatchSerializationMethod",
    "BatchSerializationTransformContext",
    "ExecutionPhaseIOSchedule",
    "ExecutionPhaseSchedule",
    "GradientTensorTrackingMethod",
    "Instrumentation",
    "MeanReductionStrategy",
    "MergeVarUpdateType",
    "RecomputationType",
    "ReductionType",
    "ReplicatedTensorSharding",
    "SubgraphCopyingStrategy",
    "SyntheticDataMode",
    "TensorStorage",
    "VirtualGraphMode",
]


class ReductionType(IntEnum):
    """Reduction of the values of several micro-batches."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class MeanReductionStrategy(IntEnum):
    """Time at which the mean over accumulated gradients is taken."""

    Running = 0
    Post = 1
    PostAndLoss = 2


class RecomputationType(IntEnum):
    """Activations that the backward pass computes again (``autoRecomputation``)."""

    NoRecompute = 0
    Standard = 1
    NormOnly = 2
    Pipeline = 3
    RecomputeAll = 4


class SubgraphCopyingStrategy(IntEnum):
    """Time at which inputs of a function are copied."""

    OnEnterAndExit = 0
    JustInTime = 1


class AccumulateOuterFragmentSchedule(IntEnum):
    """Order of the steps after the last micro-batch of an update."""

    Scheduler = 0
    Serial = 1
    OverlapCycleOptimized = 2
    OverlapMemoryOptimized = 3


class BatchSerializationTransformContext(IntEnum):
    """Passes whose batches are cut."""

    Fwd = 0
    Bwd = 1


class BatchSerializationMethod(IntEnum):
    """Form of the program over parts of a batch."""

    UnrollDynamic = 0
    UnrollStatic = 1
    Loop = 2


class BatchSerializationBatchSchedule(IntEnum):
    """Order of the parts of a batch."""

    Scheduler = 0
    Isomorphic = 1
    OverlapOnIo = 2
    OverlapOnCompute = 3


class ExecutionPhaseIOSchedule(IntEnum):
    """Time at which tensors of a phase are loaded."""

    Preload = 0
    OnDemand = 1


class ExecutionPhaseSchedule(IntEnum):
    """Order of loads, work and stores of phases."""

    Interleaving = 0
    Batch = 1
    BatchClusteredIO = 2


class MergeVarUpdateType(IntEnum):
    """Updates that become one operation."""

    Off = 0
    All = 1
    AutoLoose = 2
    AutoTight = 3


class VirtualGraphMode(IntEnum):
    """Placement of operations on IPUs."""

    Off = 0
    Manual = 1
    Auto = 2
    ExecutionPhases = 3


class SyntheticDataMode(IntEnum):
    """Data that stands for the host's."""

    Off = 0
    Zeros = 1
    RandomNormal = 2
    RandomUniform = 3


class Instrumentation(IntEnum):
    """Loops whose cycles are counted."""

    Outer = 0
    Inner = 1


class GradientTensorTrackingMethod(IntEnum):
    """Gradients that the automatic loss scale follows."""

    AllNonViewChangingGradientTensors = 0
    ConvAndMatmulGradients = 1
    GradientsOfUserSpecifiedTensors = 2


class TensorStorage(IntEnum):
    """Place of a tensor, on the chip or in streaming memory."""

    Undefined = 0
    OffChip = 1
    OnChip = 2


class ReplicatedTensorSharding(IntEnum):
    """Choice of a part of a tensor for each replica."""

    Off = 0
    On = 1
