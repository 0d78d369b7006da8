"""The op families: one file each, with meaning, lowering and derivative side by side."""

from abele.parallel.ops import (
    constant,
    control,
    convolution,
    dropout,
    elementwise,
    linear,
    lookup,
    nonlinearity,
    norm,
    pooling,
    recurrent,
    reduction,
    rows,
    softmax,
    training,
    views,
)

__all__ = [
    "constant",
    "control",
    "convolution",
    "dropout",
    "elementwise",
    "linear",
    "lookup",
    "nonlinearity",
    "norm",
    "pooling",
    "recurrent",
    "reduction",
    "rows",
    "softmax",
    "training",
    "views",
]
