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
    """Where batches are loaded: in the caller's process, in one of their own, or there and put together anew."""

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


class SharingStrategy(IntEnum):
    """How processes that load data hand it over."""

    SharedMemory = 0
    FileSystem = 1
    Fork = 2
    ForkServer = 3


class MatMulSerializationMode(Enum):
    """Which dimension of a matrix product is cut into products one after the other."""

    InputChannels = "input_channels"
    ReducingDim = "reducing_dim"
    OutputChannels = "output_channels"
    Disabled = "none"


class Liveness(IntEnum):
    """Where tensors of a phase are kept when the phase is over."""

    AlwaysLive = 0
    OffChipAfterFwd = 1
    OffChipAfterFwdNoOverlap = 2
    OffChipAfterEachPhase = 3


class AutoStage(IntEnum):
    """How blocks that no stage names are put on stages."""

    SameAsIpu = 0
    AutoIncrement = 1


class MultiConvPlanType(IntEnum):
    """Whether grouped convolutions run beside each other or one after the other."""

    Parallel = 0
    Serial = 1


class VariableRetrievalMode(IntEnum):
    """Which replicas of a grouped variable are read back."""

    OnePerGroup = 0
    AllReplicas = 2
