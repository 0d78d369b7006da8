"""Enumerations of pipelines, accumulation and metrics."""

from __future__ import annotations

from enum import Enum, IntEnum


class PipelineSchedule(IntEnum):
    """Stages of a pipeline that run at the same time."""

    Grouped = 0
    Interleaved = 1
    Sequential = 2


class RecomputationMode(Enum):
    """What backward stages compute again, where ``allow_recompute`` is set."""

    Auto = 0
    RecomputeThenBackpropagate = 1
    RecomputeAndBackpropagateInterleaved = 2


class GradientAccumulationReductionMethod(Enum):
    """What an update makes of the gradients of its micro-batches."""

    SUM = 0
    MEAN = 1
    RUNNING_MEAN = 2


class ReplicatedMetricReductionMethod(Enum):
    """What the host gets of a metric of several replicas: the last one's, all, or their sum or mean."""

    NONE = "NONE"
    LIST = "LIST"
    SUM = "SUM"
    MEAN = "MEAN"


class IPUOutfeedMode(Enum):
    """What an outfeed keeps: everything, or the last entry."""

    ALL = "all"
    LAST = "last"
