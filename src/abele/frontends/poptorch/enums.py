"""PopTorch's enumerations."""

from __future__ import annotations

from enum import Enum, IntEnum


class OutputMode(IntEnum):
    """Which micro-batches of a run come back: the last, every n-th, all, their sum, or the model's default."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3
    Default = 4


class ReductionType(IntEnum):
    """How values of several micro-batches become one."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class MeanReductionStrategy(IntEnum):
    """When the mean over accumulated gradients is taken."""

    Running = 0
    Post = 1
    PostAndLoss = 2


class ConnectionType(IntEnum):
    """When to attach to a device."""

    Always = 0
    OnDemand = 1
    Never = 2


class SyncPattern(IntEnum):
    """How IPUs of a replica synchronise."""

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class DataLoaderMode(IntEnum):
    """True if batches are loaded in the background."""

    Sync = 0
    Async = 1
    AsyncRebatched = 2


class CommGroupType(IntEnum):
    """How replicas are grouped."""

    All = 0
    Consecutive = 1
    Orthogonal = 2
    NoGrouping = 3


class HalfFloatCastingBehavior(IntEnum):
    """What mixing half and float gives."""

    FloatDowncastToHalf = 0
    HalfUpcastToFloat = 1
    Default = 2


class OverlapMode(Enum):
    """Which loop host transfers overlap with."""

    NoOverlap = "no_overlap"
    OverlapAccumulationLoop = "overlap_accumulation_loop"
    OverlapDeviceIterationLoop = "overlap_device_iteration_loop"
