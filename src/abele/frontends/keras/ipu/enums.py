"""Enumerations of pipelines, accumulation and metrics."""

from __future__ import annotations

from enum import Enum, IntEnum


class PipelineSchedule(IntEnum):
    """Stages of a pipeline that run at the same time."""

    Grouped = 0
    Interleaved = 1
    Sequential = 2


class RecomputationMode(Enum):
    """Choice of what backward stages compute again, where ``allow_recompute`` is set."""

    Auto = 0
    RecomputeThenBackpropagate = 1
    RecomputeAndBackpropagateInterleaved = 2


class GradientAccumulationReductionMethod(Enum):
    """Reduction of the gradients of an update's micro-batches."""

    SUM = 0
    MEAN = 1
    RUNNING_MEAN = 2


class ReplicatedMetricReductionMethod(Enum):
    """Values of a metric of several replicas for the host: the last one's, all, or their sum or mean."""

    NONE = "NONE"
    LIST = "LIST"
    SUM = "SUM"
    MEAN = "MEAN"


class IPUOutfeedMode(Enum):
    """Entries that an outfeed keeps: everything, or the last entry."""

    ALL = "all"
    LAST = "last"
