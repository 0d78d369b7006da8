"""PopLibs' enumerations of non-linearities and losses; functions take their names as well."""

from __future__ import annotations

from enum import StrEnum


class NonLinearityType(StrEnum):
    """Kinds of :func:`~abele.poplibs.popnn.nonlinearity.non_linearity`."""

    __poplar_name__ = "popnn::NonLinearityType"

    SIGMOID = "sigmoid"
    HARD_SIGMOID = "hard_sigmoid"
    RELU = "relu"
    TANH = "tanh"
    GELU = "gelu"
    SWISH = "swish"
    SOFTMAX = "softmax"
    SOFTMAX_STABLE = "softmax_stable"
    SOFTMAX_SCALED = "softmax_scaled"
    GELU_ERF = "gelu_erf"


class LossType(StrEnum):
    """Kinds of :func:`~abele.poplibs.popnn.loss_calc.calc_loss`."""

    SUM_SQUARED_LOSS = "SUM_SQUARED_LOSS"
    CROSS_ENTROPY_LOSS = "CROSS_ENTROPY_LOSS"


class PoolingType(StrEnum):
    """Kinds of :func:`~abele.poplibs.popnn.pooling.pool`."""

    MAX = "max"
    AVG = "avg"
    SUM = "sum"
