"""PopTorch's enumerations."""

from __future__ import annotations

from enum import Enum, IntEnum


class OutputMode(IntEnum):
    """Choice of the micro-batches of a run that come back: the last, every n-th, all, their sum, or the model's
    default.
    """

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3
    Default = 4


class ConnectionType(IntEnum):
    """Time at which a device is attached to."""

    Always = 0
    OnDemand = 1
    Never = 2


class SyncPattern(IntEnum):
    """Synchronisation of the IPUs of a replica."""

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class DataLoaderMode(IntEnum):
    """Process that loads batches: the caller's, one of their own, or one that also puts them together anew."""

    Sync = 0
    Async = 1
    AsyncRebatched = 2


class CommGroupType(IntEnum):
    """Grouping of replicas."""

    All = 0
    Consecutive = 1
    Orthogonal = 2
    NoGrouping = 3


class HalfFloatCastingBehavior(IntEnum):
    """Type of results of mixed half and float operands."""

    FloatDowncastToHalf = 0
    HalfUpcastToFloat = 1
    Default = 2


class OverlapMode(Enum):
    """Loop with which host transfers overlap."""

    NoOverlap = "no_overlap"
    OverlapAccumulationLoop = "overlap_accumulation_loop"
    OverlapDeviceIterationLoop = "overlap_device_iteration_loop"


class SharingStrategy(IntEnum):
    """Method by which loading processes hand data over."""

    SharedMemory = 0
    FileSystem = 1
    Fork = 2
    ForkServer = 3


class MatMulSerializationMode(Enum):
    """Dimension along which a matrix product is cut into products one after the other."""

    InputChannels = "input_channels"
    ReducingDim = "reducing_dim"
    OutputChannels = "output_channels"
    Disabled = "none"


class Liveness(IntEnum):
    """Place of a phase's tensors when the phase is over."""

    AlwaysLive = 0
    OffChipAfterFwd = 1
    OffChipAfterFwdNoOverlap = 2
    OffChipAfterEachPhase = 3


class AutoStage(IntEnum):
    """Stages of the blocks that no stage names."""

    SameAsIpu = 0
    AutoIncrement = 1


class MultiConvPlanType(IntEnum):
    """Plan of grouped convolutions: beside each other, or one after the other."""

    Parallel = 0
    Serial = 1


class VariableRetrievalMode(IntEnum):
    """Replicas of a grouped variable that are read back."""

    OnePerGroup = 0
    AllReplicas = 2
