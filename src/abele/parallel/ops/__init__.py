"""The op families: one file each, with meaning, lowering and derivative side by side."""

from abele.parallel.ops import (
    convolution,
    dropout,
    elementwise,
    linear,
    nonlinearity,
    pooling,
    reduction,
    softmax,
    views,
)

__all__ = [
    "convolution",
    "dropout",
    "elementwise",
    "linear",
    "nonlinearity",
    "pooling",
    "reduction",
    "softmax",
    "views",
]
